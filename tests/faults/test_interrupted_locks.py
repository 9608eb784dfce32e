"""Handlers that raise in replaced locks, and where a thread is started."""

from __future__ import annotations

import _thread
import re
import ssl
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock, FastRedlockError, ReleaseStatus
from fastredlock.compat import redis_lock, redlock
from fastredlock.compat.pottery import Redlock
from fastredlock.compat.redis import Lock
from tests.faults.test_callers import Injector, every_interrupt, interrupt, soon
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, NOBODY
from tests.support.waiting import is_renewed, settled

# Where a frame of Python returns to another, no signal is looked at.
UNSIGNALLED = re.compile(
    r"noted:|Redlock\.lock:|(FastRedlock\.acquire|Redlock\._try):.*return"
)


def leaves_no_key(
    lock: Any, take: Any, last: str, servers: Servers, key: str = KEY
) -> None:
    """Interrupt the call at every opcode until the function `last` returns."""
    for where in every_interrupt(lambda: take, step=7):
        if not where or (where.startswith(f"{last}:") and where.endswith("return")):
            break
        if UNSIGNALLED.match(where) and (token := servers[0].get(key)):
            lock._locks.adopt(key, token).release()
        found = soon(servers, NOBODY, key)
        assert (where, found) == (where, NOBODY)


def owned_by_redis_py(clients: Servers) -> tuple[Any, Callable[[], object]]:
    lock = Lock(clients, KEY, timeout=60)
    return lock, lock.owned


def locked_by_pottery(clients: Servers) -> tuple[Any, Callable[[], object]]:
    lock = Redlock(key=KEY, masters=clients, auto_release_time=60)
    return lock, lock.locked


@pytest.mark.slow
def test_lock_of_redlock_when_interrupted_at_any_opcode_then_leaves_no_key(
    urls: list[str], servers: Servers
) -> None:
    """Seen: 15 of 152 places behind the grant."""
    locks = redlock.Redlock(urls)
    locks.unlock(locks.lock(KEY, 60_000))
    take = partial(locks.lock, KEY, 60_000)
    leaves_no_key(locks, take, "Redlock.lock", servers)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"id": "worker-1"}, {"auto_renewal": True}])
def test_acquire_of_redis_lock_when_interrupted_at_any_opcode_then_leaves_no_key(
    urls: list[str], servers: Servers, options: Any
) -> None:
    """Seen: 15 of 154 places behind the grant, and 99 of 238 of a renewed one."""
    client = redis.Redis.from_url(urls[0])
    with redis_lock.Lock(client, KEY, expire=60, **options) as lock:
        pass
    leaves_no_key(lock, lock.acquire, "Lock.acquire", servers, f"lock:{KEY}")
    assert lock._held
    lock.release()


