"""Threads of ours: each with a name, and begun by a step that no signal divides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread


def named(run: Callable[[], object], name: str) -> Callable[[], None]:
    """Return what `thread_begin` is given, to run this in a thread of that name."""
    return partial(_run_named, run, name)


def _run_named(run: Callable[[], object], name: str) -> None:
    try:
        Thread(target=run, name=name, daemon=True).start()
    except Exception:  # no other thread can be started: in this one
        run()
