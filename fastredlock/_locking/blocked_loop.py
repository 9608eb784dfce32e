"""A warning, once per process, where a call that blocks waits inside an event loop.

The loop is blocked meanwhile; where the holder is a task of that loop, it never
releases. Looked for where a call begins to wait: one whose first try wins pays nothing.
"""

from __future__ import annotations

from .._core import Engine, running_loop
from .._reports.log import warn_once

TEXT = (
    "a FastRedlock that blocks waits for a lock inside a running event loop, which "
    "stands still meanwhile: await fastredlock.asyncio.FastRedlock, or call it by "
    "asyncio.to_thread()"
)


def before_wait(engine: Engine) -> None:
    """Warn where no event loop drives the engine, but one runs in this thread."""
    # A closed engine has no driver any more, and the next round ends at once.
    if running_loop() is not None and not engine.is_awaited and not engine.is_closed:
        warn_once(TEXT)
