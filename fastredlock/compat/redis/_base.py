"""The base of the blocking and the awaitable Lock: options, arithmetic, and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, partial
from math import inf
from os import getpid
from time import monotonic
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from ... import NO_EXPIRY, ConfigurationError
from ..._options.redis_py import key_sent
from ..._steps import Steps
from .._common import (
    LONGEST_PATIENCE,
    left_ms,
    look_at,
    shared_locks,
    warn_of_prefix,
)
from .._redis import Library, Patient, draw_token, encoded, is_held

R = TypeVar("R")  # what an extension returns: True, or what is awaited for it

NOT_RAISED = "Lock was unlocked or no longer owned when exiting context manager. (%s)"


@cache
def _thread_local(base: type) -> type:
    """Return the type of one thread's lease and token; empty at first, in every thread.

    `base` is threading.local as it is now: gevent replaces it.
    """
    return type("_ThreadLocal", (base,), {"token": None, "held": None})


class Script:
    """A script of redis-py's Lock, such as `lua_extend`, of the text LUA_EXTEND_SCRIPT.

    What users set, on a lock or a class (RedBeat does), is run by their client. Ours is
    registered when somebody reads it, for hooks of a subclass that call it, without
    I/O.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._text = name, f"{name.upper()}_SCRIPT"

    def __get__(self, lock: Any, owner: type | None = None) -> Any:
        if lock is None:
            return None  # as redis-py's is, before the first lock
        script = vars(lock).get(self._name)
        if script is None:
            script = lock._clients[0].register_script(getattr(lock, self._text))
        return script

    def __set__(self, lock: Any, script: Any) -> None:
        if script is not None:
            lock._check_one_client(self._name)
        vars(lock)[self._name] = script


