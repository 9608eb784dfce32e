"""Leader election: the lock is held by a kept lease, again and again.

A campaign waits in turn for the lock, through outages of the masters as well. It yields
the lease; the body leads. At its end, or before the next term, the lease is released.
"""

from __future__ import annotations

from collections.abc import Generator

from .._core import draw_fraction
from .._options.retry import delay_of
from .._reports.log import warn
from ..errors import LeaseLostError, QuorumUnreachableError, ValidityExhaustedError
from . import blocking
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


def delay_in(outage: int, lock: BaseLock, error: Exception) -> float:
    """Return the delay (s) before the next try in an outage; log the first one."""
    if outage == 1:
        warn("lead, tried again until a quorum answers in time: %s", error)
    retry = lock._driver.settings.retry
    return delay_of(retry, retry.after_unreachable(draw_fraction()))
