"""Wait for a claim to come true, and measure how long a block takes."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


# s; for what takes milliseconds, on a machine that is loaded. Less than the default
# ttl: what has expired by itself must not pass for what was undone.
PATIENCE = 8.0
SLACK = 0.4  # s; what a loaded machine may add to a time that is asserted


def wait_until(claim: Callable[[], object], within: float = PATIENCE) -> bool:
    return bool(settled(lambda: bool(claim()), True, within))


def settled(read: Callable[[], T], wanted: T, within: float = PATIENCE) -> T:
    """Read until it is as wanted, or time is up; return what was read last.

    The last look begins behind that time: one before may itself have stood still.
    """
    deadline, is_last = time.monotonic() + within, False
    while (found := read()) != wanted and not is_last:
        time.sleep(0.002)  # between two looks
        is_last = time.monotonic() >= deadline
    return found


def is_renewed(lease: Any, times: int = 2) -> bool:
    """Wait until a lease that is kept has been renewed so often."""
    left = lease.remaining()

    def grows() -> bool:
        nonlocal left
        before, left = left, lease.remaining()
        return bool(left > before)

    return all(wait_until(grows) for _ in range(times))


async def turn() -> None:
    await asyncio.sleep(0)


async def until(
    claim: Callable[[], object], within: float = PATIENCE, pause: float = 0.001
) -> None:
    """Wait on a loop until the claim is true; pause=0 looks in each turn."""
    deadline = time.monotonic() + within
    while not claim():
        assert time.monotonic() < deadline, "never so"
        await asyncio.sleep(pause)  # between two looks


def is_listening(address: tuple[str, int]) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(address):
        return True
    return False


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds since the start of the block."""
    began = time.monotonic()
    yield lambda: time.monotonic() - began
