"""A program that makes every public call, and prints what was imported meanwhile."""

import asyncio
import sys
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import fastredlock.asyncio
from fastredlock import FastRedlock, FastRedlockError, Retry
from fastredlock.observer import Observer

found: list[str] = []


class Noting:
    """Note each module that is looked for; find none."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        found.append(name)


def blocking(locks: FastRedlock, others: FastRedlock) -> None:
    locks.connect()
    held = others.acquire("held", ttl=60)
    assert held is not None
    locks.acquire("held", timeout=1.3)  # looks what holds it
    for lock in (
        locks.lock("a", timeout=1, at_least=0.01),
        locks.lock("a", timeout=1, reentrant=True, keep_alive=True),
        locks.lock("a", timeout=1, linger=0.1),
        locks.semaphore("s", 2, keep_alive=True, on_lost=print),
        locks.rate("r", 2, per=1),
        locks.lock_all(["a", "b"], timeout=1),
    ):
        with lock:
            pass
    for failing in (
        lambda: locks.lock("held", timeout=0).__enter__(),
        lambda: locks.acquire("x", ttl=-1),
        lambda: locks.current("a"),
    ):
        try:
            failing()
        except FastRedlockError as error:
            str(error)
    with locks.lock("n") as lease:
        repr(locks.current("n")), repr(lease), lease.check(), lease.extend()
        lease.keep_alive(), lease.lost.wait(0), lease.lost.is_set()
        locks.adopt("n", lease.token).extend()
    terms = locks.lead("l")
    next(terms)
    terms.close()
    locks.release_each(locks.acquire_each(["a", "b"]))
    each = locks.acquire_each(["a", "b"])
    locks.extend_each(each), locks.release_each(each)
    locks.break_("held", token_hash=locks.holders("held")[0].token_hash or "")
    locks.holders("s", permits=2), locks.health(), locks.stats(), locks.ping()
    repr(locks), locks.has_quorum
    locks.close(release=True)


async def awaited(locks: fastredlock.asyncio.FastRedlock) -> None:
    await locks.connect()
    for lock in (
        locks.lock("a", timeout=1, at_least=0.01),
        locks.lock("a", timeout=1, reentrant=True, keep_alive=True),
        locks.semaphore("s", 2, keep_alive=True, on_lost=print),
        locks.rate("r", 3, per=1),
        locks.lock_all(["a", "b"], timeout=1),
    ):
        async with lock:
            pass
    async for _ in locks.lead("l"):
        break
    async with locks.lock("n") as lease:
        repr(lease), lease.check(), await lease.extend(), lease.lost.is_set()
        lease.keep_alive()
        held = (await locks.holders("n"))[0].token_hash or ""
        await locks.break_("n", token_hash="0" * len(held))
    await locks.release_each(await locks.acquire_each(["a", "b"]))
    await locks.acquire("a", timeout=0.1, linger=0.5), await locks.ping()
    await locks.close(release=True)


urls = sys.argv[1:]
options: dict[str, Any] = {"ttl": 5, "retry": Retry(), "observer": Observer()}
first, second = FastRedlock(urls, **options), FastRedlock(urls)
fenced = FastRedlock(urls, fencing=True)
third = fastredlock.asyncio.FastRedlock(urls, **options)
second.connect()
sys.meta_path.insert(0, Noting())
blocking(first, second)
with fenced.lock("f", keep_alive=True):
    pass
with asyncio.Runner() as runner:
    runner.get_loop()
    runner.run(awaited(third))
time.sleep(0.1)  # threads end, and may import
print(*found)
