"""The awaitable FastRedlock under the names of the blocking one.

So that one test body runs over all drivers. A loop of its own runs in a thread; each
call runs its coroutine there and waits. What interrupts the wait (a signal handler that
raises) cancels the coroutine first, and lets it end.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

import uvloop

from fastredlock.asyncio import FastRedlock, Lease

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
DRIVERS = ["blocking", *LOOPS]

T = TypeVar("T")


def run_on(kind: str, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own; nothing may be left or lost on it."""
    loop = LOOPS[kind]()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, told: complaints.append(told))
    try:
        result = loop.run_until_complete(work)
        loop.run_until_complete(asyncio.sleep(0))
        left = asyncio.all_tasks(loop)
    finally:
        loop.close()
    gc.collect()  # a lost error is reported when its task is collected
    assert not left, left
    assert not complaints, complaints
    return result


class LoopThread:
    """An event loop in a thread; `complaints` is what it was told of lost errors."""

    def __init__(self, kind: str) -> None:
        self.complaints: list[dict[str, Any]] = []
        self._kind = kind
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self.loop = LOOPS[self._kind]()
        self.loop.set_exception_handler(lambda _, told: self.complaints.append(told))
        self._thread = Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop and return what it returns; blocks."""
        if self._pid != os.getpid():  # a forked child has no such thread
            self._begin()
        begun: list[asyncio.Task[Any]] = []

        async def noted() -> Any:
            begun.append(asyncio.current_task())  # type: ignore[arg-type]
            return await work

        future = None
        try:
            future = asyncio.run_coroutine_threadsafe(noted(), self.loop)
            return future.result()
        except BaseException:
            # An interrupt may come before the future has its name: the task is known.
            if future is None or not future.done():
                with suppress(CancelledError):
                    asyncio.run_coroutine_threadsafe(
                        self._give_up(begun), self.loop
                    ).result()
            raise

    async def _give_up(self, begun: list[asyncio.Task[Any]]) -> None:
        await asyncio.sleep(0)
        for task in begun:
            task.cancel()
        await self._settle()

    async def _settle(self) -> None:
        """Wait until all other tasks have ended: those that were cancelled."""
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            cancelled = [task for task in others if task.cancelling()]
            if not cancelled:
                return
            await asyncio.wait(cancelled)

    def close(self) -> None:
        """End the loop; nothing may be left on it."""
        self.run(asyncio.sleep(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        self.loop.close()
        assert not left, left
        assert not self.complaints, self.complaints


class AwaitedLease:
    """A lease whose calls block."""

    def __init__(self, thread: LoopThread, lease: Lease) -> None:
        self._thread = thread
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def __repr__(self) -> str:
        return repr(self._lease)

    def extend(self, *args: Any, **options: Any) -> Any:
        return self._thread.run(self._lease.extend(*args, **options))

    def keep_alive(self, *args: Any, **options: Any) -> None:
        async def keep() -> None:
            self._lease.keep_alive(*args, **options)

        self._thread.run(keep())

    @property
    def lost(self) -> AwaitedLost:
        return AwaitedLost(self._thread, self._lease.lost)

    def release(self) -> Any:
        return self._thread.run(self._lease.release())

    def __enter__(self) -> AwaitedLease:
        self._thread.run(self._lease.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.run(self._lease.__aexit__(*error))


class AwaitedLost:
    """The `lost` of a lease, whose wait blocks."""

    def __init__(self, thread: LoopThread, lost: Any) -> None:
        self._thread = thread
        self.is_set = lost.is_set
        self._wait = lost.wait

    def wait(self, timeout: float | None = None) -> Any:
        return self._thread.run(self._wait(timeout))


class AwaitedLock:
    """A `lock()` whose block is a plain with block."""

    def __init__(self, thread: LoopThread, lock: Any) -> None:
        self._thread = thread
        self._lock = lock

    def __enter__(self) -> AwaitedLease:
        return AwaitedLease(self._thread, self._thread.run(self._lock.__aenter__()))

    def __exit__(self, *error: Any) -> None:
        self._thread.run(self._lock.__aexit__(*error))


class AwaitedRate(AwaitedLock):
    """A `rate()` whose block is a plain with block."""

    def __enter__(self) -> Any:
        return self._thread.run(self._lock.__aenter__())


class AwaitedLocks:
    """A FastRedlock whose calls block."""

    def __init__(self, thread: LoopThread, *args: Any, **options: Any) -> None:
        self._thread = thread
        self._locks = FastRedlock(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    def __repr__(self) -> str:
        return repr(self._locks)

    def __reduce__(self) -> Any:
        return self._locks.__reduce__()

    def __enter__(self) -> AwaitedLocks:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def acquire(self, *args: Any, **options: Any) -> AwaitedLease | None:
        return self._leased(self._thread.run(self._locks.acquire(*args, **options)))

    def acquire_all(self, *args: Any, **options: Any) -> AwaitedLease | None:
        return self._leased(self._thread.run(self._locks.acquire_all(*args, **options)))

    def acquire_each(self, *args: Any, **options: Any) -> list[AwaitedLease | None]:
        taken = self._thread.run(self._locks.acquire_each(*args, **options))
        return [self._leased(lease) for lease in taken]

    def release_each(self, leases: Iterable[Any]) -> Any:
        bare: Any = getattr(leases, "_lease", leases)
        if bare is leases and isinstance(leases, Iterable):
            bare = [getattr(lease, "_lease", lease) for lease in leases]
        return self._thread.run(self._locks.release_each(bare))

    def extend_each(self, leases: Iterable[Any], ttl: float | None = None) -> Any:
        bare: Any = getattr(leases, "_lease", leases)
        if bare is leases and isinstance(leases, Iterable):
            bare = [getattr(lease, "_lease", lease) for lease in leases]
        return self._thread.run(self._locks.extend_each(bare, ttl))

    def adopt(self, *args: Any, **options: Any) -> AwaitedLease | None:
        return self._leased(self._locks.adopt(*args, **options))

    def lock(self, *args: Any, **options: Any) -> AwaitedLock:
        return AwaitedLock(self._thread, self._locks.lock(*args, **options))

    def lock_all(self, *args: Any, **options: Any) -> AwaitedLock:
        return AwaitedLock(self._thread, self._locks.lock_all(*args, **options))

    def semaphore(self, *args: Any, **options: Any) -> AwaitedLock:
        return AwaitedLock(self._thread, self._locks.semaphore(*args, **options))

    def rate(self, *args: Any, **options: Any) -> AwaitedRate:
        return AwaitedRate(self._thread, self._locks.rate(*args, **options))

    def holders(self, *args: Any, **options: Any) -> Any:
        return self._thread.run(self._locks.holders(*args, **options))

    def break_(self, *args: Any, **options: Any) -> Any:
        return self._thread.run(self._locks.break_(*args, **options))

    def connect(self) -> None:
        self._thread.run(self._locks.connect())

    def ping(self, *args: Any, **options: Any) -> Any:
        return self._thread.run(self._locks.ping(*args, **options))

    def close(self, **options: Any) -> None:
        self._thread.run(self._locks.close(**options))

    def _leased(self, lease: Lease | None) -> AwaitedLease | None:
        return None if lease is None else AwaitedLease(self._thread, lease)
