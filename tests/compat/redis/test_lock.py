"""redis-py's Lock and what replaces it, blocking and asyncio: one body for all."""

from __future__ import annotations

import gc
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import LockError, LockNotOwnedError
from redis.retry import Retry
from redis.sentinel import Sentinel

from fastredlock import ConfigurationError
from fastredlock.compat.redis import Lock
from fastredlock.testing import LocalMasters
from tests.support.pairs import (
    KEY,
    assert_exclude_each_other,
    differing,
    forbid_sockets,
    stopwatch,
    surface,
    wait_until,
)
from tests.support.proxy import Proxy
from tests.support.redis_flavours import (
    OURS,
    OURS_ASYNCIO,
    THEIRS,
    THEIRS_ASYNCIO,
    Flavour,
    connections,
    count_together,
    flavours,
    impatient,
    later,
    load,
    other,
)

flavour = flavours(THEIRS, OURS, THEIRS_ASYNCIO, OURS_ASYNCIO)
better = flavours(
    *(THEIRS, OURS, THEIRS_ASYNCIO, OURS_ASYNCIO), bug_of=(THEIRS, THEIRS_ASYNCIO)
)
better_blocking = flavours(THEIRS, OURS, bug_of=(THEIRS,))

# What differs in the surface, and why. What differs in behaviour are the tests with
# `better`: bugs that are not copied.
DIFFERENCES = {
    "Lock.LUA_RELEASE_SCRIPT": "a text of our own with the same keys and answers",
    "Lock.LUA_EXTEND_SCRIPT": "the same",
    "Lock.LUA_REACQUIRE_SCRIPT": "the same",
}


@pytest.fixture
def server(servers: list[redis.Redis]) -> redis.Redis:
    """Raw access to the one master of most tests."""
    return servers[0]


def test_surface_differs_where_the_table_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for theirs, ours in [(THEIRS, OURS), (THEIRS_ASYNCIO, OURS_ASYNCIO)]:
        for script in ("lua_release", "lua_extend", "lua_reacquire"):
            # Theirs are kept where they were used before.
            monkeypatch.setattr(load(theirs).Lock, script, None)
        found = differing(
            surface(load(theirs), ["Lock"]), surface(load(ours), ["Lock"])
        )
        names = {name.partition(":")[0] for name in found}
        # Theirs puts its registered scripts there once one has been used.
        names -= {"Lock.lua_release", "Lock.lua_extend", "Lock.lua_reacquire"}
        assert names == DIFFERENCES.keys()


# --- the wire -----------------------------------------------------------------------


