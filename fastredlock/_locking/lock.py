"""The with block around an acquire: all but the waiting.

A lock is entered each time by an acquire of its own; or by joining the block of the
same thread, greenlet or task that it is in (`reentrant=True`); or, as a decorator, by
calls that are skipped while others hold it (`skip=True`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

from .._core import (
    DEFAULT_RESOURCE,
    AcquireCall,
    Batch,
    BlockExit,
    LockFields,
    PermitsOf,
    Round,
    SharedOf,
    check_acquire,
    draw_fraction,
)
from .._options.keys import distinct, encode_resources
from .._options.retry import delay_of
from .._reports.log import info, warn
from .._reports.votes import Resource
from .._steps import Steps
from ..errors import (
    AcquireError,
    ConfigurationError,
    FastRedlockError,
    QuorumUnreachableError,
    ReentryError,
    ValidityExhaustedError,
)
from .attempt import failure, looks_at
from .blocks import held_for, holder_here, own_block
from .driver import BaseDriver, refuse_pickling
from .lease import BaseLease
from .wanted import Skip, Wanted

AnyLock = TypeVar("AnyLock", bound="BaseLock")


BLOCK = "skip=True: a with block cannot be skipped; decorate a function, or acquire()"


class Skipped(Exception):  # noqa: N818 - no error: it leaves no decorated function
    """The lock of a decorated call is taken, and the call is left out."""


class BaseLock(LockFields):
    """Hold a resource for the length of a with block, or of a call; see `Lock`.

    Each entry has a lease of its own; src_cython/calls/lease.pyx decides which one is
    left. `_resource` may be a function: it gives the resource of each call of a
    decorated function.
    """

    __slots__ = ("_driver", "_resource", "_wanted")

    _driver: BaseDriver
    _resource: Any  # Resource, or a function
    _lease: type[BaseLease]

    def __init__(
        self,
        driver: BaseDriver,
        resource: Resource | Callable[..., Any],
        wanted: Wanted,
    ) -> None:
        check_acquire(driver, resource, *wanted[:3])
        if wanted.keep is not None:
            wanted.keep.check(driver, wanted.ttl)
        self._driver = driver
        self._resource = resource
        self._wanted = wanted

    def _acquire(self, at_exit: BlockExit | None) -> AcquireCall:
        """Return the call that takes the lock, for a block that `at_exit` ends."""
        ttl, timeout, encode, keep, _, skip = self._wanted
        if skip is not None and skip is Skip.BLOCK:  # an Enum's member takes 0.1 us
            raise ConfigurationError(BLOCK)
        given = self._resource, ttl, timeout, encode, keep
        return AcquireCall(self._driver, self._lease, *given, self, at_exit)

    def _joined(self) -> tuple[Any, Any] | None:
        """Return the lease of the block of its caller, which a block joins; or None.

        And the ttl by which to extend it before, if more is asked for than is left.
        """
        wanted = self._wanted
        if not wanted.is_reentrant:
            return None
        driver, resource, ttl = self._driver, self._resource, wanted.ttl
        if resource is DEFAULT_RESOURCE:
            resource = driver.settings.resource
        lease = own_block(driver, wanted.encode(resource))
        if lease is None:
            return None
        if ttl is not None:
            ttl = driver.settings.terms(ttl)  # or an error
        if lease._round.is_shared and not isinstance(wanted.encode, SharedOf):
            raise ReentryError(resource, held_for(lease), is_upgrade=True)
        made = lease._round.lease_state
        if wanted.keep is not None and (made is None or not made.was_kept):
            wanted.keep.begin(lease)
        is_more = ttl is not None and ttl.ttl_ms / 1000 > lease.remaining()
        return lease, ttl if is_more else None

    def _refusing(self, acquire: AcquireCall) -> Steps[Exception]:
        """Return what an entry raises where others hold the lock all the time.

        A caller that has waited is told by whom: the masters are asked once more.
        """
        looks: list[Round] = []
        driver, round = self._driver, acquire.round
        if acquire.timeout != 0 and round is not None:
            looks = looks_at(driver.engine, acquire.encode(acquire.resource), round)
        if looks:
            with suppress(FastRedlockError):  # closed meanwhile
                yield partial(driver.run, Batch([*looks]))
        error = self._taken(acquire, looks)
        if self._wanted.skip is None:
            return error
        info("skipped: %s", error)  # Celery calls the task a success
        return Skipped()

    def _taken(self, acquire: AcquireCall, looks: Sequence[Round] = ()) -> AcquireError:
        round: Any = acquire.round  # its last
        driver, resource = self._driver, acquire.resource
        hint, encode = "", self._wanted.encode
        if driver.entered or looks:
            hint = holder_here(driver, encode(resource), looks)
        if not hint and isinstance(encode, PermitsOf):
            count = encode.count
            hint = "its one slot" if count == 1 else f"all {count} slots"
        given = round, round.attempt, acquire.began_ns, hint, looks
        return failure(driver.engine, resource, *given)

    def _of_call(
        self: AnyLock, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AnyLock:
        """Return the lock to hold for one call of a decorated function."""
        resource, wanted = self._resource, self._wanted
        if callable(resource):
            resource = resource(*args, **kwargs)
            if wanted.encode is encode_resources:
                resource = distinct(resource)
        elif wanted.skip is None:
            return self
        if wanted.skip is not None:
            wanted = wanted._replace(skip=Skip.CALL)
        return type(self)(self._driver, resource, wanted)

    def _not_entered(self) -> FastRedlockError:
        count = len(self._entries)
        if count == 0:
            return FastRedlockError("this lock is left, and was not entered before")
        return FastRedlockError(
            f"this lock is left by a thread or task that did not enter it, and {count} "
            "others did: leave it where it was entered"
        )

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)


# --- leaders --------------------------------------------------------------------------
# A campaign waits in turn for a lock that is kept, again and again, through outages of
# the masters as well. It yields the lease; the body leads. At its end, or before the
# next term, the lease is released.

# A quorum answers too late also where this process was stopped meanwhile.
OUTAGE = (QuorumUnreachableError, ValidityExhaustedError)


def delay_in(outage: int, lock: BaseLock, error: Exception) -> float:
    """Return the delay (s) before the next try in an outage; log the first one."""
    if outage == 1:
        warn("lead, tried again until a quorum answers in time: %s", error)
    retry = lock._driver.settings.retry
    return delay_of(retry, retry.after_unreachable(draw_fraction()))
