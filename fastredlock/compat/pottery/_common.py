"""The base of pottery's two Redlocks: names, arguments, errors; all but the I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from logging import getLogger
from math import ceil, inf
from time import monotonic
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from ... import (
    FastRedlockError,
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    ValidityExhaustedError,
    Vote,
)
from ..._options.masters import SameServerAllowed
from ..._reports.votes import is_quorum
from ..._steps import Steps
from .._common import (
    Refusing,
    left_ms,
    look_at,
    noted,
    shared_locks,
    token_source,
    try_once,
    warn_of_prefix,
)
from .exceptions import (
    ExtendUnlockedLock,
    PrimitiveError,
    QuorumIsImpossible,
    ReleaseUnlockedLock,
    TooManyExtensions,
)

E = TypeVar("E", bound=PrimitiveError)
FAILED = Vote.FAILED, Vote.SILENT

logger = getLogger("pottery")


class DefaultMaster(str):
    """The URL of the default master, of which there can be weak references."""

    __slots__ = ("__weakref__",)


class Common(Refusing):
    """The base of the blocking and the awaitable Redlock: all but the I/O."""

    __slots__ = (
        "_extension_num",
        "_key",
        "_lease",
        "_locks",
        "_masters",
        "auto_release_time",
        "context_manager_blocking",
        "context_manager_timeout",
        "num_extensions",
        "raise_on_redis_errors",
    )

    _NOT_RUN = frozenset(
        {"_acquire_masters", "_acquired_script", "_extend_script", "_release_script"}
    )

    _KEY_PREFIX: ClassVar[str] = "redlock"
    _AUTO_RELEASE_TIME: ClassVar[float] = 10
    _CLOCK_DRIFT_FACTOR: ClassVar[float] = 0.01
    _NUM_EXTENSIONS: ClassVar[int] = 3
    _DEFAULT_MASTERS: ClassVar[frozenset[object]] = frozenset()
    _SAMPLE: ClassVar[str]  # how its log lines call it
    _maker: Callable[[], Callable[..., Any]]  # returns its FastRedlock

    def __init__(
        self,
        *,
        key: str,
        masters: Iterable[object] = frozenset(),
        raise_on_redis_errors: bool = False,
        auto_release_time: float = _AUTO_RELEASE_TIME,
        num_extensions: int = _NUM_EXTENSIONS,
        context_manager_blocking: bool = True,
        context_manager_timeout: float = -1,
    ) -> None:
        seconds_of(context_manager_blocking, context_manager_timeout)  # or ValueError
        self.key = key
        self.masters = frozenset(masters) or self._DEFAULT_MASTERS
        self.raise_on_redis_errors: bool = raise_on_redis_errors
        self.auto_release_time: float = auto_release_time
        self.num_extensions: int = num_extensions
        self.context_manager_blocking: bool = context_manager_blocking
        self.context_manager_timeout: float = context_manager_timeout
        self._lease: Any = None
        self._extension_num = 0

    @property
    def key(self) -> str:
        """The key on the masters: `redlock:` and the given one."""
        return self._key

    @key.setter
    def key(self, value: str) -> None:
        self._key = f"{self._KEY_PREFIX}:{value}"

    @property
    def masters(self) -> frozenset[object]:
        """The clients, whose settings are copied; others may be set."""
        return self._masters

    @masters.setter
    def masters(self, masters: Iterable[object]) -> None:
        self._masters = frozenset(masters)
        self._locks = self._connected()

    def _connected(self) -> Any:
        drift = self._CLOCK_DRIFT_FACTOR
        warn_of_prefix(f"{self._KEY_PREFIX}:", self.key)
        # In an order that is the same for equal sets, and for other clients of the same
        # pools: some callers make a client per use of them.
        masters = SameServerAllowed(sorted(self.masters, key=_pool_id))
        return shared_locks(self._maker(), masters, self.key, drift_factor=drift)

    # --- the bodies of the calls ------------------------------------------------------

    def _acquire(
        self, blocking: bool, timeout: float, flag: bool | None, granted: list[Any]
    ) -> Steps[bool]:
        seconds = seconds_of(blocking, timeout)
        yield from look_at(tuple(self.masters))
        self._locks = self._connected()
        began, ttl = monotonic(), self.auto_release_time
        ends = inf if seconds is None else began + seconds
        tried, left = False, 0.0
        while not tried or (left := ends - monotonic()) > 0:
            token_source.set(lambda: str(uuid4()))
            try:
                if tried:
                    waits = partial(noted, granted, self._locks, self.key, ttl)
                    lease = yield partial(waits, timeout=None if left == inf else left)
                else:
                    lease = yield from try_once(granted, self._locks, self.key, ttl)
            except (QuorumUnreachableError, ValidityExhaustedError) as error:
                name = type(self).__qualname__
                logger.warning("%s.acquire() caught %s", name, error)
                self._check_enough_masters_up(flag, error.votes)
                lease = None
            if lease is not None:
                self._lease, self._extension_num = lease, 0
                if tried:
                    self._log_waited(began, True)
                return True
            tried = True
        if blocking:
            self._log_waited(began, False)
        return False

    def _left(self, flag: bool | None) -> Steps[float]:
        """Return how long (s) a majority will have our token, or 0 if none has it."""
        votes = yield partial(self._locks.holders, self.key)
        if (lease := self._lease) is not None and lease.is_valid:
            left = left_ms(votes, lease.token)
            if left is not None:
                seconds: float = min(lease.remaining(), left / 1000)
                return seconds
        self._check_enough_masters_up(flag, votes)
        return 0

    def _extend(self, flag: bool | None) -> Steps[None]:
        if self._extension_num >= self.num_extensions:
            raise TooManyExtensions(self.key, self.masters)
        if self._lease is None:
            votes = yield partial(self._locks.holders, self.key)
            raise self._failure(ExtendUnlockedLock, votes, flag)
        try:
            yield partial(self._lease.extend, self.auto_release_time)
        except (LeaseLostError, NotExtendedError) as error:
            raise self._failure(ExtendUnlockedLock, error.votes, flag) from error
        self._extension_num += 1

    def _release(self, flag: bool | None) -> Steps[None]:
        status = ReleaseStatus.GONE
        if self._lease is not None:
            status = yield self._lease.release
        if status is ReleaseStatus.RELEASED:
            return
        votes: tuple[MasterVote, ...] = ()
        if status is ReleaseStatus.UNKNOWN or self._lease is None:
            votes = yield partial(self._locks.holders, self.key)
        raise self._failure(ReleaseUnlockedLock, votes, flag)

    # --- their parts ------------------------------------------------------------------

    def _failure(
        self, error: type[E], votes: Sequence[MasterVote], flag: bool | None
    ) -> E:
        self._check_enough_masters_up(flag, votes)
        return error(self.key, self.masters, redis_errors=failures(votes))

    def _check_enough_masters_up(
        self, flag: bool | None, votes: Sequence[MasterVote]
    ) -> None:
        if flag is None:
            flag = self.raise_on_redis_errors
        if flag and is_quorum(votes, lambda vote: vote.vote in FAILED):
            errors = failures(votes)
            raise QuorumIsImpossible(self.key, self.masters, redis_errors=errors)

    def _log_waited(self, began: float, acquired: bool) -> None:
        suffix = self.key.split(":", maxsplit=1)[1]
        logger.info(
            "source=pottery sample#%s.enqueued.%s=%dms sample#%s.acquired.%s=%d",
            *(self._SAMPLE, suffix, ceil((monotonic() - began) * 1000)),
            *(self._SAMPLE, suffix, acquired),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} key={self.key}>"


def _pool_id(master: object) -> int:
    return id(getattr(master, "connection_pool", master))


def seconds_of(blocking: bool, timeout: float) -> float | None:
    """Return for how long (s) an acquire may try; None without a limit."""
    if blocking:
        return None if timeout == -1 else max(timeout, 0)
    if timeout != -1:
        raise ValueError("can't specify a timeout for a non-blocking call")
    return 0


def failures(votes: Sequence[MasterVote]) -> list[Exception]:
    """Return one error per master that could not answer."""
    return [FastRedlockError(str(vote)) for vote in votes if vote.vote in FAILED]
