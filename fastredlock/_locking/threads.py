"""Threads of ours: each with a name, and begun by a step that no signal divides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def named(run: Callable[[], object], name: str) -> Callable[[], None]:
    """Return what `thread_begin` is given, to run this in a thread of that name."""
    # In the caller's thread: a program that has others has imported it, so no fork
    # comes between. Others need not pay for it, as `fastredlock run`.
    from threading import Thread

    return partial(_run_named, Thread, run, name)


def _run_named(thread: Any, run: Callable[[], object], name: str) -> None:
    try:
        thread(target=run, name=name, daemon=True).start()
    except Exception:  # no other thread can be started: in this one
        run()
