"""Leader election: the lock is held by a kept lease, again and again.

A campaign waits in turn for the lock, through outages of the masters as well. It yields
the lease; the body leads. At its end, or before the next term, the lease is released.
"""

from __future__ import annotations

from contextlib import suppress

from .._core import draw_fraction
from .._options.retry import delay_of
from .._reports.log import warn
from ..errors import LeaseLostError, QuorumUnreachableError, ValidityExhaustedError
from . import awaitable, blocking
from .lock import PLAIN

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Generator

    from .lock import BaseLock

# A quorum answers too late also where this process was stopped meanwhile.
OUTAGE = (QuorumUnreachableError, ValidityExhaustedError)


def leading(lock: blocking.Lock) -> Generator[blocking.Lease, None, None]:
    """Yield a lease for each term; closed, it releases that of the last one."""
    outage = 0
    while True:
        try:
            with lock as lease:
                outage = 0
                yield lease
        except LeaseLostError:  # within the term, which has ended now
            continue
        except OUTAGE as error:
            outage += 1
            lock._driver.sleep(delay_in(outage, lock, error))


class Candidate(awaitable.Lock):
    """Hold a lock; a loss does not cancel the task, for it would leave the loop."""

    __slots__ = ()

    async def __aenter__(self) -> awaitable.Lease:
        caller = self._driver.here().caller()
        lease: awaitable.Lease = await PLAIN.begin(self)  # it waits as long as it takes
        self._entries = (caller, lease, self._entries)
        return lease


class Campaign:
    """Lead again and again: `async for` gets a lease for each term; see `lead`.

    A term ends where the next one begins, and with the loop, however that is left:
    the release is sent at once, and not waited for. `aclose()` waits for it.
    """

    __slots__ = ("_leads", "_lock")

    def __init__(self, lock: Candidate) -> None:
        self._lock = lock
        self._leads = False

    def __aiter__(self) -> Campaign:
        return self

    async def __anext__(self) -> awaitable.Lease:
        await self.aclose()
        outage = 0
        while True:
            try:
                lease = await self._lock.__aenter__()
                self._leads = True
                return lease
            except OUTAGE as error:
                outage += 1
                delay = delay_in(outage, self._lock, error)
            await self._lock._driver.here().sleep(delay)

    async def aclose(self) -> None:
        """End the term, if there is one; waits until its lease is released."""
        if self._leads:
            self._leads = False
            with suppress(LeaseLostError):
                await self._lock.__aexit__(None, None, None)

    def __del__(self) -> None:
        # The loop was left. The first step of an exit sends the release.
        if getattr(self, "_leads", False):
            leaving = self._lock.__aexit__(None, None, None)
            with suppress(Exception):  # StopIteration: it was released; no loop runs
                leaving.send(None)
            leaving.close()


def delay_in(outage: int, lock: BaseLock, error: Exception) -> float:
    """Return the delay (s) before the next try in an outage; log the first one."""
    if outage == 1:
        warn("lead, tried again until a quorum answers in time: %s", error)
    retry = lock._driver.settings.retry
    return delay_of(retry, retry.after_unreachable(draw_fraction()))
