"""Calls of the awaitable client that must succeed, and loops in other threads."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastredlock import ReleaseStatus
from fastredlock.asyncio import FastRedlock, Lease
from tests.support.keys import KEY


async def taken(locks: FastRedlock, key: str = KEY, **options: Any) -> Lease:
    lease = await locks.acquire(key, **options)
    assert lease is not None
    return lease


async def pair(locks: FastRedlock, key: str = KEY) -> None:
    lease = await taken(locks, key, timeout=2)
    assert await lease.release() is ReleaseStatus.RELEASED


async def until_cancelled() -> None:
    """Sleep for longer than a test may take: something has to cancel that."""
    await asyncio.sleep(60)


def epolls() -> dict[int, list[tuple[str, str]]]:
    """List what each epoll of this process watches: fd, events (proc(5), fdinfo)."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                text = Path(f"/proc/self/fdinfo/{name}").read_text()
                found[int(name)] = re.findall(r"tfd: *(\d+) events: *(\w+)", text)
    return found
