"""python-redis-lock 4.0.1 on fastredlock: one import, and the same lock.

from fastredlock.compat.redis_lock import Lock

Same keys, values and signal lists, so that waiters of either library are woken by
releases of the other; and its lines of the log, for which people search. The client
that is passed waits for signals, reads the owner's id, and deletes the locks of others
(`reset`, `reset_all`). For Django: `redis_lock.django_cache`.
"""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from logging import Logger, getLogger
from math import inf
from os import getpid, urandom
from time import monotonic
from typing import Any
from weakref import finalize

from ... import (
    NO_EXPIRY,
    Lease,
    LeaseLostError,
    MasterVote,
    QuorumUnreachableError,
    TokenReusedError,
)
from ..._options.redis_py import refuse_overrides
from ..._steps import run
from .._common import Refusing, left_ms, look_at, shared_locks, warn_of_prefix
from .._redis import Library, is_held, unsettled
from ._signal import LOCK, SIGNAL, releasing_with, reset, wait
from ._signal import reset_all as reset_all

logger_for_acquire: Logger = getLogger("redis_lock.acquire")
logger_for_refresh_thread: Logger = getLogger("redis_lock.refresh.thread")
logger_for_refresh_start: Logger = getLogger("redis_lock.refresh.start")
logger_for_refresh_shutdown: Logger = getLogger("redis_lock.refresh.shutdown")
logger_for_refresh_exit: Logger = getLogger("redis_lock.refresh.exit")
logger_for_release: Logger = getLogger("redis_lock.release")

# StrictRedis of redis-py, and StrictValkey of valkey-py.
_CLIENTS = {("redis.client", "Redis"), ("valkey.client", "Valkey")}


class AlreadyAcquired(RuntimeError):  # noqa: N818 - here and below: its name
    """Report an acquire of a lock that this Lock, or another with its id, holds."""


class NotAcquired(RuntimeError):  # noqa: N818
    """Report a release or an extend of a lock that is not, or no longer, held."""


class AlreadyStarted(RuntimeError):  # noqa: N818
    """Report a second renewal thread."""


class TimeoutNotUsable(RuntimeError):  # noqa: N818
    """Report a timeout of an acquire that does not block."""


class InvalidTimeout(RuntimeError):  # noqa: N818
    """Report a negative timeout."""


class TimeoutTooLarge(RuntimeError):  # noqa: N818
    """Report a timeout longer than the lock would live."""


class NotExpirable(RuntimeError):  # noqa: N818
    """Report an extend of a key without expiry."""


