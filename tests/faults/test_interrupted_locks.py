"""Replacements of other libraries' locks whose callers are interrupted."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from fastredlock.compat import redis_lock, redlock
from fastredlock.compat.pottery import Redlock
from fastredlock.compat.redis import Lock
from tests.faults.test_callers import every_interrupt, interrupt, soon
from tests.support.fixtures import Servers
from tests.support.keys import KEY, NOBODY

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
