"""The with block around an acquire: all but the waiting.

A lock is entered each time by an acquire of its own; or by joining the block of the
same thread, greenlet or task that it is in (`reentrant=True`); or, as a decorator, by
calls that are skipped while others hold it (`skip=True`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn, TypeVar

from .._core import (
    DEFAULT_RESOURCE,
    AcquireCall,
    BlockExit,
    LockFields,
    PermitsOf,
    check_acquire,
    draw_fraction,
)
from .._options.keys import distinct, encode_resource, encode_resources
from .._options.retry import delay_of
from .._reports.log import info, warn
from .._reports.votes import Resource
from ..errors import (
    AcquireError,
    ConfigurationError,
    FastRedlockError,
    QuorumUnreachableError,
    ValidityExhaustedError,
)
from .attempt import failure
from .blocks import holder_here, own_block
from .driver import BaseDriver, refuse_pickling
from .keeper import KeepAlive
from .lease import BaseLease

AnyLock = TypeVar("AnyLock", bound="BaseLock")


BLOCK = "skip=True: a with block cannot be skipped; decorate a function, or acquire()"


class Skip(Enum):
    """What enters a lock with `skip=True`: a block, or one call of a function."""

    BLOCK = "block"
    CALL = "call"


class Skipped(Exception):  # noqa: N818 - no error: it leaves no decorated function
    """The lock of a decorated call is taken, and the call is left out."""


class BaseLock(LockFields):
    """Hold a resource for the length of a with block, or of a call; see `Lock`.

    Each entry has a lease of its own; src_cython/calls/lease.pyx decides which one is
    left. `_resource` may be a function: it gives the resource of each call of a
    decorated function.
    """

    __slots__ = (
        *("_driver", "_encode", "_is_reentrant", "_keep", "_resource", "_skip"),
        *("_timeout", "_ttl"),
    )

    _driver: BaseDriver
    _resource: Any  # Resource, or a function
    _lease: type[BaseLease]
    _is_reentrant: bool
    _skip: Skip | None

    def __init__(
        self,
        driver: BaseDriver,
        resource: Resource | Callable[..., Any],
        ttl: float | None,
        timeout: float | None,
        encode: Callable[..., Any] = encode_resource,
        keep: KeepAlive | None = None,
        reentrant: bool = False,
        skip: Skip | None = None,
    ) -> None:
        check_acquire(driver, resource, ttl, timeout, encode)
        if keep is not None:
            keep.check(driver, ttl)
        self._driver = driver
        self._resource = resource
        self._ttl = ttl
        self._timeout = timeout
        self._encode = encode  # of one resource, or of all of several
        self._keep = keep
        self._is_reentrant = reentrant
        self._skip = skip

    def _acquire(self, at_exit: BlockExit | None) -> AcquireCall:
        """Return the call that takes the lock, for a block that `at_exit` ends."""
        if self._skip is not None and self._skip is Skip.BLOCK:
            raise ConfigurationError(BLOCK)
        given = self._resource, self._ttl, self._timeout, self._encode, self._keep
        return AcquireCall(self._driver, self._lease, *given, self, at_exit)

    def _joined(self) -> tuple[Any, Any] | None:
        """Return the lease of the block of its caller, which a block joins; or None.

        And the ttl by which to extend it before, if more is asked for than is left.
        """
        if not self._is_reentrant:
            return None
        driver, resource = self._driver, self._resource
        ttl: Any = self._ttl
        if resource is DEFAULT_RESOURCE:
            resource = driver.settings.resource
        lease = own_block(driver, self._encode(resource))
        if lease is None:
            return None
        if ttl is not None:
            ttl = driver.settings.terms(ttl)  # or an error
        made = lease._round.lease_state
        if self._keep is not None and (made is None or not made.was_kept):
            self._keep.begin(lease)
        is_more = ttl is not None and ttl.ttl_ms / 1000 > lease.remaining()
        return lease, ttl if is_more else None

    def _refused(self, acquire: AcquireCall) -> Exception:
        """Return what an entry raises where others hold the lock all the time."""
        error = self._taken(acquire)
        if self._skip is None:
            return error
        info("skipped: %s", error)  # Celery calls the task a success
        return Skipped()

    def _taken(self, acquire: AcquireCall) -> AcquireError:
        round: Any = acquire.round  # its last
        driver, resource = self._driver, acquire.resource
        hint = ""
        if driver.entered:
            hint = holder_here(driver, self._encode(resource))
        if not hint and isinstance(self._encode, PermitsOf):
            count = self._encode.count
            hint = "its one slot" if count == 1 else f"all {count} slots"
        began_ns = acquire.began_ns
        return failure(driver.engine, resource, round, round.attempt, began_ns, hint)

    def _of_call(
        self: AnyLock, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AnyLock:
        """Return the lock to hold for one call of a decorated function."""
        resource, skip = self._resource, None if self._skip is None else Skip.CALL
        if callable(resource):
            resource = resource(*args, **kwargs)
            if self._encode is encode_resources:
                resource = distinct(resource)
        elif skip is None:
            return self
        given = self._ttl, self._timeout, self._encode, self._keep, self._is_reentrant
        return type(self)(self._driver, resource, *given, skip)

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