class Lock(Refusing):
    """Take a lock as python-redis-lock's does; see its documentation for the options.

    `expire` is in whole s, None leaves the key until it is released; `signal_expire` is
    in ms. Raises ConfigurationError for a client that cannot be copied. Leave `id` out:
    a release that arrives late deletes the lock taken with the same one since, and a
    use that this process knows of is refused (`acquire` raises ConnectionError).
    """

    _NOT_RUN = frozenset(
        {
            *("_lock_renewer", "extend_script", "register_scripts", "reset_all_script"),
            *("reset_script", "unlock_script"),
        }
    )
    _READ_ONCE = frozenset({"_client", "_name", "_signal", "_signal_expire"})

    blocking: bool | None = None
    _lock_renewal_interval: float | None  # of a subclass, perhaps: not None is renewed
    _lock_renewal_thread: tuple[Lease, Any] | None  # of theirs: is there one?

    def __init__(
        self,
        redis_client: Any,
        name: str,
        expire: float | None = None,
        id: str | bytes | None = None,
        auto_renewal: bool = False,
        strict: bool = True,
        signal_expire: int = 1000,
        blocking: bool = True,
    ) -> None:
        bases = type(redis_client).__mro__
        if strict and not _CLIENTS & {
            (each.__module__, each.__name__) for each in bases
        }:
            raise ValueError(
                "redis_client must be instance of StrictRedis. "
                "Use strict=False if you know what you're doing."
            )
        if auto_renewal and not expire:
            raise ValueError("Expire may not be None when auto_renewal is set")
        self._client = redis_client
        self._library = Library(redis_client)
        self._expire = _whole_seconds(expire) if expire else None
        self._signal_expire = signal_expire
        self._has_own_id = id is None
        self._id = _new_id() if id is None else _text_of(id)
        self._name = LOCK + name
        self._signal = SIGNAL + name
        self._lock_renewal_interval = (
            self._expire * 2 / 3 if auto_renewal and self._expire else None
        )
        self._lock_renewal_thread = None
        self.blocking = blocking
        self._connect()
        self._key = self._library.key_of(redis_client, self._name)
        self._lease: Lease | None = None
        self._is_settled = True  # nothing sent for its id is still without an answer
        self._pid = getpid()

    # --- the holder -------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The value stored in Redis while this lock is held."""
        return self._id

    @property
    def _held(self) -> bool:
        return self._is_held_by_us(self._ask())

    def _ask(self) -> tuple[MasterVote, ...]:
        return run(self._library.ask(self._locks, self._key))

    def _is_held_by_us(self, votes: tuple[MasterVote, ...]) -> bool:
        return left_ms(votes, self._token) is not None

    @property
    def _token(self) -> bytes:
        return self._id.encode()

    def get_owner_id(self) -> str | None:
        """Return the id of the holder, None if nobody holds the lock."""
        owner = self._client.get(self._name)
        return owner.decode("ascii", "replace") if isinstance(owner, bytes) else owner

    def locked(self) -> bool:
        """Return whether anybody holds the lock."""
        return is_held(self._ask())

    # --- taking -----------------------------------------------------------------------

    def acquire(
        self, blocking: bool = True, timeout: float | str | None = None
    ) -> bool:
        """Return True once the lock is held, False if others held it all that time.

        `timeout` is in s; None and 0 wait without end.
        """
        granted = list[Any]()
        try:
            return self._acquire(blocking, timeout, granted)
        except BaseException:
            for lease in filter(None, granted):  # nobody would release it
                if self._lease is lease:
                    self._stop_lock_renewer()
                    self._lease = None
                lease.release()
            raise

    def _acquire(
        self, blocking: bool, timeout: float | str | None, granted: list[Any]
    ) -> bool:
        logger_for_acquire.debug("Acquiring Lock(%r) ...", self._name)
        is_renewed = self._lock_renewal_interval is not None
        if is_renewed and type(self).extend is not Lock.extend:
            raise TypeError("extend() of a subclass is not what renews the lock")
        self._forget_parents()
        lease = self._lease
        if (lease or not self._has_own_id) and self._held:
            raise AlreadyAcquired("Already acquired from this Lock instance.")
        if self._lease is lease and (lease is not None or not self._is_settled):
            # Lost, or perhaps not released: a late release must not meet the next.
            self._lease, self._is_settled = None, True
            self._renew_id()
        longest = None if is_renewed else self._expire
        deadline = _deadline_of(blocking, timeout, longest)
        while not self._take(granted):
            votes = self._ask()
            if self._is_held_by_us(votes):
                raise AlreadyAcquired("Already acquired from this Lock instance.")
            if not blocking:
                logger_for_acquire.warning("Failed to acquire Lock(%r).", self._name)
                return False
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return False
            wait(self._client, self._signal, votes, left)
        logger_for_acquire.info("Acquired Lock(%r).", self._name)
        if is_renewed:
            self._stop_lock_renewer()  # of a lock that was lost
            self._start_lock_renewer()
        return True

    def _connect(self) -> None:
        make = releasing_with(int(self._signal_expire))
        refuse_overrides(self._client, self._name)
        self._locks = shared_locks(make, [self._client])
        warn_of_prefix(LOCK, self._name)

    def _take(self, granted: list[Any]) -> bool:
        lease = run(self._library.try_again(partial(self._attempt, granted)))
        if lease is not None:  # a failed try leaves what another thread holds
            self._lease, self._id = lease, lease.token.decode()
        return lease is not None

    def _attempt(self, granted: list[Any]) -> Any:
        run(look_at([self._client]))
        self._connect()
        id, lease = self._id, self._lease
        try:
            given = granted, self._locks, self._key, id.encode(), self._ttl
            return run(self._library.take(*given))
        except self._library.base as error:
            is_reused = isinstance(error.__cause__, TokenReusedError)
            if is_reused or isinstance(error.__cause__, QuorumUnreachableError):
                # A late roll-back or release of that id must not meet the next.
                self._renew_id()
            if not is_reused or (self._id == id and self._lease is lease):
                raise
        return self._attempt(granted)  # another thread's release was under way

    @property
    def _ttl(self) -> float:
        return NO_EXPIRY if self._expire is None else float(self._expire)

    def __enter__(self) -> Lock:
        if self.acquire(blocking=bool(self.blocking)):
            return self
        raise self._not_acquired()

    # --- keeping ----------------------------------------------------------------------

    def extend(self, expire: float | None = None) -> None:
        """Set the time left to `expire` s, by default to that of the lock."""
        seconds = _whole_seconds(expire) if expire else self._expire
        if seconds is None:
            raise TypeError(
                "To extend a lock 'expire' must be provided as an argument to "
                "extend() method or at initialization time."
            )
        self._forget_parents()
        lease = self._lease
        if lease is None or self._expire is None or not lease.is_valid:
            lease = self._adopted_to_extend()
        try:
            is_extended = run(self._library.prolong(lease, seconds))
        finally:
            self._is_settled = self._is_settled and lease not in unsettled
        if not is_extended:
            raise NotAcquired(
                f"Lock {self._name} is not acquired or it already expired."
            )
        self._lease = lease

    def _adopted_to_extend(self) -> Lease:
        if left_ms(self._ask(), self._token) == inf:
            raise NotExpirable(f"Lock {self._name} has no assigned expiration time")
        return self._locks.adopt(self._key, self._token)

    def _start_lock_renewer(self) -> None:
        if self._lock_renewal_thread is not None:
            raise AlreadyStarted("Lock refresh thread already started")
        logger_for_refresh_start.debug(
            "Starting renewal thread for Lock(%r). Refresh interval: %s seconds.",
            self._name,
            self._lock_renewal_interval,
        )
        if self._lease is None:
            self._lease = self._locks.adopt(self._key, self._token, ttl=self._ttl)
        # Neither call refers to the lock: it would be renewed for ever.
        self._lease.keep_alive(on_lost=partial(_on_lost, self._name))
        garbage = finalize(self, _on_garbage, self._name, getpid())
        garbage.atexit = False
        self._lock_renewal_thread = self._lease, garbage

    def _stop_lock_renewer(self) -> None:
        renewal, self._lock_renewal_thread = self._lock_renewal_thread, None
        if renewal is None:
            return
        lease, garbage = renewal
        garbage.detach()
        if lease.lost.is_set():
            return  # this is in the log already
        name = self._name
        logger_for_refresh_shutdown.debug(
            "Signaling renewal thread for Lock(%r) to exit.", name
        )
        lease.keep_alive(False)
        logger_for_refresh_thread.debug("Exiting renewal thread for Lock(%r).", name)
        logger_for_refresh_exit.debug("Renewal thread for Lock(%r) exited.", name)

    # --- giving back ------------------------------------------------------------------

    def release(self) -> None:
        """Give the lock back, and wake one waiter.

        A lock of another process is released by `Lock(…, id=its_id).release()`, or by
        `reset()`.
        """
        self._stop_lock_renewer()
        logger_for_release.debug("Releasing Lock(%r).", self._name)
        self._forget_parents()
        # It is taken out first: once the key is gone, another thread may have the next.
        held, self._lease = self._lease, None
        lease = held or self._locks.adopt(self._key, self._token)
        try:
            is_released = run(self._library.give_back(lease))
        except BaseException:  # not confirmed: it may be tried again
            if self._lease is None:
                self._lease = held
            raise
        finally:
            self._is_settled = self._is_settled and lease not in unsettled
        if not is_released:
            raise self._not_acquired()

    def reset(self) -> None:
        """Delete the lock, also of another holder, and wake one waiter."""
        reset(self._client, self._name, self._signal, self._signal_expire)

    def __exit__(
        self, exc_type: Any = None, exc_value: Any = None, traceback: Any = None
    ) -> None:
        try:
            self.release()
        except (NotAcquired, self._library.base) as error:
            if exc_value is None:
                raise
            logger_for_release.warning("%s", error)  # the body's error goes on

    def _not_acquired(self) -> NotAcquired:
        return NotAcquired(f"Lock({self._name}) is not acquired or it already expired.")

    def _forget_parents(self) -> None:
        """Hold nothing in a forked child: the lease is the parent's."""
        if self._pid != getpid():
            self._pid = getpid()
            self._lease = self._lock_renewal_thread = None
            self._renew_id()

    def _renew_id(self) -> None:
        id = _new_id()  # before: threads are switched where something is called
        if self._has_own_id and self._lease is None:
            self._id = id


