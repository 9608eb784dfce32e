"""The with block around an acquire: all but the waiting.

A lock is entered in one of three manners: each time by an acquire of its own; by
joining the block of the same thread, greenlet or task that it is in (`reentrant=True`);
or, as a decorator, by calls that are skipped while others hold it (`skip=True`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NoReturn, TypeVar

from .._core import DEFAULT_RESOURCE, AcquireCall, LockEntries, PermitsOf, Terms
from .._options.keys import distinct, encode_resource, encode_resources
from .._reports.log import info
from .._reports.votes import Resource
from ..errors import ConfigurationError, FastRedlockError, ResourceTakenError
from .attempt import OURS, entered_block, holder_here, taken
from .driver import BaseDriver, refuse_pickling
from .keeper import KeepAlive
from .lease import BaseLease

AnyLock = TypeVar("AnyLock", bound="BaseLock")


class Skipped(Exception):  # noqa: N818 - no error: it leaves no decorated function
    """The lock of a decorated call is taken, and the call is left out."""


class Manner:
    """How a lock is entered: each time by an acquire of its own."""

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


# --- locks that their holder may enter again ------------------------------------------


class Reentrant(Manner):
    """Join the block of the same resource that the caller is in, if there is one.

    The outermost block takes and releases; one inside has its lease. Where it asks for
    more ttl than is left, the lease is extended; NotExtendedError and LeaseLostError of
    that are raised before its body.
    """

    __slots__ = ()

    def begin(self, lock: BaseLock) -> Any:
        """Return the call that takes the lock, or joins the block."""
        lease, ttl = joined(lock), lock._ttl
        if lease is None:
            return super().begin(lock)
        if ttl is not None:
            lock._driver.settings.terms(ttl)  # or an error
        return Join(lease, ttl)


REENTRANT = Reentrant()


class Join:
    """Enter a block inside another one of its caller; left, it releases nothing.

    It is the call and the entry: each one its own, for an entry is taken off by what it
    holds.
    """

    __slots__ = ("_lease", "_ttl")

    def __init__(self, lease: Any, ttl: Any) -> None:
        self._lease, self._ttl = lease, ttl

    def run(self) -> Join:
        """Extend the lease where that is asked for; block for one round then."""
        if asks_for_more(self._lease, self._ttl):
            self._lease.extend(self._ttl)
        return self

    def __await__(self) -> Generator[Any, None, Join]:
        if asks_for_more(self._lease, self._ttl):
            yield from self._lease.extend(self._ttl).__await__()
        return self


def joined(lock: BaseLock) -> Any:
    """Return the lease by which the caller is in a block of this resource, or None."""
    driver, resource = lock._driver, lock._resource
    if resource is DEFAULT_RESOURCE:
        resource = driver.settings.resource
    block = entered_block(driver, lock._encode(resource))
    if block is None or block.whose is not OURS:
        return None
    lease = block.lease
    made = lease._round.lease_state
    if lock._keep is not None and (made is None or made.kept is None):
        lock._keep.begin(lease)
    return lease


def asks_for_more(lease: Any, ttl: Any) -> bool:
    """Return whether an inner entry asks for more than the validity that is left."""
    if isinstance(ttl, Terms):
        ttl = ttl.ttl_ms / 1000
    return ttl is not None and ttl > lease.remaining()


# --- calls that are skipped -----------------------------------------------------------

BLOCK = "skip=True: a with block cannot be skipped; decorate a function, or acquire()"


def skipping(timeout: float | None, reentrant: bool) -> Manner:
    """Return the manner; ConfigurationError where nothing would be skipped."""
    if timeout is None:
        raise ConfigurationError(
            "skip=True: needs a timeout (0: one try); without, each call waits"
        )
    if reentrant:
        raise ConfigurationError("skip=True beside reentrant=True: give one of them")
    return SKIPPING


class Skipping(Manner):
    """Refuse a with block; a decorated call is skipped where the lock is taken."""

    __slots__ = ()

    def begin(self, lock: object) -> NoReturn:
        """Raise ConfigurationError."""
        raise ConfigurationError(BLOCK)

    def of_call(self) -> Manner:
        """Return how one call enters it."""
        return SKIPPED_CALL


class SkippedCall(Manner):
    """Be entered by one call, which is skipped where the lock is taken."""

    __slots__ = ()

    def taken(self, lock: Any, acquire: Any) -> Exception:
        """Return what skips the call, and log it: Celery calls the task a success."""
        info("skipped: %s", lock._taken(acquire))
        return Skipped()


SKIPPING = Skipping()
SKIPPED_CALL = SkippedCall()


# --- functions that a lock decorates --------------------------------------------------

OUTSIDE = "its body would run without the lock"


def check_function(function: object, resource: object) -> None:
    """Raise ConfigurationError where a call would not hold a blocking lock."""
    import inspect  # 10 ms where nothing else has

    check_decorated(function, resource)
    if is_of(inspect.iscoroutinefunction, function):
        raise ConfigurationError(
            f"{name_of(function)} is a coroutine function: {OUTSIDE}; use "
            "fastredlock.asyncio.FastRedlock"
        )


def check_coroutine_function(function: object, resource: object) -> None:
    """Raise ConfigurationError where a call would not hold an awaitable lock."""
    import inspect

    check_decorated(function, resource)
    if not is_of(inspect.iscoroutinefunction, function):
        raise ConfigurationError(
            f"{name_of(function)} is no coroutine function: use "
            "fastredlock.FastRedlock, or make it one (async def)"
        )


def check_decorated(function: object, resource: object) -> None:
    """Raise ConfigurationError where no lock could be held for the calls of it."""
    import inspect

    refusal = None
    if isinstance(function, classmethod | staticmethod | property):
        refusal = f"is a {type(function).__name__}: put that above the lock"
    elif isinstance(function, type) or not callable(function):
        refusal = (
            "is no function: a lock decorates functions, methods and coroutine "
            "functions, as @locks.lock(...), with its parentheses"
        )
    elif is_of(inspect.isgeneratorfunction, function):
        refusal = f"is a generator: {OUTSIDE}; put `with locks.lock(...)` into it"
    elif is_of(inspect.isasyncgenfunction, function):
        refusal = f"is a generator: {OUTSIDE}; put `async with locks.lock(...)` into it"
    if refusal is not None:
        raise ConfigurationError(f"{name_of(function)} {refusal}")
    if inspect.iscoroutinefunction(resource):
        raise ConfigurationError(
            f"resource of {name_of(function)}: a coroutine function; give a plain one"
        )


def is_of(kind: Callable[[object], bool], function: object) -> bool:
    """Return whether a function, or the call of an object, is of a kind."""
    return kind(function) or kind(type(function).__call__)


def name_of(function: object) -> str:
    """Return a function's name, for a message."""
    name = getattr(function, "__qualname__", None)
    return f"{name}()" if isinstance(name, str) else repr(function)
