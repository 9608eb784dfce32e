"""The with block around an acquire: all but the waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from .._core import AcquireCall, LockEntries, PermitsOf
from .._options.keys import distinct, encode_resource, encode_resources
from .._reports.votes import Resource
from ..errors import FastRedlockError, ResourceTakenError
from .attempt import taken
from .driver import BaseDriver, refuse_pickling
from .entered import holder_here
from .keeping.options import KeepAlive
from .lease import BaseLease

AnyLock = TypeVar("AnyLock", bound="BaseLock")


class Skipped(Exception):  # noqa: N818 - no error: it leaves no decorated function
    """The lock of a decorated call is taken, and the call is left out."""


class Manner:
    """How a lock is entered: each time by an acquire of its own.

    Other manners: reentrant.py, skipping.py.
    """

    __slots__ = ()

    def begin(self, lock: BaseLock) -> Any:
        """Return the call that takes the lock: run, or awaited, it gives a lease."""
        ttl, timeout, keep = lock._ttl, lock._timeout, lock._keep
        given = lock._resource, ttl, timeout, lock._encode, keep, True
        return AcquireCall(lock._driver, lock._lease, *given)

    def taken(self, lock: BaseLock, acquire: AcquireCall) -> Exception:
        """Return what an entry raises where others hold the lock all the time."""
        return lock._taken(acquire)

    def of_call(self) -> Manner:
        """Return how a call of a decorated function enters it."""
        return self


PLAIN = Manner()


class BaseLock(LockEntries):
    """Hold a resource for the length of a with block, or of a call; see `Lock`.

    Each entry has a lease of its own; src_cython/calls/lease.pyx decides which one is
    left. `_resource` may be a function: it gives the resource of each call of a
    decorated function.
    """

    __slots__ = (
        *("_driver", "_encode", "_keep", "_manner", "_resource", "_timeout", "_ttl"),
    )

    _driver: BaseDriver
    _resource: Any  # Resource, or a function
    _lease: type[BaseLease]

    def __init__(
        self,
        driver: BaseDriver,
        resource: Resource | Callable[..., Any],
        ttl: float | None,
        timeout: float | None,
        encode: Callable[..., Any] = encode_resource,
        keep: KeepAlive | None = None,
        manner: Manner = PLAIN,
    ) -> None:
        self._driver = driver
        self._resource = resource
        self._ttl = ttl
        self._timeout = timeout
        self._encode = encode  # of one resource, or of all of several
        self._keep = keep
        self._manner = manner

    def _taken(self, acquire: AcquireCall) -> ResourceTakenError:
        round: Any = acquire.round  # its last
        driver, resource = self._driver, acquire.resource
        hint = ""
        if driver.entered:
            hint = holder_here(driver, self._encode(resource))
        if not hint and isinstance(self._encode, PermitsOf):
            count = self._encode.count
            hint = "its one slot" if count == 1 else f"all {count} slots"
        return taken(driver.engine, resource, round, acquire.began_ns, hint)

    def _of_call(
        self: AnyLock, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AnyLock:
        """Return the lock to hold for one call of a decorated function."""
        resource, manner = self._resource, self._manner.of_call()
        if callable(resource):
            resource = resource(*args, **kwargs)
            if self._encode is encode_resources:
                resource = distinct(resource)
        elif manner is self._manner:
            return self
        given = self._ttl, self._timeout, self._encode, self._keep, manner
        return type(self)(self._driver, resource, *given)

    def _not_entered(self) -> FastRedlockError:
        count = len(self._entries or ())
        if count == 0:
            return FastRedlockError("this lock is left, and was not entered before")
        return FastRedlockError(
            f"this lock is left by a thread or task that did not enter it, and {count} "
            "others did: leave it where it was entered"
        )

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)