def test_lock_is_the_name_with_the_token_and_without_expiry(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock()
    assert lock.acquire(blocking=False) is True
    assert server.get(KEY) == lock.local.token
    assert len(lock.local.token) == 32
    assert server.ttl(KEY) == -1
    assert lock.release() is None
    assert server.keys() == []
    assert lock.local.token is None


@pytest.mark.parametrize(
    ("timeout", "least", "most"),
    [(10, 9000, 10_000), (9.5, 9000, 9500), (1.0019, 900, 1001)],
)
def test_timeout_is_the_ttl_in_whole_milliseconds(
    flavour: Flavour, server: redis.Redis, timeout: float, least: int, most: int
) -> None:
    flavour.lock(timeout=timeout).acquire()
    assert least < server.pttl(KEY) <= most


def test_timeout_of_zero_is_none(flavour: Flavour, server: redis.Redis) -> None:
    flavour.lock(timeout=0).acquire()
    assert server.ttl(KEY) == -1


@pytest.mark.parametrize("token", ["tök", "tök".encode()])
def test_token_that_is_given_is_stored(
    flavour: Flavour, server: redis.Redis, token: str | bytes
) -> None:
    lock = flavour.lock()
    assert lock.acquire(blocking=False, token=token)
    assert server.get(KEY) == lock.local.token == "tök".encode()
    lock.release()
    assert server.get(KEY) is None


def client_lock(flavour: Flavour, name: Any, client: Any) -> Any:
    """Make a lock of theirs, of the same kind."""
    theirs = load(THEIRS_ASYNCIO if flavour.is_asyncio else THEIRS)
    return flavour.usable(theirs.Lock(client, name, timeout=5))


@pytest.mark.parametrize("name", ["k", b"k", memoryview(b"k"), "kä"])
def test_name_is_encoded_as_the_client_does_it(
    flavour: Flavour, server: redis.Redis, name: Any
) -> None:
    client = flavour.client(encoding="latin-1")
    lock = flavour.lock(name, client, timeout=5)
    assert lock.acquire()
    assert len(server.keys()) == 1
    assert not client_lock(flavour, name, client).acquire(blocking=False)
    lock.release()
    assert server.keys() == []


@pytest.mark.parametrize(
    ("kind", "module"), [("redis-py", THEIRS), ("asyncio", THEIRS_ASYNCIO)]
)
@pytest.mark.slow
def test_theirs_in_another_process_and_this_one_exclude_each_other(
    flavour: Flavour, kind: str, module: str
) -> None:
    class Here:
        lock = flavour.lock(timeout=20)

        def take(self) -> bool:
            return bool(self.lock.acquire(blocking=False))

        def release(self) -> None:
            self.lock.release()

    with other(kind, module, KEY, flavour.url) as there:
        assert_exclude_each_other(Here(), there)


@pytest.mark.slow
def test_fleet_of_both_loses_no_update(server: redis.Redis) -> None:
    locks = [
        server.lock(KEY, timeout=20, sleep=0.001, lock_class=load(module).Lock)
        for module in (THEIRS, OURS) * 3
    ]
    assert count_together(locks) == 120


@pytest.mark.slow
def test_theirs_in_another_process_waits_for_our_release(flavour: Flavour) -> None:
    lock = flavour.lock(timeout=20)
    with other("redis-py", THEIRS, KEY, flavour.url) as there:
        lock.acquire()
        there.tell("wait")
        lock.release()
        assert there.answer() == "True"
        there.tell("release")
        assert lock.acquire(blocking_timeout=8)


# --- waiting ------------------------------------------------------------------------


def test_acquire_of_what_another_holds_without_blocking_is_false(
    flavour: Flavour,
) -> None:
    first, second = flavour.lock(), flavour.lock()
    assert first.acquire(blocking=False)
    assert not second.acquire(blocking=False)
    assert not flavour.lock(blocking=False).acquire()
    first.release()
    assert second.acquire(blocking=False)
    assert not first.acquire(blocking=False)


def test_acquire_waits_until_it_is_free(flavour: Flavour, server: redis.Redis) -> None:
    server.set(KEY, "another")
    lock = flavour.lock(sleep=0.01)
    with later(0.05, lambda: server.delete(KEY)), stopwatch() as elapsed:
        assert lock.acquire()
        assert elapsed() > 0.03


def test_blocking_timeout_gives_up_before_a_sleep_would_pass_it(
    flavour: Flavour, server: redis.Redis
) -> None:
    server.set(KEY, "another")
    lock = flavour.lock(sleep=0.05, blocking_timeout=0.15)
    with stopwatch() as elapsed:
        assert lock.acquire() is False
        assert elapsed() > 0.09
    with stopwatch() as elapsed:
        assert flavour.lock(sleep=60, blocking_timeout=1).acquire() is False
        assert elapsed() < 1


def test_arguments_of_acquire_go_before_those_of_the_lock(
    flavour: Flavour, server: redis.Redis
) -> None:
    server.set(KEY, "another")
    lock = flavour.lock(blocking_timeout=60, sleep=0.01)
    with stopwatch() as elapsed:
        assert not lock.acquire(blocking_timeout=0.05)
        assert not lock.acquire(blocking=False)
        assert elapsed() < 8


# --- the context manager ------------------------------------------------------------


def test_with_block_holds_the_lock(flavour: Flavour, server: redis.Redis) -> None:
    with flavour.lock(timeout=5) as lock:
        assert server.get(KEY) == lock.local.token
    assert server.get(KEY) is None


def test_with_block_that_cannot_have_the_lock_raises(
    flavour: Flavour, server: redis.Redis
) -> None:
    server.set(KEY, "another")
    message = "^Unable to acquire lock within the time specified$"
    with (
        pytest.raises(LockError, match=message) as raised,
        flavour.lock(blocking=False),
    ):
        raise AssertionError
    assert not isinstance(raised.value, LockNotOwnedError)
    assert isinstance(raised.value, ValueError)


def test_with_block_that_lost_the_lock_raises_at_its_end(
    flavour: Flavour, server: redis.Redis
) -> None:
    with pytest.raises(LockNotOwnedError), flavour.lock(timeout=5):
        server.set(KEY, "another")
    assert server.get(KEY) == b"another"


def test_with_block_that_lost_the_lock_logs_it_where_it_may_not_raise(
    flavour: Flavour, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with flavour.lock(timeout=5, raise_on_release_error=False):
        server.set(KEY, "another")
    (record,) = caplog.records
    assert record.name == (THEIRS_ASYNCIO if flavour.is_asyncio else THEIRS)
    assert record.getMessage().startswith("Lock was unlocked or no longer owned when")


def test_with_block_that_raises_and_lost_the_lock_raises_what_the_body_raised(
    better: Flavour, server: redis.Redis
) -> None:
    with pytest.raises(ZeroDivisionError), better.lock(timeout=5):
        assert server.set(KEY, "another") / 0


# --- release ------------------------------------------------------------------------


def test_release_of_what_is_not_held_raises(flavour: Flavour) -> None:
    message = "^Cannot release a lock that's not owned or is already unlocked.$"
    with pytest.raises(LockError, match=message) as raised:
        flavour.lock().release()
    assert raised.value.lock_name == KEY
    assert not isinstance(raised.value, LockNotOwnedError)


def test_release_of_what_another_took_raises_and_forgets(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock()
    lock.acquire()
    server.set(KEY, "another")
    with pytest.raises(LockNotOwnedError, match=r"no longer owned$"):
        lock.release()
    assert lock.local.token is None
    assert server.get(KEY) == b"another"


def test_lock_can_be_used_again(flavour: Flavour, server: redis.Redis) -> None:
    lock = flavour.lock(timeout=5)
    for _ in range(3):
        with lock:
            assert server.get(KEY) == lock.local.token


def test_token_that_is_handed_over_releases_and_extends(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock, heir = flavour.lock(timeout=5), flavour.lock(timeout=5)
    lock.acquire()
    heir.local.token = lock.local.token
    assert heir.owned()
    assert heir.extend(5)
    assert server.pttl(KEY) > 9000
    assert heir.reacquire()
    assert server.pttl(KEY) <= 5000
    heir.release()
    assert server.get(KEY) is None


@pytest.mark.slow
def test_release_that_failed_can_be_tried_again(
    better_blocking: Flavour, masters: LocalMasters
) -> None:
    client = better_blocking.client(masters.urls[0], socket_timeout=0.1)
    lock = better_blocking.lock(client=client, timeout=60)
    lock.acquire()
    masters.pause(0)
    with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
        lock.release()
    masters.resume(0)
    lock.release()
    assert impatient(masters.urls[0]).get(KEY) is None


# --- extend and reacquire -----------------------------------------------------------


@pytest.mark.parametrize("seconds", [10, 10.5])
def test_extend_adds_to_the_time_that_is_left(
    flavour: Flavour, server: redis.Redis, seconds: float
) -> None:
    lock = flavour.lock(timeout=10)
    lock.acquire()
    server.pexpire(KEY, 5000)
    assert lock.extend(seconds) is True
    added = int(seconds * 1000)
    assert 4500 + added < server.pttl(KEY) <= 5000 + added
    lock.release()


def test_extend_replaces_the_time_that_is_left(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock(timeout=10)
    lock.acquire()
    assert lock.extend(20, replace_ttl=True) is True
    assert 19_000 < server.pttl(KEY) <= 20_000


def test_reacquire_sets_the_time_left_to_the_timeout(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock(timeout=10)
    lock.acquire()
    server.pexpire(KEY, 5000)
    assert lock.reacquire() is True
    assert 9000 < server.pttl(KEY) <= 10_000


@pytest.mark.parametrize(("what", "arguments"), [("extend", [10]), ("reacquire", [])])
def test_more_time_for_what_is_not_held_raises(
    flavour: Flavour, server: redis.Redis, what: str, arguments: list[int]
) -> None:
    lock = flavour.lock(timeout=10)
    with pytest.raises(LockError, match=f"^Cannot {what} an unlocked lock$"):
        getattr(lock, what)(*arguments)
    lock.acquire()
    server.set(KEY, "another")
    with pytest.raises(LockNotOwnedError, match=f"^Cannot {what} a lock that's no"):
        getattr(lock, what)(*arguments)
    assert server.ttl(KEY) == -1


@pytest.mark.parametrize(("what", "arguments"), [("extend", [10]), ("reacquire", [])])
def test_more_time_for_what_has_no_timeout_raises(
    flavour: Flavour, what: str, arguments: list[int]
) -> None:
    lock = flavour.lock()
    lock.acquire()
    with pytest.raises(LockError, match=f"^Cannot {what} a lock with no timeout$"):
        getattr(lock, what)(*arguments)


def test_lock_that_somebody_else_prolonged_can_be_extended(
    flavour: Flavour, server: redis.Redis
) -> None:
    lock = flavour.lock(timeout=0.1)
    lock.acquire()
    server.pexpire(KEY, 60_000)
    time.sleep(0.11)
    assert lock.owned()
    assert lock.extend(1, replace_ttl=True)
    assert server.pttl(KEY) <= 1000
    lock.release()


def test_reacquire_of_a_lock_with_a_timeout_of_zero_does_not_delete_it(
    better: Flavour, server: redis.Redis
) -> None:
    lock = better.lock(timeout=0)
    lock.acquire()
    with pytest.raises(LockError, match="no timeout"):
        lock.reacquire()
    assert server.get(KEY) is not None


def test_timeout_below_a_millisecond_is_a_lock_error(better: Flavour) -> None:
    with pytest.raises(LockError, match=r"ttl=0.0: allowed is 0.003 to"):
        better.lock(timeout=0.0004).acquire()


# --- who holds it -------------------------------------------------------------------


@pytest.mark.parametrize("decode_responses", [False, True])
def test_locked_and_owned_tell_who_holds_it(
    flavour: Flavour, decode_responses: bool
) -> None:
    client = flavour.client(decode_responses=decode_responses)
    first, second = flavour.lock(client=client), flavour.lock(client=client)
    assert (first.locked(), first.owned()) == (False, False)
    first.acquire()
    assert (first.locked(), first.owned()) == (True, True)
    assert (second.locked(), second.owned()) == (True, False)
    first.release()
    assert (first.locked(), first.owned()) == (False, False)


def test_attributes_are_those_of_the_constructor(flavour: Flavour) -> None:
    lock = flavour.lock("n", None, timeout=1, sleep=2, blocking=False)
    assert lock.redis is flavour.default_client
    assert (lock.name, lock.timeout, lock.sleep, lock.blocking) == ("n", 1, 2, False)
    assert (lock.blocking_timeout, lock.thread_local) == (None, True)
    assert lock.raise_on_release_error is True


def in_thread(call: Callable[[], object]) -> object:
    """Return what the call returned or raised in a thread of its own."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answers[0]


def test_token_is_not_seen_by_other_threads(
    better_blocking: Flavour, server: redis.Redis
) -> None:
    lock = better_blocking.lock(timeout=5)
    lock.acquire()
    assert in_thread(lock.owned) is False  # theirs: no attribute 'token'
    assert isinstance(in_thread(lock.release), LockError)
    assert server.get(KEY) == lock.local.token


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_lock_that_is_not_thread_local_is_released_by_another_thread(
    module: str, server: redis.Redis
) -> None:
    lock = load(module).Lock(server, KEY, timeout=5, thread_local=False)
    lock.acquire()
    assert in_thread(lock.owned) is True
    assert in_thread(lock.release) is None
    assert server.get(KEY) is None


# --- hooks --------------------------------------------------------------------------


def hooked(base: Any, said: list[Any]) -> Any:
    """Make a subclass that notes what its hooks are given."""

    class Hooked(base):  # type: ignore[misc]
        def do_acquire(self, token: bytes) -> bool:
            said.append(("acquire", token))
            return bool(super().do_acquire(token))

        def do_release(self, expected_token: bytes) -> None:
            said.append(("release", expected_token))
            super().do_release(expected_token)

        def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
            said.append(("extend", additional_time, replace_ttl))
            return super().do_extend(additional_time, replace_ttl)

        def do_reacquire(self) -> Any:
            said.append(("reacquire",))
            return super().do_reacquire()

    return Hooked


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_hooks_of_a_subclass_are_called(module: str, server: redis.Redis) -> None:
    said: list[Any] = []
    lock = server.lock(KEY, timeout=5, lock_class=hooked(load(module).Lock, said))
    lock.acquire(token="t")
    lock.extend(1)
    lock.reacquire()
    lock.release()
    assert said == [
        ("acquire", b"t"),
        ("extend", 1, False),
        ("reacquire",),
        ("release", b"t"),
    ]


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_hooks_may_do_without_what_they_replace(
    module: str, server: redis.Redis
) -> None:
    class OnAKeyOfItsOwn(load(module).Lock):  # type: ignore[misc]
        def do_acquire(self, token: bytes) -> bool:
            return bool(self.redis.set(f"own:{self.name}", token, nx=True, px=9000))

        def do_release(self, expected_token: bytes) -> None:
            keys = [f"own:{self.name}"]
            assert self.lua_release(keys=keys, args=[expected_token], client=self.redis)

        def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
            arguments = [
                self.local.token,
                int(additional_time * 1000),
                int(replace_ttl),
            ]
            return bool(self.lua_extend([f"own:{self.name}"], arguments, self.redis))

        def do_reacquire(self) -> Any:
            arguments = [self.local.token, 4000]
            return bool(self.lua_reacquire([f"own:{self.name}"], arguments, self.redis))

    lock = OnAKeyOfItsOwn(server, KEY, timeout=5)
    assert lock.acquire()
    assert lock.extend(9)
    assert 17_000 < server.pttl(f"own:{KEY}") <= 18_000
    assert lock.extend(3, replace_ttl=True)
    assert server.pttl(f"own:{KEY}") <= 3000
    assert lock.reacquire()
    assert 3000 < server.pttl(f"own:{KEY}") <= 4000
    lock.release()
    assert server.keys() == []


def test_subclass_with_another_script_and_no_hook_to_run_it_is_refused() -> None:
    with pytest.raises(TypeError, match=r"LUA_RELEASE_SCRIPT .* override do_release"):
        type("Silent", (Lock,), {"LUA_RELEASE_SCRIPT": "return 1"})


@pytest.mark.parametrize("module", [THEIRS, OURS])
def test_lock_class_makes_it_from_a_client(module: str, server: redis.Redis) -> None:
    cls = load(module).Lock
    with server.lock(KEY, timeout=5, blocking_timeout=1, lock_class=cls) as lock:
        assert isinstance(lock, cls)
        assert server.get(KEY) == lock.local.token


# --- servers that fail --------------------------------------------------------------


@pytest.fixture
def one_master() -> Iterator[LocalMasters]:
    with LocalMasters(1) as masters:
        yield masters


@pytest.mark.slow
def test_server_that_is_down_is_a_connection_error(
    flavour: Flavour, one_master: LocalMasters
) -> None:
    lock = flavour.lock(client=flavour.client(one_master.urls[0]), timeout=5)
    one_master.stop(0)
    for call in (lock.acquire, lock.locked, lock.owned):
        with pytest.raises(redis.ConnectionError):
            call()
    assert lock.local.token is None


@pytest.mark.slow
def test_server_that_does_not_answer_is_a_timeout_error(
    flavour: Flavour, one_master: LocalMasters
) -> None:
    client = flavour.client(one_master.urls[0], socket_timeout=0.2)
    lock = flavour.lock(client=client, timeout=5)
    lock.locked()
    one_master.pause(0)
    with pytest.raises(redis.TimeoutError):
        lock.acquire(blocking=False)
    one_master.resume(0)


def test_server_that_restarts_is_found_again(
    flavour: Flavour, one_master: LocalMasters
) -> None:
    retry = importlib.import_module(
        "redis.asyncio.retry" if flavour.is_asyncio else "redis.retry"
    ).Retry(NoBackoff(), 3)
    client = flavour.client(one_master.urls[0], retry=retry)
    lock = flavour.lock(client=client, timeout=5)
    for _ in range(2):
        assert lock.acquire(blocking=False)
        one_master.stop(0)
        one_master.start(0)


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("requirepass", "secret", redis.AuthenticationError),
        ("maxmemory", "1", redis.exceptions.OutOfMemoryError),
    ],
)
def test_error_of_the_server_is_the_error_of_redis_py(
    flavour: Flavour, one_master: LocalMasters, setting: str, value: str, error: Any
) -> None:
    impatient(one_master.urls[0]).config_set(setting, value)
    lock = flavour.lock(client=flavour.client(one_master.urls[0]), timeout=5)
    with pytest.raises(error):
        lock.acquire()


def test_key_of_another_type_is_a_response_error(
    flavour: Flavour, server: redis.Redis
) -> None:
    server.lpush(KEY, 1)
    assert flavour.lock().acquire(blocking=False) is False
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        flavour.lock().locked()


def test_acquire_whose_reply_was_lost_does_not_wait_for_itself(
    better_blocking: Flavour, urls: list[str], server: redis.Redis
) -> None:
    """redis-py sends the SET again and takes its own key for another's."""
    with Proxy(urls[0]) as proxy:
        retry = Retry(ConstantBackoff(0.05), 3)
        client = better_blocking.client(proxy.url, retry=retry, protocol=2)
        lock = better_blocking.lock(client=client, timeout=60)
        assert lock.locked() is False
        proxy.set(cut_down_after=0, at_cut="reset")
        with later(0.03, proxy.heal):
            assert lock.acquire(blocking=False) is True
    assert server.get(KEY) == lock.local.token


# --- tokens -------------------------------------------------------------------------


def test_token_cannot_be_guessed_from_another(better: Flavour) -> None:
    first, second = better.lock("a"), better.lock("b")
    first.acquire()
    second.acquire()
    assert first.local.token[12:] != second.local.token[12:]  # uuid1: clock and host


def test_forked_child_does_not_have_the_lock_of_its_parent(
    better_blocking: Flavour, server: redis.Redis, tmp_path: Path
) -> None:
    lock = better_blocking.lock(timeout=60)
    lock.acquire()
    if os.fork() == 0:
        try:
            lock.release()
        except LockError as error:
            (tmp_path / "said").write_text(str(error))
        finally:
            os._exit(0)
    os.wait()
    assert server.get(KEY) == lock.local.token
    assert (
        (tmp_path / "said").read_text().startswith("Cannot release a lock that's not")
    )
    lock.release()


# --- clients: settings are copied, sockets are not ----------------------------------


def test_sockets_of_the_client_are_not_used(urls: list[str]) -> None:
    lock = Lock(forbid_sockets(redis.Redis.from_url(urls[0])), KEY, timeout=5)
    with lock:
        assert lock.owned()
        assert lock.extend(5)


def test_lock_for_every_use_opens_one_connection(
    urls: list[str], server: redis.Redis
) -> None:
    gc.collect()  # pools of other tests have circles
    before = connections(server)
    pool = redis.ConnectionPool.from_url(urls[0])
    clients = [redis.Redis(connection_pool=pool) for _ in range(20)]
    for client in clients:
        with client.lock(KEY, 5, lock_class=Lock):
            pass
    assert connections(server) <= before + 1
    del pool, clients, client
    gc.collect()
    assert wait_until(lambda: connections(server) <= before)


@pytest.mark.parametrize("options", [(), ("--requirepass", "s3cret")], ids=["", "pass"])
@pytest.mark.parametrize("unix", [False, True])
def test_settings_of_the_client_are_copied(
    unix: bool, options: tuple[str, ...]
) -> None:
    with LocalMasters(1, unix=unix, options=options) as masters:
        url = masters.urls[0]
        password = options[1] if options else None
        client = impatient(url, password=password, db=3, decode_responses=True)
        with Lock(client, KEY, timeout=5) as lock:
            assert client.get(KEY) == lock.local.token.decode()
        client.close()


class OwnConnection(redis.Connection):
    """A connection class that cannot be copied."""


def cluster() -> Any:
    client = redis.RedisCluster.__new__(redis.RedisCluster)
    client.nodes_manager = None  # type: ignore[assignment]
    return client


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (cluster, "a cluster client is not one master"),
        (
            lambda: Sentinel([("localhost", 1)]).master_for("mymaster"),
            "the Sentinel service 'mymaster' has no fixed address",
        ),
        (
            lambda: redis.Redis(
                connection_pool=redis.ConnectionPool(connection_class=OwnConnection)
            ),
            r"the connection class .*OwnConnection is not redis-py's",
        ),
        (
            lambda: redis.Redis(
                credential_provider=redis.UsernamePasswordCredentialProvider("u", "p")
            ),
            "credential_provider cannot be copied: pass username and password",
        ),
        (
            lambda: redis.Redis(ssl=True, ssl_ciphers="DEFAULT"),
            "ssl_ciphers cannot be copied",
        ),
    ],
)
def test_client_that_cannot_be_copied_is_refused_when_the_lock_is_made(
    client: Callable[[], Any], message: str
) -> None:
    for made in (client(), [client()]):
        with pytest.raises(ConfigurationError, match=message) as raised:
            Lock(made, KEY)
        assert isinstance(raised.value, ValueError)


# --- many masters -------------------------------------------------------------------


def test_lock_of_a_list_of_clients_is_held_by_a_majority(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    clients = [impatient(url) for url in urls[:3]]
    lock, rival = Lock(clients, KEY, timeout=10), Lock(clients, KEY, timeout=10)
    assert lock.acquire()
    assert [server.get(KEY) for server in servers[:3]] == [lock.local.token] * 3
    assert not rival.acquire(blocking=False)
    assert (lock.locked(), lock.owned(), rival.owned()) == (True, True, False)
    assert lock.extend(10)
    assert all(19_000 < server.pttl(KEY) <= 20_000 for server in servers[:3])
    lock.release()
    assert wait_until(lambda: [server.get(KEY) for server in servers] == [None] * 5)


@pytest.mark.slow
def test_lock_of_a_list_of_clients_does_without_a_minority(
    masters: LocalMasters,
) -> None:
    masters.stop(0)
    masters.stop(1)
    with Lock([impatient(url) for url in masters.urls], KEY, timeout=10) as lock:
        assert lock.owned()
    masters.stop(2)
    for ask in (lock.owned, lock.locked, lock.acquire):
        with pytest.raises(redis.ConnectionError):
            ask()


def test_minority_that_has_the_key_is_not_a_lock(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    servers[0].set(KEY, "another")
    lock = Lock([impatient(url) for url in urls[:3]], KEY, timeout=10)
    assert lock.locked() is False
    assert lock.acquire(blocking_timeout=8)  # once both others are connected
    lock.release()
    assert servers[0].get(KEY) == b"another"
