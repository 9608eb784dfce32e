"""FastRedlock, awaitable: the same names for asyncio and uvloop."""

from __future__ import annotations

from asyncio import get_running_loop, sleep
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from ._awaitable import Acquisition, AcquisitionOfAll, Lease, Lock
from ._batch import AcquireEach, ReleaseEach
from ._core import (
    AsyncioDriver,
    Batch,
    ClosedError,
    Round,
    RoundFuture,
    StateError,
    now_ns,
)
from ._locks import CLOSE_WITHIN_NS, BaseLocks
from ._settings import distinct
from .errors import FastRedlockError, InternalError
from .lease import ReleaseStatus
from .votes import MasterVote, Resource, holders_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Coroutine, Iterable
    from typing import Any

__all__ = ["FastRedlock", "Lease", "Lock"]

CLOSED = "this FastRedlock is closed"


class FastRedlock(BaseLocks):
    """Take locks that are held by a majority of independent Redis masters.

    As `fastredlock.FastRedlock`, whose options it shares, for the tasks of one event
    loop: they share one connection per master, and what they ask in one turn of the
    loop goes out in one write. When that loop is closed, or in a forked child, the next
    loop that uses it gets connections of its own; to use it from a second loop before
    is an error. Leases stay what they are.
    """

    __slots__ = ()

    # --- taking -----------------------------------------------------------------------

    def acquire(
        self,
        resource: str | bytes | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, Lease | None]:
        """Take the resource; return a Lease, or None if others held it all that time.

        Waits until it is ours, or for `timeout` s; 0 tries once. Raises
        QuorumUnreachableError if too few masters could answer in several rounds in a
        row or when the timeout ends so, ValidityExhaustedError if a round used the
        validity up. Whatever leaves this call by exception, a cancellation too, is
        rolled back first.
        """
        return Acquisition(self, resource).run(ttl, timeout)

    def acquire_all(
        self,
        resources: Iterable[str | bytes],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, Lease | None]:
        """Take all of the resources or none of them, in one round; return one Lease.

        As `acquire` otherwise. Each master takes all keys in one step or none, so two
        callers that name the same resources in any order do not lock each other out.
        The lease's `resource` is the tuple of resources, each once.
        """
        return AcquisitionOfAll(self, distinct(resources)).run(ttl, timeout)

    async def acquire_each(
        self, resources: Iterable[str | bytes], *, ttl: float | None = None
    ) -> list[Lease | None]:
        """Try once to take each of the resources; return a Lease or None for each.

        In the order given; independent of each other, each with its own token, verdict
        and validity, but with one write per master for many: the way to take hundreds.
        None: taken, by others or by the same resource earlier in the list. Waits for
        about a round. Raises QuorumUnreachableError or ValidityExhaustedError if any of
        them ended so; then, or if anything else leaves this call by exception, all are
        rolled back first.
        """
        driver, acquires = self._loop_driver(), AcquireEach(self, resources, ttl)
        try:
            await self._run(driver, acquires.batch)
            return acquires.end(Lease)
        except BaseException:
            self._abandon(driver, acquires.batch)
            raise

    async def release_each(self, leases: Iterable[Lease | None]) -> list[ReleaseStatus]:
        """Release each of the leases; return how each ended, in the order given.

        As `Lease.release`, with one write per master for many. None, as acquire_each
        returns it, is GONE, like a lease that was released before. Waits for about a
        round; if an exception leaves this call, all releases are sent all the same.
        """
        driver, releases = self._loop_driver(), ReleaseEach(self)
        try:
            await self._run(driver, releases.begin(leases))
            return releases.end()
        except BaseException:
            self._abandon(driver, releases.rest())
            raise

    def lock(
        self,
        resource: str | bytes | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Lock:
        """Return a context manager for `async with`: it holds, or raises on entering.

        As `acquire`, with ResourceTakenError instead of None: the body never runs
        without the lock.
        """
        return Lock(self, resource, ttl, timeout)

    # --- other questions --------------------------------------------------------------

    def adopt(
        self, resource: Resource, token: bytes | str, *, ttl: float | None = None
    ) -> Lease:
        """Return a Lease for what another process took and handed over by its token.

        Does no I/O and is not awaited. It can be released and extended (by `ttl`, s);
        nothing is known of its validity before the first extend, so `remaining()` is
        0.0 until then. What came of acquire_all has a tuple of resources: pass that.
        """
        return Lease(self, resource, self._new_adopted(resource, token, ttl))

    async def holders(
        self, resource: str | bytes | None = None
    ) -> tuple[MasterVote, ...]:
        """Return who holds the resource, as every master sees it at this moment.

        One `MasterVote` per configured master, in that order: TAKEN with `token_hash`
        and `remaining_ms`, or GRANTED where nobody holds it. Waits until all have
        answered, one round timeout at most. For people: by the time it is read, it may
        not be so any more.
        """
        round = self._new_inspection(resource)
        await self._run(self._loop_driver(), round)
        return holders_of(self._engine, round)

    # --- connections ------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to all masters at once; waits until all are decided.

        Up to `connect_timeout` (s). Not needed: the first acquire connects. Raises
        QuorumUnreachableError if fewer than a quorum is ready.
        """
        began_ns = now_ns()
        await self._run(self._loop_driver(), self._engine.new_connecting())
        self._check_connected(began_ns)

    async def close(self) -> None:
        """Close all connections; waits for releases not yet confirmed.

        For 0.1 s where a master is silent. Acquires of other tasks end unreachable, and
        are rolled back. Leases are not released: release them first. A release that
        comes later opens connections of its own for it; every other call raises
        FastRedlockError then.
        """
        if self._engine.is_closed:
            return
        driver = self._loop_driver()
        try:
            driver.refuse(CLOSE_WITHIN_NS)
            while not driver.is_settled():  # noqa: ASYNC110
                await sleep(0.001)
        finally:
            driver.shut()

    async def __aenter__(self) -> FastRedlock:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        # Collected by any thread: only the loop's may tell the loop.
        driver = getattr(self, "_driver", None)
        if driver is None:
            return
        if driver.is_over():
            driver.retire()
            return
        with suppress(RuntimeError):  # the loop was closed in this moment
            driver.loop.call_soon_threadsafe(driver.leave)

    # --- for leases -------------------------------------------------------------------

    def _loop_driver(self) -> AsyncioDriver:
        """Return the running loop's: a call asks before it does anything else."""
        driver = self._driver
        try:
            if driver is not None and driver.is_here():
                return driver
            loop = get_running_loop()
        except RuntimeError:
            raise FastRedlockError(
                "the asyncio API used without a running loop: await it inside "
                "asyncio.run(), or use fastredlock.FastRedlock, which blocks"
            ) from None
        return self._new_driver(driver, loop)

    def _new_driver(
        self, old: AsyncioDriver | None, loop: AbstractEventLoop
    ) -> AsyncioDriver:
        if old is not None and not old.is_over():
            raise FastRedlockError(
                "this FastRedlock belongs to another event loop, which is still open: "
                "make one for each loop"
            )
        try:
            driver = AsyncioDriver(self._engine, loop)
        except OSError as error:
            raise FastRedlockError(f"cannot be watched by the loop: {error}") from error
        if old is not None:
            old.retire()
        self._driver = driver
        return driver

    def _submit(self, driver: AsyncioDriver, work: Round | Batch) -> RoundFuture:
        try:
            return driver.submit(work)
        except ClosedError as error:
            raise FastRedlockError(CLOSED) from error
        except StateError as error:
            self._abandon(driver, work)
            raise InternalError(f"please report this: {error}") from error

    async def _run(self, driver: AsyncioDriver, work: Round | Batch) -> None:
        try:
            if await self._submit(driver, work) > self._warned:
                self._log_warnings()
        except BaseException:
            self._abandon(driver, work)
            raise

    def _abandon(self, driver: AsyncioDriver, work: Round | Batch) -> None:
        current = self._driver
        if driver is current:
            driver.abandon(work)
        elif current is not None:
            # The loop was closed before its task had ended, which is collected now, by
            # any thread; the engine is another loop's.
            with suppress(RuntimeError):
                current.loop.call_soon_threadsafe(current.abandon, work)
