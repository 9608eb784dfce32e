"""One process that takes slots of one semaphore, until it dies with one in its hands.

    python -m tests.chaos.slot_worker CLIENT FOLDER GENERATION SEED - PERMITS URL ...

It imports little: sixteen are started at once, and each that dies is replaced.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fastredlock import FastRedlock, FastRedlockError
from fastredlock._core import end_with_parent

from .checker import Window
from .clients import TTL
from .ledger import Ledger, now_ns

RESOURCE = "chaos:slots"
LIFE = 30.0  # s; the longest of a process: of sixteen, one dies about every second
HOLDS = (0.0, 0.001, 0.005, 0.02)  # s
LONG_SHARE, LONG = 0.003, 1.3 * TTL
UNNUMBERED = -1
DIED = 4  # a flag of a window: its holder was killed in it


class Grant(NamedTuple):
    """One slot, which is ours until then; it has a number, or they are counted."""

    until_ns: int
    release: Callable[[], object]
    slot: int = UNNUMBERED


TryOnce = Callable[[], "Grant | None"]


def work(
    client: str, folder: str, generation: str, seed: str, _: str, permits: str,
    *urls: str,
) -> None:  # fmt: skip
    """Take a slot and give it back, until the end of this life."""
    draw = random.Random(f"{seed}/{generation}")
    try_once = new_client(client, list(urls), int(permits))
    ledger = Ledger(Path(folder), int(generation))
    dies_ns = now_ns() + int(draw.uniform(0.5, LIFE) * 1e9)
    while True:
        grant = None
        with suppress(FastRedlockError):
            grant = try_once()
        if grant is None:
            time.sleep(draw.uniform(0.001, 0.01))
            continue
        begin_ns = now_ns()
        is_long = draw.random() < LONG_SHARE
        time.sleep(LONG if is_long else draw.choice(HOLDS))
        end_ns = min(now_ns(), grant.until_ns)
        dies = dies_ns < end_ns < grant.until_ns
        flags = DIED if dies else 0
        ledger.note(Window(grant.slot, begin_ns, end_ns, ledger.generation, flags))
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        with suppress(FastRedlockError):
            grant.release()


def new_client(client: str, urls: list[str], permits: int) -> TryOnce:
    """Return what tries once: ours, or the one that counts."""
    if client == "fastredlock":
        return slots(urls, permits)
    from .counting import counting

    return counting(urls, permits)


def slots(urls: list[str], permits: int) -> TryOnce:
    """Return what waits for a slot, by our client."""
    locks = FastRedlock(urls, ttl=TTL)

    def try_once() -> Grant | None:
        lease = locks.acquire(RESOURCE, permits=permits, timeout=1)
        if lease is None:
            return None
        asked_ns = now_ns()
        until_ns = asked_ns + int(lease.remaining() * 1e9)
        return Grant(until_ns, lease.release, lease.slot)

    return try_once


if __name__ == "__main__":
    end_with_parent(signal.SIGKILL)
    work(*sys.argv[1:])
