"""Signal handlers that run, or raise, in the middle of a call."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def alarm(
    delay: float, on_alarm: Callable[[], object], every: float = 0
) -> Iterator[None]:
    """Call on_alarm in a signal handler, `delay` s after the block was entered.

    every: and again after each so many seconds.
    """
    old = signal.signal(signal.SIGALRM, lambda *_: on_alarm())
    try:
        signal.setitimer(signal.ITIMER_REAL, delay, every)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


class Interrupt(BaseException):
    """Do to acquire what KeyboardInterrupt does, but never to pytest."""


def interrupt() -> None:
    """Raise it: for an alarm, inside `pytest.raises(Interrupt)`."""
    raise Interrupt
