"""One acquire under way, and the with block around one: all but the waiting."""

from __future__ import annotations

from .._core import AcquisitionFields, LockEntries
from .._options.keys import encode_resource
from .._options.settings import timeout_to_ns
from .._reports.votes import votes_of
from ..errors import (
    ConfigurationError,
    FastRedlockError,
    InternalError,
    ResourceTakenError,
)
from .attempt import attempts
from .driver import refuse_pickling

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, TypeVar

    from .._core import Round
    from .._reports.votes import Resource
    from .driver import BaseDriver
    from .lease import BaseLease

    AnyLock = TypeVar("AnyLock", bound="BaseLock")
    Entries = tuple[object, BaseLease, "Entries | None"]  # who, by which, before it


class BaseAcquisition(AcquisitionFields):
    """One acquire under way; it keeps its last round, so that it can be undone."""

    __slots__ = ()

    _driver: BaseDriver
    encode: Callable[[Any], bytes | tuple[bytes, ...]] = staticmethod(encode_resource)
    to_ns = staticmethod(timeout_to_ns)

    def steps(
        self, ttl: float | None, timeout: float | None, first: Round | None = None
    ) -> Iterator[Round | float]:
        """Check the arguments, before any I/O; return the attempts to drive.

        `first`: the first one was run already, and this was its round.
        """
        driver = self._driver
        settings = driver.settings
        return attempts(
            driver.engine,
            self._resource,
            self.encode(self._resource),
            settings.default_terms if ttl is None else settings.terms(ttl),
            settings.new_token,
            settings.retry,
            timeout_to_ns(timeout),
            self.began_ns,
            first,
        )

    def taken_error(self) -> ResourceTakenError:
        """Return the error of an acquire that ended without a lease."""
        round = self.round
        if round is None:
            raise InternalError("an acquire without a round")
        return ResourceTakenError(
            self._resource,
            votes_of(self._driver.engine, round),
            round.attempt,
            (round.closed_ns - self.began_ns) / 1e9,
        )


def named(resource: str | bytes) -> str | bytes:
    """Return the resource that the function of a decorated one has returned."""
    if resource is None:  # which would be the default resource, for all calls
        raise ConfigurationError(
            "resource=None: its function has to return str or bytes for each call"
        )
    return resource


class BaseLock(LockEntries):
    """Hold a resource for the length of a with block, or of a call; see `Lock`.

    Each entry has a lease of its own; src_cython/drivers/lock_entries.pyx says which
    one is left. `_resource` may be a function: it gives the resource of each call of a
    decorated function.
    """

    __slots__ = ("_driver", "_resource", "_timeout", "_ttl")

    _driver: BaseDriver
    _resource: Any  # Resource | None, or a function
    _named: Callable[[Any], Any] = staticmethod(named)
    _entries: Entries | None  # of with blocks that were not left, the last one first

    def __init__(
        self,
        driver: BaseDriver,
        resource: Resource | Callable[..., Any] | None,
        ttl: float | None,
        timeout: float | None,
    ) -> None:
        self._driver = driver
        self._resource = resource
        self._ttl = ttl
        self._timeout = timeout

    def _of_call(
        self: AnyLock, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AnyLock:
        """Return the lock to hold for one call of a decorated function."""
        if not callable(self._resource):
            return self
        resource = self._named(self._resource(*args, **kwargs))
        return type(self)(self._driver, resource, self._ttl, self._timeout)

    def _not_entered(self) -> FastRedlockError:
        count, entries = 0, self._entries
        while entries is not None:
            count, entries = count + 1, entries[2]
        if count == 0:
            return FastRedlockError("this lock is left, and was not entered before")
        return FastRedlockError(
            f"this lock is left by a thread or task that did not enter it, and {count} "
            "others did: leave it where it was entered"
        )

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)
