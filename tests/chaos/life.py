"""The life of a thread or a task: it takes locks by one of the clients, in all ways.

One body serves both. A call of the blocking client has been made when it returns, so
that nothing is awaited: a thread runs the coroutine to its end by one step.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fastredlock import AcquireError, FastRedlock, FastRedlockError
from fastredlock.errors import InternalError, LeaseLostError, NotExtendedError

from .clients import TTL
from .habits import Habits, name_of
from .ledger import Hold, Ledger
from .report import Harming, Report, Told

CONNECTING = 1.0  # s; what a call may wait for connections
LOOK = 0.05  # s; between two looks at a lease that is kept
WAIT = 0.3  # s; what a block waits for others


async def call(method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    result = method(*arguments, **options)
    return await result if inspect.isawaitable(result) else result


class Blocking:
    """A block of the blocking client for `async with`."""

    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> Any:
        return self._block.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self._block.__exit__(*error)


class Life:
    """The life of one thread or task, with the client that it is given."""

    def __init__(self, locks: Any, ledger: Ledger, report: Report, name: str) -> None:
        self._is_blocking = isinstance(locks, FastRedlock)
        self._sleep = time.sleep if self._is_blocking else asyncio.sleep
        self._locks = locks
        self._ledger = ledger
        self._report = report
        self._habits = Habits(name)
        # Readers have no tokens of the caller's.
        self._may_read = locks._driver.settings.token_source is not None
        self._mine = f"own:{name}"
        self._held: list[Any] = []

    def run(self) -> None:
        with suppress(StopIteration):
            self.live().send(None)

    async def live(self) -> None:
        """Take and give back until the process ends."""
        while await self._goes_on():
            pass

    async def _goes_on(self) -> bool:
        try:
            if not await getattr(self, f"_{self._habits.call()}")():
                await call(self._sleep, self._habits.pause())
        except (AcquireError, LeaseLostError):
            await call(self._sleep, self._habits.pause())
        except InternalError:
            self._report.error()
        except FastRedlockError:
            if not self._report.is_closing.is_set():
                self._report.error()
            for lease in self._held:  # closed before they could be released
                self._report.say("held", lease.token.decode())
            return False
        except Exception:
            self._report.error()
        return not self._report.is_closing.is_set()

    # --- the ways to take a lock ------------------------------------------------------

    async def _own(self) -> bool:
        # Nobody else wants it: if another's key is there, that is one of ours.
        lease = await self._timed(0, self._locks.acquire, self._mine, timeout=0)
        if lease is None:
            self._report.say("blocked")
            return False
        return await self._use(lease)

    async def _acquire(self) -> bool:
        resource = self._habits.wanted()
        lease = await self._waited_for(name_of(resource))
        return lease is not None and await self._use(lease, resource)

    async def _slot(self) -> bool:
        wanted = self._habits.semaphore()
        lease = await self._waited_for(wanted.name, permits=wanted.permits)
        return lease is not None and await self._use(lease, wanted.number(lease.slot))

    async def _read(self) -> bool:
        resource = self._habits.wanted()
        lease = await self._waited_for(name_of(resource), shared=self._may_read)
        return lease is not None and await self._use(lease, resource)

    async def _keep_read(self) -> bool:
        return await self._keep(shared=self._may_read)

    async def _keep(self, **options: Any) -> bool:
        resource, told = self._habits.resource(), self._on_lost()
        options |= {"keep_alive": True, "on_lost": told}
        lease = await self._waited_for(name_of(resource), **options)
        if lease is None:
            return False
        self._held = [lease]
        await self._work_while_kept(lease, resource, told)
        await self._timed(0, lease.release)
        return True

    async def _lock(self) -> bool:
        resource = self._habits.wanted()
        block = self._locks.lock(name_of(resource), timeout=WAIT)
        return await self._use_block(block, lambda _: resource)

    async def _semaphore(self) -> bool:
        wanted = self._habits.semaphore()
        block = self._locks.semaphore(wanted.name, wanted.permits, timeout=WAIT)
        return await self._use_block(block, lambda lease: wanted.number(lease.slot))

    async def _keep_lock(self) -> bool:
        resource, told = self._habits.resource(), self._on_lost()
        options = {"timeout": WAIT, "keep_alive": 60, "on_lost": told}
        block = self._locks.lock(name_of(resource), **options)
        return await self._use_block(block, lambda _: resource, told)

    async def _keep_semaphore(self) -> bool:
        wanted, told = self._habits.semaphore(), self._on_lost()
        options = {"timeout": WAIT, "keep_alive": True, "on_lost": told}
        block = self._locks.semaphore(wanted.name, wanted.permits, **options)
        return await self._use_block(
            block, lambda lease: wanted.number(lease.slot), told
        )

    async def _all(self) -> bool:
        resources = self._habits.several(3)
        names = [name_of(each) for each in resources]
        lease = await self._timed(0, self._locks.acquire_all, names, timeout=0)
        return lease is not None and await self._use(lease, *resources)

    async def _each(self) -> bool:
        resources = self._habits.several(12)
        names = [name_of(each) for each in resources]
        shared = self._may_read and self._habits.extends()
        leases = await self._timed(0, self._locks.acquire_each, names, shared=shared)
        self._held = [lease for lease in leases if lease is not None]
        holds = [
            self._hold(lease, resource)
            for resource, lease in zip(resources, leases, strict=True)
            if lease is not None
        ]
        await call(self._sleep, self._habits.work())
        if self._habits.extends():
            lefts = await self._timed(0, self._locks.extend_each, self._held, TTL)
            for hold, left in zip(holds, lefts, strict=True):
                hold.shorten() if left is None else hold.renew()
            await call(self._sleep, self._habits.work())
        for hold in holds:
            hold.end()
        await self._timed(0, self._locks.release_each, leases)
        return bool(holds)

    # --- what they have in common -----------------------------------------------------

    async def _timed(
        self, wait: float, method: Any, *arguments: Any, **options: Any
    ) -> Any:
        """Make a call that may wait for others for so long (s)."""
        with self._report.timed(method.__name__, wait + CONNECTING):
            return await call(method, *arguments, **options)

    async def _waited_for(self, name: str, **options: Any) -> Any:
        timeout = self._habits.timeout()
        acquire = self._locks.acquire
        return await self._timed(timeout, acquire, name, timeout=timeout, **options)

    def _on_lost(self) -> Told:
        return (Harming if self._is_blocking else Told)(self._report)

    async def _use(self, lease: Any, *resources: int) -> bool:
        self._held = [lease]
        await self._work(lease, *resources)
        await self._timed(0, lease.release)
        return True

    async def _use_block(
        self, block: Any, number: Callable[[Any], int], told: Told | None = None
    ) -> bool:
        async with Blocking(block) if self._is_blocking else block as lease:
            if told is None:
                await self._work(lease, number(lease))
            else:
                await self._work_while_kept(lease, number(lease), told)
        return True

    def _hold(self, lease: Any, *resources: int) -> Hold:
        reads = lease._round.is_shared
        return Hold(self._ledger, resources, lease.remaining, reads)

    async def _work(self, lease: Any, *resources: int) -> None:
        hold, work = self._hold(lease, *resources), self._habits.work()
        await call(self._sleep, work)
        if self._habits.extends():
            try:
                await self._timed(0, lease.extend, TTL)
                hold.renew()
            except (LeaseLostError, NotExtendedError):
                hold.shorten()
            await call(self._sleep, work)
        hold.end()

    async def _work_while_kept(self, lease: Any, resource: int, told: Told) -> None:
        hold = told.hold = self._hold(lease, resource)
        ends = time.monotonic() + self._habits.kept_work()
        try:  # a task is cancelled in here where the lease is lost
            while time.monotonic() < ends and not hold.look(lease.lost.is_set):
                await call(lease.lost.wait, LOOK)
        finally:
            hold.end()
