"""Threads of ours: each with a name, and begun by a step that no signal divides."""

from __future__ import annotations

from functools import partial

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable


def named(run: Callable[[], object], name: str) -> Callable[[], None]:
    """Return what `thread_begin` is given, to run this in a thread of that name."""
    return partial(_run_named, run, name)


def _run_named(run: Callable[[], object], name: str) -> None:
    from threading import Thread

    try:
        Thread(target=run, name=name, daemon=True).start()
    except Exception:  # no other thread can be started: in this one
        run()
