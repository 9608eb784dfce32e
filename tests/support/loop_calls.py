"""Calls of the awaitable client that must succeed, and loops in other threads."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastredlock import ReleaseStatus
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.keys import KEY
from tests.support.waiting import PATIENCE


async def taken(locks: FastRedlock, key: str = KEY, **options: Any) -> Lease:
    """Take it; it is free."""
    lease = await locks.acquire(key, **options)
    assert lease is not None
    return lease


async def until(claim: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait on the loop for a claim to come true."""
    ends = time.monotonic() + within
    while not claim():
        assert time.monotonic() < ends
        await asyncio.sleep(0.001)


async def pair(locks: FastRedlock, key: str = KEY) -> None:
    """Take and release it."""
    lease = await taken(locks, key, timeout=2)
    assert await lease.release() is ReleaseStatus.RELEASED


def epolls() -> dict[int, list[tuple[str, str]]]:
    """List what each epoll of this process watches: fd, events (proc(5), fdinfo)."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                text = Path(f"/proc/self/fdinfo/{name}").read_text()
                found[int(name)] = re.findall(r"tfd: *(\d+) events: *(\w+)", text)
    return found