class BaseLock(Generic[R]):
    """Hold the options of a lock under redis-py's names.

    `redis` is a redis-py client, whose settings are copied, or a list of them: the lock
    is then held by a majority of these independent masters.
    """

    _new_locks: ClassVar[Callable[..., Any]]
    do_acquire: Callable[[bytes], Any]
    do_release: Callable[[bytes], Any]
    do_extend: Callable[[float, bool], R]
    do_reacquire: Callable[[], R]

    lua_release: Script = Script()
    lua_extend: Script = Script()
    lua_reacquire: Script = Script()

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
        self.name = name
        self.redis = redis
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local: bool = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = (
            _thread_local(threading.local)()
            if self.thread_local
            else SimpleNamespace(token=None, held=None)
        )
        self.register_scripts()

    @property
    def redis(self) -> Any:
        """The client, or the list of them; another one may be set."""
        return self._redis

    @redis.setter
    def redis(self, redis: Any) -> None:
        self._redis = redis
        self._clients = list(redis) if isinstance(redis, list | tuple) else [redis]
        self._connect()
        self._library = Library(self._clients[0])

    def _connect(self) -> None:
        self._locks: Any = shared_locks(self._new_locks, self._clients)
        keys = {key_sent(client, self.name) for client in self._clients}
        if len(keys) > 1:
            raise ConfigurationError(f"its clients lock different keys: {keys}")
        # A client's class may put a prefix before it; and a user may set the name.
        self._named = self.name, keys.pop()
        if self._named[1] != self.name:
            prefix = str(self._named[1]).removesuffix(str(self.name))
            warn_of_prefix(prefix, self._named[1])

    # --- scripts that users have set --------------------------------------------------

    def register_scripts(self) -> None:
        """Refuse scripts of users for a list of clients: they run on one server."""
        if len(self._clients) > 1:
            for what in ("release", "extend", "reacquire"):
                if self._is_set(what):
                    self._check_one_client(f"lua_{what}")

    def _check_one_client(self, name: str) -> None:
        if len(self._clients) > 1:
            raise TypeError(f"{name}: one client runs it, not a list of them")

    def _is_set(self, what: str) -> bool:
        """Return whether a user has set the script for this, or its text."""
        name, text = f"lua_{what}", f"LUA_{what.upper()}_SCRIPT"
        return (
            vars(self).get(name) is not None
            or getattr(type(self), name) is not None
            or getattr(self, text) is not getattr(BaseLock, text)
        )

    def _run(self, what: str, *arguments: object) -> Any:
        script = getattr(self, f"lua_{what}")
        return script(keys=[self.name], args=arguments, client=self.redis)

    # --- calls that raise before they are awaited -------------------------------------

    def extend(self, additional_time: float, replace_ttl: bool = False) -> R:
        """Add to the time left, or replace it (s)."""
        self._check_can("extend")
        return self.do_extend(additional_time, replace_ttl)

    def reacquire(self) -> R:
        """Set the time left back to `timeout`."""
        self._check_can("reacquire")
        return self.do_reacquire()

    # --- the bodies of the calls; the hooks of redis-py begin with do_ ----------------

    def _acquire(
        self,
        sleep: float,
        blocking: bool | None,
        blocking_timeout: float | None,
        token: str | bytes | None,
        drawn: list[bytes],
    ) -> Steps[bool]:
        blocking = self.blocking if blocking is None else blocking
        given = None if token is None else encoded(self._clients[0], token)
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        ends = inf if blocking_timeout is None else monotonic() + blocking_timeout
        while True:
            began = monotonic()
            is_last = not blocking or began + sleep > ends
            waits = 0.0 if is_last else min(sleep, LONGEST_PATIENCE)
            if (yield from self._try(given, drawn, waits)):
                return True
            if is_last:
                return False
            yield max(0.0, began + sleep - monotonic())

    def _try(
        self, given: bytes | None, drawn: list[bytes], waits: float
    ) -> Steps[bool]:
        def attempt() -> Any:
            if given is None:
                drawn[:] = (draw_token(),)
            token = Patient(drawn[-1] if given is None else given)
            token.waits, token.drawn = waits, None if given is not None else drawn
            return self.do_acquire(token)

        is_taken: bool = yield from self._library.try_again(attempt)
        if is_taken:
            self.local.token = drawn[-1] if given is None else given
        return is_taken

    def _take(self, token: bytes) -> Steps[bool]:
        try:
            yield from look_at(self._clients)
            self._connect()
            given = self._locks, self._key(), token, self._ttl()
            lease = yield from self._library.take([], *given)
        except ConfigurationError as error:
            raise self._error(str(error)) from error
        if lease is not None:
            self._keep(lease)
        return lease is not None

    def _locked(self) -> Steps[bool]:
        return is_held((yield from self._library.ask(self._locks, self._key())))

    def _owned(self) -> Steps[bool]:
        votes = yield from self._library.ask(self._locks, self._key())
        token = self._token()  # text, which a user has set, is nobody's in redis-py
        return isinstance(token, bytes) and left_ms(votes, token) is not None

    def _release(self) -> Steps[None]:
        # It is taken out first: once the key is gone, it may be the next holder's. No
        # call stands between the two halves, where threads would be switched.
        is_held, local = self._token() is not None, self.local
        token, local.token = local.token, None
        if not is_held or token is None:
            raise self._error(
                "Cannot release a lock that's not owned or is already unlocked."
            )
        try:
            yield partial(self.do_release, token)
        except self._library.errors.LockNotOwnedError:
            raise
        except BaseException:  # not confirmed: it may be tried again
            if local.token is None:
                local.token = token
            raise
        if self._lease_of(token):  # not that of the next holder
            local.held = None

    def _give_back(self, token: bytes) -> Steps[None]:
        if self._is_set("release"):
            is_released = yield partial(self._run, "release", token)
        else:
            lease = self._lease_of(token) or self._adopted(token)
            is_released = yield from self._library.give_back(lease)
        if not is_released:
            raise self._not_owned("release")

    def _extend(self, added: float, replace_ttl: bool) -> Steps[Literal[True]]:
        ttl_ms = int(added * 1000)
        if not (replace_ttl or self._is_set("extend")):
            votes = yield from self._library.ask(self._locks, self._key())
            token = encoded(self._clients[0], self._token_or("extend"))
            left = left_ms(votes, token)
            if left is None or left == inf:
                raise self._not_owned("extend")
            ttl_ms += int(left)
        flag = "1" if replace_ttl else "0"
        return (yield from self._prolong("extend", ttl_ms, flag))

    def _reacquire(self) -> Steps[Literal[True]]:
        return (yield from self._prolong("reacquire", round(self._ttl() * 1000)))

    def _prolong(self, what: str, ttl_ms: int, *flag: str) -> Steps[Literal[True]]:
        token = self._token_or(what)
        lease, is_set = self._lease_of(token), self._is_set(what)
        # After a user's script nobody knows how long the lock lives; and of a lease
        # that is over here, the masters' votes count.
        if is_set or lease is None or not lease.is_valid:
            lease = self._adopted(token)
        try:
            if is_set:
                is_prolonged = yield partial(self._run, what, token, ttl_ms, *flag)
            else:
                is_prolonged = yield from self._library.prolong(lease, ttl_ms / 1000)
        except ConfigurationError as error:
            raise self._error(str(error)) from error
        if not is_prolonged:
            raise self._not_owned(what)
        self._keep(lease)
        return True

    # --- the lease --------------------------------------------------------------------

    def _keep(self, lease: Any) -> None:
        self.local.held = lease, self._locks, self._key(), getpid()

    def _token(self) -> Any:
        """Return the token held here; a forked child has none of its parent's."""
        token, held = self.local.token, self._held_with(self.local.token)
        return None if held and held[-1] != getpid() else token

    def _lease_of(self, token: bytes) -> Any:
        """Return the lease we took with this token; None if it was handed to us."""
        held = self._held_with(token)
        return held and held[0]

    def _held_with(self, token: object) -> Any:
        """Return what `_keep` kept with this token, for this key and client."""
        held = getattr(self.local, "held", None)  # not there in a `local` of a user
        if held and held[0].token == token and held[1] is self._locks:
            return held if held[2] == self._key() else None
        return None

    def _adopted(self, token: str | bytes) -> Any:
        try:
            return self._locks.adopt(self._key(), encoded(self._clients[0], token))
        except ConfigurationError as error:
            raise self._error(str(error)) from error

    def _key(self) -> bytes:
        return encoded(self._clients[0], self._key_sent())

    def _key_sent(self) -> Any:
        name, key = self._named
        return key if name == self.name else key_sent(self._clients[0], self.name)

    def _ttl(self) -> float:
        # In whole milliseconds, cut off as redis-py does it.
        return int(self.timeout * 1000) / 1000 if self.timeout else NO_EXPIRY

    # --- errors -----------------------------------------------------------------------

    def _token_or(self, what: str) -> bytes:
        token: bytes | None = self._token()
        if token is None:
            raise self._error(f"Cannot {what} an unlocked lock")
        return token

    def _check_can(self, what: str) -> None:
        self._token_or(what)
        if not self.timeout:  # redis-py sends 0 as a time, which deletes the key
            raise self._error(f"Cannot {what} a lock with no timeout")

    def _error(self, message: str, kind: str = "LockError") -> Any:
        error: Any = getattr(self._library.errors, kind)(message)
        error.lock_name = self.name  # no argument before redis-py 5.0.2
        return error

    def _is_to_raise(self, error: Exception) -> bool:
        """Return whether the context manager raises this error."""
        return self.raise_on_release_error or not isinstance(
            error, self._library.errors.LockError
        )

    def _not_owned(self, what: str) -> Any:
        text = f"Cannot {what} a lock that's no longer owned"
        return self._error(text, "LockNotOwnedError")