def test_acquire_of_redis_lock_when_interrupted_then_another_thread_keeps_its_lock(
    urls: list[str], servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = redis_lock.Lock(redis.Redis.from_url(urls[0]), KEY, expire=60)
    take = lock._take

    def refused(granted: list[Any]) -> bool:
        assert take([])  # of the other thread, which has the same id
        return take(granted)

    monkeypatch.setattr(lock, "_take", refused)
    monkeypatch.setattr(lock, "_ask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert servers[0].get(f"lock:{KEY}") == lock.id.encode()
    assert lock._lease is not None


@pytest.mark.slow
@pytest.mark.parametrize("enters", [False, True])
@pytest.mark.parametrize("make", [owned_by_redis_py, locked_by_pottery])
def test_acquire_of_a_replacement_when_interrupted_at_any_opcode_then_leaves_no_key(
    urls: list[str], servers: Servers, make: Any, enters: bool
) -> None:
    """Seen: 73 of 1,394, between the grant and the note of it."""
    lock, is_held = make([redis.Redis.from_url(url) for url in urls])
    with lock:
        pass  # what is made once is made
    take = lock.__enter__ if enters else lock.acquire
    last = f"{type(lock).__name__}.{take.__name__}"
    leaves_no_key(lock, take, last, servers, getattr(lock, "key", KEY))
    assert is_held()
    lock.release()


# --- threads of ours, as they are started: nothing depends on that --------------------


TTL = 0.6  # s
STARTS = ("/keeper.py", "/driver.py", "/threading.py")


class TimeIsUpError(RuntimeError):
    """What a handler raises; threading raises RuntimeErrors of its own."""


class Interrupt(KeyboardInterrupt):
    """As Ctrl-C, and no other."""


def raising(kind: type[BaseException]) -> Callable[[], None]:
    def action() -> None:
        raise kind("by a handler")

    return action


class InStart(Injector):
    """Raise where a thread is started, and nowhere else."""

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(STARTS):
            return self.trace if event == "call" else None
        return super().trace(frame, event, argument)

    def is_ours(self, name: str) -> bool:
        return True


def interrupted(
    k: int, kind: type[BaseException], work: Callable[[], object]
) -> tuple[str, BaseException | None]:
    """Do the work, with a handler that raises at its k-th event; return what came."""
    injector, came = InStart(k, raising(kind)), None
    before = sys.gettrace()  # coverage's
    sys.settrace(injector.trace)
    try:
        work()
    except BaseException as error:
        came = error
    finally:
        sys.settrace(before)
    return injector.where, came


def has_thread(name: str) -> bool:
    return any(each.name == f"fastredlock {name}" for each in threading.enumerate())


def is_served(keeper: Any) -> bool:
    return has_thread("keeper") or not keeper.baton.locked()


KINDS = (Interrupt, TimeIsUpError)  # in turn


@blocking
@pytest.mark.slow
def test_keep_alive_when_its_start_is_interrupted_then_the_next_lease_is_kept(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: the client renewed nothing from then on, and called no `on_lost`."""
    for k in count(1, 3):
        locks, kind = connected(make_locks(urls[:1])), KINDS[k % 2]
        with locks.lock("warm"):
            pass
        where, came = interrupted(
            k, kind, lambda locks=locks: locks.acquire(KEY, ttl=TTL, keep_alive=True)
        )
        if not where:
            break
        assert type(came) is kind, where
        lease = granted(locks.acquire("next", ttl=TTL, keep_alive=True))
        assert is_renewed(lease, times=int(k % 10 == 0)), where
        assert lease.is_valid, where
        # A thread that has the baton, or nobody.
        keeper: Any = locks._driver.keeper
        assert settled(partial(is_served, keeper), True), where
        lease.release()
        locks.close()
    assert k > 5
    assert settled(partial(has_thread, "keeper"), False) is False


@blocking
@pytest.mark.slow
def test_keep_alive_when_no_thread_can_be_started_then_raises_and_later_keeps(
    locks: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:

    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", none_left)
        with pytest.raises(FastRedlockError, match="not kept: can't start new thread"):
            locks.acquire(KEY, ttl=60, keep_alive=True)
    lease = granted(locks.acquire(KEY, ttl=TTL, timeout=0, keep_alive=True))
    assert is_renewed(lease)
    assert lease.release() is ReleaseStatus.RELEASED


# --- a handshake of TLS ---------------------------------------------------------------


@blocking
@pytest.mark.slow
@pytest.mark.parametrize("name", ["write", "read"])
def test_interrupt_when_it_comes_inside_ssl_then_no_reply_is_anothers(
    tls_locks: FastRedlock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Seen: the release was carried to a connection that nobody opened any more."""
    assert granted(tls_locks.acquire(KEY)).release() is ReleaseStatus.RELEASED
    original = getattr(ssl.SSLObject, name)

    def interrupt(*_: object) -> None:
        monkeypatch.setattr(ssl.SSLObject, name, original)
        raise KeyboardInterrupt

    monkeypatch.setattr(ssl.SSLObject, name, interrupt)
    before = tls_locks.stats().connects
    with pytest.raises(KeyboardInterrupt):
        tls_locks.acquire(KEY, ttl=60)
    if name == "read":  # it ends the connection, and the release has another one
        stats = tls_locks.stats()
        assert (stats.losses, stats.connects) == (1, before + 1)
        assert [vote.vote.name for vote in tls_locks.holders(KEY)] == ["GRANTED"]
    lease = granted(tls_locks.acquire(KEY, ttl=60, timeout=2))
    assert tls_locks.acquire(KEY, timeout=0) is None
    assert lease.extend() > 0
    assert lease.release() is ReleaseStatus.RELEASED