# --- a renewal that ends by itself, in the words of the library -------------------


def _on_lost(name: str, _: Lease, error: LeaseLostError) -> None:
    logger_for_refresh_thread.error("Lock(%r) was lost: %s.", name, error.reason)
    logger_for_refresh_thread.debug("Exiting renewal thread for Lock(%r).", name)


def _on_garbage(name: str, pid: int) -> None:
    if pid == getpid():  # a forked child has never held it
        logger_for_refresh_thread.debug(
            "Stopping loop because Lock(%r) was garbage collected.", name
        )
        logger_for_refresh_thread.debug("Exiting renewal thread for Lock(%r).", name)


# --- ids and times as the library reads them --------------------------------------


def _new_id() -> str:
    """Draw an id: 18 random bytes in base64."""
    return b64encode(urandom(18)).decode("ascii")


def _text_of(id: str | bytes) -> str:
    """Return an id as it is stored; bytes that are not ASCII in base64."""
    if isinstance(id, str):
        return id
    if not isinstance(id, bytes):
        raise TypeError(f"Incorrect type for `id`. Must be bytes/str not {type(id)}.")
    try:
        return id.decode("ascii")
    except UnicodeDecodeError:
        return b64encode(id).decode("ascii")


def _whole_seconds(expire: float) -> int:
    """Return an expire in whole s, as the library cuts it off."""
    seconds = int(expire)
    if seconds < 0:
        raise ValueError("A negative expire is not acceptable.")
    if seconds == 0:
        raise ValueError(f"expire={expire!r}: allowed is 1 s and more, in whole s")
    return seconds


def _deadline_of(
    blocking: bool, timeout: float | str | None, longest: int | None
) -> float | None:
    """Return the end of an acquire (s of `monotonic`), None without one.

    `longest` (s): for which the lock would live, None for ever.
    """
    if not blocking and timeout is not None:
        raise TimeoutNotUsable("Timeout cannot be used if blocking=False")
    seconds = float(timeout or 0)
    if seconds < 0:
        raise InvalidTimeout(f"Timeout ({timeout}) cannot be less than or equal to 0")
    if longest and int(seconds) > longest:
        raise TimeoutTooLarge(
            f"Timeout ({int(seconds)}) cannot be greater than expire ({longest})"
        )
    return monotonic() + seconds if seconds else None
