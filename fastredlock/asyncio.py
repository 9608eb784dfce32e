"""FastRedlock, awaitable: the same names for asyncio and uvloop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Never, overload

from ._core import DEFAULT_RESOURCE, AcquireCall, EachCall, acquire_in_c
from ._locking.awaitable import (
    AwaitableRate,
    Campaign,
    Candidate,
    Lease,
    Lock,
    marked_coroutine,
)
from ._locking.each import AcquireEach, ExtendEach, ReleaseEach
from ._locking.lease import ReleaseStatus
from ._locking.locks import BaseLocks, breaking, held_leases
from ._locking.loop_driver import LoopDriver
from ._locking.wanted import wanted
from ._options.keys import distinct, encode_resource, encode_resources
from ._options.settings import checked_flag, unexpected
from ._reports.health import MasterHealth, ping_of
from ._reports.votes import MasterVote
from ._steps import run_awaited
from .errors import LeaseLostError

OnLost = Callable[[Lease, LeaseLostError], object]


__all__ = ["FastRedlock", "Lease", "Lock"]


class FastRedlock(BaseLocks[Lease, Lock, AwaitableRate]):
    """Take locks that are held by a majority of independent Redis masters.

    As `fastredlock.FastRedlock`, with the same options, for the tasks of one event
    loop. They share one connection per master, and the commands of one iteration of the
    loop are sent in one write. When that loop is closed, or in a forked child, the next
    loop that uses it gets connections of its own; leases remain valid. Two running
    loops cannot share it.
    """

    __slots__ = ()

    _driver: LoopDriver
    _new_driver = LoopDriver
    _new_lease = Lease
    _new_lock = Lock
    _new_rate = AwaitableRate

    # --- taking -----------------------------------------------------------------------

    @marked_coroutine
    @acquire_in_c(Lease, encode_resource, wanted)
    def acquire(
        self,
        resource: str | bytes = DEFAULT_RESOURCE,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        keep_alive: bool | float = False,
        on_lost: OnLost | None = None,
        linger: float | None = None,
        permits: int | None = None,
        shared: bool = False,
        **unknown: Never,
    ) -> Coroutine[Any, Any, Lease | None]:
        """Take the resource; return a Lease, or None if others held it all that time.

        Waits until it is ours, for `timeout` s at most; the rest is as of
        `fastredlock.FastRedlock.acquire`. A cancelled call leaves no key. The loop
        calls `on_lost(lease, error)`.
        """
        # Its body is in src_cython/calls/call.pyx.
        raise unexpected("acquire", unknown)

    @marked_coroutine
    def acquire_all(
        self,
        resources: Iterable[str | bytes],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        keep_alive: bool | float = False,
        on_lost: OnLost | None = None,
        **unknown: Never,
    ) -> Coroutine[Any, Any, Lease | None]:
        """Take all of the resources or none of them, in one round; return one Lease.

        As `acquire`, and as `fastredlock.FastRedlock.acquire_all`.
        """
        if unknown:
            raise unexpected("acquire_all", unknown)
        given = self._driver, ttl, timeout, keep_alive, on_lost
        wants = wanted(*given, encode=encode_resources)
        return AcquireCall(self._driver, Lease, distinct(resources), *wants[:4])

    @marked_coroutine
    def acquire_each(
        self,
        resources: Iterable[str | bytes],
        *,
        ttl: float | None = None,
        shared: bool = False,
    ) -> Coroutine[Any, Any, list[Lease | None]]:
        """Try once to take each of the resources; return a Lease or None for each.

        Waits for about a round; as `fastredlock.FastRedlock.acquire_each` otherwise.
        """
        given = Lease, resources, ttl, shared
        return EachCall(self._driver, "FastRedlock.acquire_each", AcquireEach, *given)

    @marked_coroutine
    def release_each(
        self, leases: Iterable[Lease | None]
    ) -> Coroutine[Any, Any, list[ReleaseStatus]]:
        """Release each of the leases; return how each ended, in the order given.

        Waits for about a round; as `fastredlock.FastRedlock.release_each` otherwise.
        """
        name = "FastRedlock.release_each"
        return EachCall(self._driver, name, ReleaseEach, leases)

    @marked_coroutine
    def extend_each(
        self, leases: Iterable[Lease | None], ttl: float | None = None
    ) -> Coroutine[Any, Any, list[float | None]]:
        """Extend each of the leases; return the validity (s) left, None if lost.

        Waits for about a round; as `fastredlock.FastRedlock.extend_each` otherwise.
        """
        name = "FastRedlock.extend_each"
        return EachCall(self._driver, name, ExtendEach, leases, ttl)

    def lead(
        self,
        resource: str | bytes = DEFAULT_RESOURCE,
        *,
        ttl: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Campaign:
        """Lead, again and again: for `async for`, a kept lease for each term.

        As `fastredlock.FastRedlock.lead`; `aclose()` releases at once. A loss cancels
        only the body of an `async with lease` in the loop.
        """
        if callable(resource):
            encode_resource(resource)  # which refuses it
        wants = wanted(self._driver, ttl, None, True, on_lost)
        return Campaign(Candidate(self._driver, resource, wants))

    # --- other calls ------------------------------------------------------------------

    @overload
    async def holders(self, resource: str | bytes = ...) -> tuple[MasterVote, ...]: ...

    @overload
    async def holders(
        self, resource: str | bytes, *, permits: int
    ) -> tuple[tuple[MasterVote, ...], ...]: ...

    async def holders(
        self, resource: str | bytes = DEFAULT_RESOURCE, *, permits: int | None = None
    ) -> tuple[Any, ...]:
        """Return the holder of the resource, as every master sees it at this moment.

        Waits for one round timeout at most; as `fastredlock.FastRedlock.holders`.
        """
        return await run_awaited(self._holders(resource, permits))

    async def break_(self, resource: str | bytes, *, token_hash: str) -> ReleaseStatus:
        """Break a lock that is stuck, by the hash of its token; return how that ended.

        Waits for three round timeouts at most; as `fastredlock.FastRedlock.break_`.
        """
        return await run_awaited(breaking(self, resource, token_hash))

    # --- connections ------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to all masters at once; wait until each is ready or has failed.

        It takes `connect_timeout` (s) at most. Not needed: the first acquire connects.
        Raises QuorumUnreachableError if fewer than a quorum is ready.
        """
        driver = self._driver
        began_ns = driver.now_ns()
        await driver.run(driver.engine.new_connecting())
        self._check_connected(began_ns)

    async def ping(self, timeout: float = 1.0) -> tuple[MasterHealth, ...]:
        """Ask every master now whether it would vote; return one MasterHealth for each.

        Waits for at most `timeout` s; as `fastredlock.FastRedlock.ping`.
        """
        driver, round = self._driver, self._ping(timeout)
        await driver.run(round)
        return ping_of(driver.engine, round)

    async def close(self, *, release: bool = False) -> None:
        """Close all connections; wait for releases that are not confirmed yet.

        It waits 0.25 s for a master that is silent; as `fastredlock.FastRedlock.close`.
        """
        driver = self._driver
        if not checked_flag("release", release):
            return await driver.close()
        try:
            await self.release_each(held_leases(driver, Lease))
        finally:
            try:
                await driver.close()
            finally:  # what other tasks have taken meanwhile
                await self.release_each(held_leases(driver, Lease))

    async def __aenter__(self) -> FastRedlock:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
