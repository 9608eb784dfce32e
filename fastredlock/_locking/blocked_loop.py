"""A warning, once per process, where a call that blocks waits inside an event loop.

The loop is blocked meanwhile; where the holder is a task of that loop, it never
releases. Looked for where a call begins to wait: one whose first try wins pays nothing.
"""

from __future__ import annotations

import sys

from .._core import Engine
from .._reports.log import warn

TEXT = (
    "a FastRedlock that blocks waits for a lock inside a running event loop, which "
    "stands still meanwhile: await fastredlock.asyncio.FastRedlock, or call it by "
    "asyncio.to_thread()"
)
logged: list[str] = []  # in this process


def before_wait(engine: Engine) -> None:
    """Warn where no event loop drives the engine, but one runs in this thread."""
    # Another thread may be importing asyncio at this moment. A closed engine has no
    # driver any more, and the next round ends at once.
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    if logged or running is None or engine.is_awaited or engine.is_closed:
        return
    if running() is not None:
        logged.append(TEXT)  # before it is logged: a handler may wait for a lock, too
        warn("%s", TEXT)
