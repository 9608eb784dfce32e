"""The base of the blocking and the awaitable Lock: options, arithmetic, and errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from os import getpid
from time import monotonic
from types import SimpleNamespace
from typing import Any, ClassVar

from redis.exceptions import LockError, LockNotOwnedError, RedisError

from ... import NO_EXPIRY, ConfigurationError, MasterVote
from .._common.redis_py import clients_of, key_of, times_left_ms

NOT_RAISED = "Lock was unlocked or no longer owned when exiting context manager. (%s)"
_HOOKS = {
    "LUA_RELEASE_SCRIPT": "do_release",
    "LUA_EXTEND_SCRIPT": "do_extend",
    "LUA_REACQUIRE_SCRIPT": "do_reacquire",
}


def is_ours(thing: Any) -> bool:
    """Tell whether a class or a function is from here, not from a user's subclass."""
    return bool(thing.__module__.startswith(__package__ or "fastredlock"))


@cache
def _thread_local(base: type) -> type:
    """Return the type of one thread's lease and token; empty at first, in every thread.

    `base` is threading.local as it is now: gevent and eventlet replace it.
    """
    return type("_ThreadLocal", (base,), {"token": None, "lease": None, "pid": None})


class BaseLock:
    """Hold the options of a lock under redis-py's names.

    `redis` is a redis-py client, whose settings are copied, or a list of them: the lock
    is then held by a majority of these independent masters.
    """

    lua_release: ClassVar[Any] = None
    lua_extend: ClassVar[Any] = None
    lua_reacquire: ClassVar[Any] = None

    # For subclasses that call lua_release(...) and the like in hooks of their own; the
    # engine has scripts of the same meaning.
    LUA_RELEASE_SCRIPT = """
        if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
        return redis.call('del', KEYS[1])
    """
    LUA_EXTEND_SCRIPT = """
        if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
        local left = redis.call('pttl', KEYS[1])
        if left < 0 then return 0 end
        if ARGV[3] ~= '0' then left = 0 end
        return redis.call('pexpire', KEYS[1], left + ARGV[2])
    """
    LUA_REACQUIRE_SCRIPT = """
        if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
        return redis.call('pexpire', KEYS[1], ARGV[2])
    """

    def __init__(
        self,
        redis: Any,
        name: Any,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local: bool = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self._clients = clients_of(redis)
        self.local: Any = (
            _thread_local(threading.local)()
            if self.thread_local
            else SimpleNamespace(token=None, lease=None, pid=None)
        )
        self._connect()
        self.register_scripts()

    def _connect(self) -> None:
        raise NotImplementedError

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for script, hook in _HOOKS.items():
            if script in vars(cls) and is_ours(getattr(cls, hook)):
                raise TypeError(f"{script} is not what runs: override {hook}() as well")

    def register_scripts(self) -> None:
        """Make the scripts that hooks of a subclass may call; does no I/O.

        They keep alive the client that they were made with, so only then.
        """
        cls = type(self)
        if not is_ours(cls) and "lua_release" not in vars(cls):
            client = self._clients[0]
            cls.lua_release = client.register_script(cls.LUA_RELEASE_SCRIPT)
            cls.lua_extend = client.register_script(cls.LUA_EXTEND_SCRIPT)
            cls.lua_reacquire = client.register_script(cls.LUA_REACQUIRE_SCRIPT)

    # --- the lease --------------------------------------------------------------------

    def _keep(self, lease: Any) -> None:
        self.local.lease = lease
        self.local.pid = getpid()

    def _forget(self) -> None:
        self.local.token = self.local.lease = None

    def _token(self) -> bytes | None:
        """Return the token held here; a forked child has none of its parent's."""
        local = self.local
        token: bytes | None = local.token
        if token is not None and self._lease_of(token) and local.pid != getpid():
            return None
        return token

    def _lease_of(self, token: bytes) -> Any:
        """Return the lease we took with this token; None if it was handed to us."""
        lease = self.local.lease
        return lease if lease is not None and lease.token == token else None

    # --- arithmetic -------------------------------------------------------------------

    def _key(self) -> bytes:
        return key_of(self._clients[0], self.name)

    def _ttl(self) -> float:
        # In whole milliseconds, cut off as redis-py does it.
        return int(self.timeout * 1000) / 1000 if self.timeout else NO_EXPIRY

    def _deadline(self, blocking_timeout: float | None) -> float | None:
        limit = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return None if limit is None else monotonic() + limit

    def _is_ours(self, votes: Sequence[MasterVote]) -> bool:
        token = self._token()
        return token is not None and bool(times_left_ms(votes, token))

    def _sum_ms(self, votes: Sequence[MasterVote], added_ms: int) -> int:
        """Return the ttl with this much added to the time left on the masters."""
        left = min(times_left_ms(votes, self._token_or("extend")), default=-1)
        if left < 0:  # lost, or without expiry
            raise self._not_owned("extend")
        return left + added_ms

    # --- errors -----------------------------------------------------------------------

    def _token_or(self, what: str) -> bytes:
        token = self._token()
        if token is None:
            raise self._error(f"Cannot {what} an unlocked lock")
        return token

    def _check_can(self, what: str) -> None:
        self._token_or(what)
        if not self.timeout:  # redis-py sends 0 as a time, which deletes the key
            raise self._error(f"Cannot {what} a lock with no timeout")

    def _error(self, message: str) -> LockError:
        return LockError(message, lock_name=self.name)

    def _is_to_raise(self, error: RedisError) -> bool:
        """Tell whether the context manager raises this error."""
        return self.raise_on_release_error or not isinstance(error, LockError)

    def _not_owned(self, what: str) -> LockNotOwnedError:
        return LockNotOwnedError(
            f"Cannot {what} a lock that's no longer owned", lock_name=self.name
        )

    def _refused(self, error: ConfigurationError) -> LockError:
        return self._error(str(error))
