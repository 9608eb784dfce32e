"""pottery's blocking Redlock, and its decorator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from time import monotonic
from typing import Any, Literal, TypeVar

from ... import FastRedlock
from ..._options.functions import closed_later, is_of
from ..._steps import run
from ._common import Common, DefaultMaster, logger
from .exceptions import PrimitiveError, QuorumNotAchieved

__all__ = ["Redlock", "synchronize"]

F = TypeVar("F", bound=Callable[..., Any])
Self = TypeVar("Self", bound="Redlock")

_LATER = iscoroutinefunction, isgeneratorfunction, isasyncgenfunction


class Redlock(Common):
    """Take one lock on a majority of redis-py clients; see pottery for how it is used.

    Times are seconds. The settings of the clients in `masters` are copied, their
    sockets are not used; without, there is one master, REDIS_URL or localhost.
    """

    __slots__ = ()

    _DEFAULT_MASTERS = frozenset(
        {DefaultMaster(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))}
    )
    _SAMPLE = "redlock"
    _maker = staticmethod(lambda: FastRedlock)

    def acquire(
        self,
        *,
        blocking: bool = True,
        timeout: float = -1,
        raise_on_redis_errors: bool | None = None,
    ) -> bool:
        """Return whether it is ours; wait for `timeout` s (-1: no limit) if blocking.

        Raises QuorumIsImpossible, where errors are to be raised, as soon as a majority
        of the masters fails.
        """
        granted = list[Any]()
        try:
            return run(self._acquire(blocking, timeout, raise_on_redis_errors, granted))
        except BaseException:
            self._undo(granted)
            raise

    def _undo(self, granted: list[Any]) -> None:
        for lease in filter(None, granted):
            lease.release()
            if self._lease is lease:
                self._lease = None

    def locked(self, *, raise_on_redis_errors: bool | None = None) -> float:
        """Return how long it is still ours (s), or 0 where a majority has it no more.

        Blocks until every master was asked.
        """
        return run(self._left(raise_on_redis_errors))

    def extend(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Make it ours for `auto_release_time` from now on, `num_extensions` times."""
        run(self._extend(raise_on_redis_errors))

    def release(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Release it, or raise ReleaseUnlockedLock where it was not ours any more."""
        run(self._release(raise_on_redis_errors))

    def __enter__(self: Self) -> Self:
        held = self._lease
        try:
            if self.acquire(
                blocking=self.context_manager_blocking,
                timeout=self.context_manager_timeout,
            ):
                return self
        except BaseException:
            if self._lease not in (None, held):  # a signal came behind acquire()
                self._undo([self._lease])
            raise
        raise QuorumNotAchieved(self.key, self.masters)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> Literal[False]:
        try:
            self.release()
        except PrimitiveError:
            if exc_value is None:
                raise
        return False


def synchronize(
    *,
    key: str,
    masters: Iterable[object] = frozenset(),
    raise_on_redis_errors: bool = False,
    auto_release_time: float = Redlock._AUTO_RELEASE_TIME,
    blocking: bool = True,
    timeout: float = -1,
) -> Callable[[F], F]:
    """Return a decorator: each call of the function holds a Redlock of its own.

    Raises TypeError for one that would not run under the lock, of a coroutine or a
    generator; where another decorator hides that, its call does.
    """
    masters = frozenset(masters)

    def decorator(func: F) -> F:
        refused = (
            f"{func.__qualname__}() is a coroutine function or a generator function: "
            "it would run after the release; use `with Redlock(...)`, or `async with "
            "AIORedlock(...)`, inside it"
        )
        if any(is_of(kind, func) for kind in _LATER):
            raise TypeError(refused)

        @wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            redlock = Redlock(
                key=key,
                masters=masters,
                raise_on_redis_errors=raise_on_redis_errors,
                auto_release_time=auto_release_time,
                context_manager_blocking=blocking,
                context_manager_timeout=timeout,
            )
            began = monotonic()
            held: float | None = None
            try:
                with redlock:
                    held = monotonic()
                    if closed_later(result := func(*args, **kwargs)):  # it was wrapped
                        raise TypeError(refused)
                    return result
            finally:
                _log_synchronize(func, redlock.key, began, held)

        return wrapper  # type: ignore[return-value]

    return decorator


def _log_synchronize(
    func: Callable[..., Any], key: str, began: float, held: float | None
) -> None:
    now = monotonic()
    waited_ms = round(((now if held is None else held) - began) * 1000)
    waited = f"{func.__qualname__}() waited for {key} for {waited_ms} ms"
    if held is None:
        logger.info("%s; never acquired lock", waited)
    else:
        logger.info("%s; held for %d ms", waited, round((now - held) * 1000))
