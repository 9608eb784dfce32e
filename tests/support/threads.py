"""Work in other threads, at the same time or after a delay."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def in_threads(bodies: Sequence[Callable[[], T]]) -> list[T]:
    """Run all bodies at the same time; return their results, or raise."""
    with beside(*bodies) as futures:
        pass
    return [future.result() for future in futures]


@contextmanager
def beside(*bodies: Callable[[], object]) -> Iterator[list[Future[Any]]]:
    """Run each body in a thread of its own while the block runs; or raise at its end.

    Yield their futures.
    """
    with ThreadPoolExecutor(len(bodies)) as pool:
        futures = [pool.submit(body) for body in bodies]
        yield futures
        for future in futures:
            future.result()


@contextmanager
def later(delay: float, work: Callable[[], object]) -> Iterator[None]:
    """Do the work in another thread while the block runs, after a delay in s."""

    def wait_and_work() -> None:
        time.sleep(delay)  # the delay that was asked for
        work()

    with beside(wait_and_work):
        yield


# --- signal handlers that run, or raise, in the middle of a call ----------------------


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
