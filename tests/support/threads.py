"""Work in other threads, at the same time or after a delay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def in_threads(bodies: Sequence[Callable[[], T]]) -> list[T]:
    """Run all bodies at the same time; return their results, or raise."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return [future.result() for future in [pool.submit(body) for body in bodies]]


@contextmanager
def later(delay: float, work: Callable[[], object]) -> Iterator[None]:
    """Do the work in another thread while the block runs, after a delay in s."""

    def wait_and_work() -> None:
        time.sleep(delay)
        work()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(wait_and_work)
        yield
        future.result()
