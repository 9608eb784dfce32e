"""How long a call in memory lets others act, in real time, before it moves the clock.

Where each of them waits as well, nobody will release what it waits for. The innermost
frames of threads show that, and the timers and tasks of event loops.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

WAITING = 0.05  # s: all others wait; one that was woken just now comes by then
READING = 1.0  # s: a loop has connections, or it is uvloop, whose timers are hidden
WORKING = 10.0  # s: somebody works or sleeps
WAITS = {"wait", "_wait_for_tstate_lock", "join", "_worker", "_shutdown"}


def patience(waiting: dict[int, Any], loop: Any) -> float:
    """Return it (s): `waiting` as of World; `loop` of the task that asks, or None."""
    frames, here = sys._current_frames(), threading.get_ident()
    frames.pop(here, None)  # this frame would hold itself
    most = patience_with_loop(loop) if loop else 0.0
    for thread in threading.enumerate():
        ident = thread.ident or 0
        frame, is_over = frames.get(ident), waiting.get(ident)
        module = frame.f_globals.get("__name__") if frame else None
        if ident == here:
            continue
        if frame is None or (is_over and is_over()):  # a greenlet, or woken
            return WORKING
        most = max(most, WAITING)
        if module == "selectors" and frame.f_back:
            most = max(most, patience_with_loop(frame.f_back.f_locals.get("self")))
        elif not is_over and (
            module not in ("threading", "concurrent.futures.thread")
            or frame.f_code.co_name not in WAITS
            or not (thread.daemon or frame.f_locals.get("timeout") in (None, -1))
        ):
            return WORKING
    return most


def patience_with_loop(loop: Any) -> float:
    """Return it for all tasks of an event loop that come later, or wait."""
    if type(loop).__module__.startswith("uvloop"):
        return WORKING if any(map(works, asyncio.all_tasks(loop))) else READING
    if getattr(loop, "_ready", True):  # or no loop of asyncio
        return WORKING
    for timer in loop._scheduled:
        name = getattr(timer._callback, "__name__", None)
        if name != "_advance" and not timer.cancelled():
            return WORKING
    return READING if len(loop._selector.get_map()) > 1 else 0.0  # its own pipe


def works(task: Any) -> bool:
    """Return whether a task can run, or waits for the real time."""
    at, names = task.get_coro(), set[str]()
    while at is not None:
        names.add(getattr(at, "__name__", ""))
        at = getattr(at, "cr_await", None)
    waiter = getattr(task, "_fut_waiter", None)
    return waiter is None or waiter.done() or bool(names & {"sleep", "wait_for"})
