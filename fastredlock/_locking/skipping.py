"""Decorated functions that are skipped while others hold their lock: `skip=True`."""

from __future__ import annotations

from functools import wraps

from ..errors import ConfigurationError
from . import awaitable, blocking

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from typing import Any

    from .._core import AcquireCall
    from .lock import BaseLock

BLOCK = "skip=True: a with block cannot be skipped; decorate a function, or acquire()"


class Skipped(Exception):  # noqa: N818 - no error: it leaves no decorated function
    """The lock of a call is taken."""


def check_skipping(timeout: float | None, reentrant: bool) -> None:
    """Raise ConfigurationError where nothing would be skipped."""
    if timeout is None:
        raise ConfigurationError(
            "skip=True: needs a timeout (0: one try); without, each call waits"
        )
    if reentrant:
        raise ConfigurationError("skip=True beside reentrant=True: give one of them")


def skipped(lock: BaseLock, acquire: AcquireCall) -> Any:
    """Return the error of a call whose lock is taken."""
    return Skipped()


def entry_of(kind: type[BaseLock], lock: BaseLock) -> Any:
    """Return the lock that one call enters."""
    given = lock._ttl, lock._timeout, lock._encode, lock._keep
    return kind(lock._driver, lock._resource, *given)


class Entry(blocking.Lock):
    """Be entered by one call; raise Skipped where it is taken."""

    __slots__ = ()

    _taken = skipped


class SkippingLock(blocking.Lock):
    """Skip a decorated call while others hold the lock: it returns None."""

    __slots__ = ()

    def _of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return entry_of(Entry, super()._of_call(args, kwargs))

    def __enter__(self) -> blocking.Lease:
        raise ConfigurationError(BLOCK)

    def __call__(self, function: blocking.Function) -> blocking.Function:
        """Return the function with the lock held for each of its calls, or skipped."""
        held = super().__call__(function)

        @wraps(function)
        def skipping(*args: Any, **kwargs: Any) -> Any:
            try:
                return held(*args, **kwargs)
            except Skipped:
                return None

        return skipping  # type: ignore[return-value]


class AwaitableEntry(awaitable.Lock):
    """As `Entry`, awaitable."""

    __slots__ = ()

    _taken = skipped


class AwaitableSkippingLock(awaitable.Lock):
    """As `SkippingLock`, of coroutine functions."""

    __slots__ = ()

    def _of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return entry_of(AwaitableEntry, super()._of_call(args, kwargs))

    async def __aenter__(self) -> awaitable.Lease:
        raise ConfigurationError(BLOCK)

    def __call__(self, function: awaitable.Function) -> awaitable.Function:
        """Return the function with the lock held for each of its calls, or skipped."""
        held = super().__call__(function)

        @wraps(function)
        async def skipping(*args: Any, **kwargs: Any) -> Any:
            try:
                return await held(*args, **kwargs)
            except Skipped:
                return None

        return skipping  # type: ignore[return-value]
