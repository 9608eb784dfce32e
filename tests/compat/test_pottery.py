"""pottery 3.0.1's Redlock and what replaces it: one body for both."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
import redis
from proxy import Proxy
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastredlock.testing import LocalMasters

from . import workers
from .helpers import (
    KEY,
    assert_exclude_each_other,
    differing,
    forbid_sockets,
    in_threads,
    library,
    load,
    not_copied,
    other_process,
    stopwatch,
    surface,
    wait_until,
)

PAIR = ("pottery", "fastredlock.compat.pottery")
OURS = PAIR[1]
STORED = f"redlock:{KEY}"
UUID = rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

pottery = library(*PAIR)
better = not_copied(*PAIR)

LOCKS = [
    *("Redlock", "synchronize", "PrimitiveError", "QuorumNotAchieved"),
    *("QuorumIsImpossible", "TooManyExtensions", "ExtendUnlockedLock"),
    "ReleaseUnlockedLock",
]
# What differs in the surface, and why. The other names of pottery are its containers,
# counters and timers, which are no locks.
DIFFERENCES: dict[str, str] = {}

Clients = set[redis.Redis]


@pytest.fixture(autouse=True)
def _threads_of_theirs_have_ended() -> Iterator[None]:
    """Wait for what their threads still send, or it would reach the next test."""
    before = threading.active_count()
    yield
    assert wait_until(lambda: threading.active_count() <= before)


@pytest.fixture
def clients(urls: list[str]) -> Iterator[Clients]:
    """One client for each of the five shared masters, emptied before."""
    made = impatient(urls)
    yield made
    for client in made:
        client.close()


def impatient(urls: list[str]) -> Clients:
    """Return clients that do not try again for seconds when a server is gone."""
    return {redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) for url in urls}


def values(servers: list[redis.Redis]) -> list[Any]:
    return [server.get(STORED) for server in servers]


def set_all(servers: list[redis.Redis], value: bytes, **options: Any) -> None:
    for server in servers:
        server.set(STORED, value, **options)


# --- surface --------------------------------------------------------------------------


def test_surface_is_theirs() -> None:
    theirs, ours = map(load, PAIR)
    assert sorted(ours.__all__) == sorted([*LOCKS])
    found = differing(surface(theirs, LOCKS), surface(ours, LOCKS))
    assert found == DIFFERENCES.keys()


def test_attributes_are_set_as_by_theirs(pottery: ModuleType, clients: Clients) -> None:
    lock = pottery.Redlock(key=KEY, masters=list(clients))
    assert (lock.key, lock.masters) == (STORED, frozenset(clients))
    assert repr(lock) == f"<Redlock key={STORED}>"
    assert (lock.raise_on_redis_errors, lock.auto_release_time) == (False, 10)
    assert (lock.num_extensions, lock.context_manager_blocking) == (3, True)
    assert lock.context_manager_timeout == -1
    lock.key = "other"
    assert lock.key == "redlock:other"
    with pytest.raises(AttributeError):
        lock.unknown = 1


def test_prefix_of_a_subclass_counts(pottery: ModuleType, clients: Clients) -> None:
    class Mutex(pottery.Redlock):  # type: ignore[misc, name-defined]
        _KEY_PREFIX = "mutex"

    lock = Mutex(key=KEY, masters=clients)
    assert lock.key == f"mutex:{KEY}"
    assert repr(lock).endswith(f"Mutex key=mutex:{KEY}>")


@pytest.mark.parametrize(
    "name",
    [
        *("QuorumNotAchieved", "QuorumIsImpossible", "TooManyExtensions"),
        *("ExtendUnlockedLock", "ReleaseUnlockedLock"),
    ],
)
def test_errors_hold_key_masters_and_errors(
    pottery: ModuleType, clients: Clients, name: str
) -> None:
    cls = getattr(pottery, name)
    error = cls(STORED, clients, redis_errors=["one"])
    assert (error.key, error.masters, error.redis_errors) == (STORED, clients, ["one"])
    assert cls(STORED, clients).redis_errors == ()
    assert isinstance(error, RuntimeError)
    assert isinstance(error, pottery.PrimitiveError)
    assert STORED in str(cls(STORED, clients))
    assert repr(error).startswith(f"{name}(key={STORED!r}, ")


def test_arguments_that_exclude_each_other_are_refused(
    pottery: ModuleType, clients: Clients
) -> None:
    message = "^can't specify a timeout for a non-blocking call$"
    with pytest.raises(ValueError, match=message):
        pottery.Redlock(
            key=KEY,
            masters=clients,
            context_manager_blocking=False,
            context_manager_timeout=1,
        )
    with pytest.raises(ValueError, match=message):
        pottery.Redlock(key=KEY, masters=clients).acquire(blocking=False, timeout=1)


def test_without_masters_the_url_of_the_environment_is_used(
    pottery: ModuleType,
) -> None:
    with LocalMasters(1) as masters:
        code = (
            f"import sys; sys.path[:0] = {sys.path!r}; from {pottery.__name__} import *"
            f"\nlock = Redlock(key={KEY!r}); print(lock.acquire(), len(lock.masters))"
        )
        told = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"REDIS_URL": masters.urls[0]},
        )
        assert told.stdout == "True 1\n"
        with redis.Redis.from_url(masters.urls[0]) as server:
            assert server.get(STORED)


# --- wire -----------------------------------------------------------------------------


def test_key_value_and_ttl_on_the_servers(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    assert pottery.Redlock(key=KEY, masters=clients, auto_release_time=2.5).acquire()
    assert wait_until(lambda: None not in values(servers))
    (value,) = set(values(servers))
    assert re.fullmatch(UUID, value)
    assert all(1000 < server.pttl(STORED) <= 2500 for server in servers)


@pytest.mark.parametrize(("here", "there"), [PAIR, PAIR[::-1]])
def test_old_and_new_processes_exclude_each_other(
    here: str, there: str, urls: list[str]
) -> None:
    lock = workers.Pottery(load(here), KEY, urls)
    load(there)
    with other_process("pottery", there, KEY, urls) as other:
        assert_exclude_each_other(lock, other)


@pytest.mark.parametrize(("here", "there"), [PAIR, PAIR[::-1]])
def test_waiter_gets_what_the_other_process_releases(
    here: str, there: str, urls: list[str], clients: Clients
) -> None:
    lock = load(here).Redlock(key=KEY, masters=clients)
    load(there)
    with other_process("pottery", there, KEY, urls) as other:
        assert other.take()
        assert not lock.acquire(timeout=0.05)
        other.tell("release")
        assert lock.acquire(timeout=5)


@pytest.mark.slow
def test_counter_when_old_and_new_processes_share_it_then_loses_no_update(
    urls: list[str], tmp_path: Any
) -> None:
    path = tmp_path / "counter"
    path.write_text("0")
    for module in PAIR:
        load(module)
    with (
        other_process("pottery", PAIR[0], KEY, urls) as theirs,
        other_process("pottery", PAIR[1], KEY, urls) as ours,
    ):
        for process in (theirs, ours):
            process.tell(f"count {path} 20")
        assert [theirs.answer(), ours.answer()] == ["None", "None"]
    assert path.read_text() == "40"


# --- acquire and release --------------------------------------------------------------


def test_acquire_and_release(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire() is True
    assert lock.release() is None
    assert wait_until(lambda: values(servers) == [None] * 5)
    assert lock.acquire(blocking=False) is True


def test_acquire_when_others_hold_it_then_tries_once_or_for_the_timeout(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another's")
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire(blocking=False) is False
    with stopwatch() as elapsed:
        assert lock.acquire(timeout=0.2) is False
        assert 0.2 <= elapsed() < 2


def test_acquire_waits_until_the_ttl_of_the_holder_is_over(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another's", px=150)
    assert pottery.Redlock(key=KEY, masters=clients).acquire()


def test_acquire_by_the_same_object_waits_for_its_own_ttl(
    pottery: ModuleType, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients, auto_release_time=0.2)
    assert lock.acquire()
    with stopwatch() as elapsed:
        assert lock.acquire()
        assert elapsed() > 0.1


def test_auto_release_time_that_is_changed_later_counts(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    lock.auto_release_time = 2
    assert lock.acquire()
    assert wait_until(lambda: None not in values(servers))
    assert all(server.pttl(STORED) <= 2000 for server in servers)


def test_release_of_what_is_not_held_raises(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    with pytest.raises(pottery.ReleaseUnlockedLock) as raised:
        lock.release()
    assert (raised.value.key, raised.value.masters) == (STORED, lock.masters)
    assert list(raised.value.redis_errors) == []
    assert lock.acquire()
    lock.release()
    with pytest.raises(pottery.ReleaseUnlockedLock):
        lock.release()
    assert lock.acquire()
    set_all(servers, b"another's")
    with pytest.raises(pottery.ReleaseUnlockedLock):
        lock.release()
    assert values(servers) == [b"another's"] * 5


def test_lock_may_be_released_by_another_thread(
    pottery: ModuleType, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire()
    assert in_threads([lock.release]) == [None]
    assert lock.acquire(blocking=False)


# --- locked and extend ----------------------------------------------------------------


def test_locked_is_the_time_left_in_seconds(
    pottery: ModuleType, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.locked() == 0
    assert type(lock.locked()) is int
    assert lock.acquire()
    assert 8 < lock.locked() < 10
    assert pottery.Redlock(key=KEY, masters=clients).locked() == 0
    lock.release()
    assert lock.locked() == 0


def test_locked_is_zero_when_it_was_lost(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    assert lock.acquire()
    set_all(servers[:3], b"another's")
    assert lock.locked() == 0
    brief = pottery.Redlock(key="brief", masters=clients, auto_release_time=0.05)
    assert brief.acquire()
    time.sleep(0.06)
    assert brief.locked() == 0


def test_extend_sets_the_ttl_anew(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients, auto_release_time=4)
    assert lock.acquire()
    lock.auto_release_time = 8
    assert lock.extend() is None
    assert 6 < lock.locked() < 8
    assert wait_until(lambda: all(server.pttl(STORED) > 6000 for server in servers))


def test_extend_goes_so_often_and_every_acquire_starts_anew(
    pottery: ModuleType, clients: Clients
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients, num_extensions=2)
    for _ in range(2):
        assert lock.acquire()
        lock.extend()
        lock.extend()
        with pytest.raises(pottery.TooManyExtensions) as raised:
            lock.extend()
        assert raised.value.key == STORED
        lock.release()
    lock.num_extensions = 0
    with pytest.raises(pottery.TooManyExtensions):
        lock.extend()


def test_extend_of_what_is_not_held_raises(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    with pytest.raises(pottery.ExtendUnlockedLock):
        lock.extend()
    assert lock.acquire()
    set_all(servers, b"another's")
    with pytest.raises(pottery.ExtendUnlockedLock) as raised:
        lock.extend()
    assert (raised.value.key, raised.value.masters) == (STORED, lock.masters)
    brief = pottery.Redlock(key="brief", masters=clients, auto_release_time=0.05)
    assert brief.acquire()
    time.sleep(0.06)
    with pytest.raises(pottery.ExtendUnlockedLock):
        brief.extend()


# --- context manager and decorator ----------------------------------------------------


def test_with_holds_it_in_the_body(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    for _ in range(2):
        with lock as entered:
            assert entered is lock
            assert lock.locked()
        assert wait_until(lambda: values(servers) == [None] * 5)


@pytest.mark.parametrize(
    "options",
    [{"context_manager_blocking": False}, {"context_manager_timeout": 0.1}],
)
def test_with_when_others_hold_it_then_raises(
    pottery: ModuleType,
    clients: Clients,
    servers: list[redis.Redis],
    options: dict[str, Any],
) -> None:
    set_all(servers, b"another's")
    lock = pottery.Redlock(key=KEY, masters=clients, **options)
    with pytest.raises(pottery.QuorumNotAchieved) as raised, lock:
        pytest.fail("the body ran")
    assert (raised.value.key, raised.value.masters) == (STORED, lock.masters)


def test_with_when_it_was_lost_in_the_body_then_raises(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    with (
        pytest.raises(pottery.ReleaseUnlockedLock),
        pottery.Redlock(key=KEY, masters=clients),
    ):
        set_all(servers, b"another's")
    with (
        pytest.raises(pottery.ReleaseUnlockedLock),
        pottery.Redlock(key="released", masters=clients) as lock,
    ):
        lock.release()


def test_with_lets_the_error_of_the_body_pass(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    with pytest.raises(ZeroDivisionError), pottery.Redlock(key=KEY, masters=clients):
        _ = 1 / 0
    assert wait_until(lambda: values(servers) == [None] * 5)


def test_synchronize_runs_one_call_at_a_time(
    pottery: ModuleType, clients: Clients
) -> None:
    inside, overlaps = [], []

    @pottery.synchronize(key=KEY, masters=clients)
    def work(number: int, *, square: bool) -> int:
        """Square it."""
        overlaps.extend(inside)
        inside.append(number)
        time.sleep(0.002)
        inside.remove(number)
        return number**2 if square else 0

    calls = [lambda number=number: work(number, square=True) for number in range(4)]
    assert in_threads(calls) == [0, 1, 4, 9]
    assert overlaps == []
    assert (work.__name__, work.__doc__) == ("work", "Square it.")


def test_synchronize_when_others_hold_it_then_raises(
    pottery: ModuleType, clients: Clients, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another's")
    for options in ({"blocking": False}, {"timeout": 0.05}):

        @pottery.synchronize(key=KEY, masters=clients, **options)
        def work() -> None:
            pytest.fail("the body ran")

        with pytest.raises(pottery.QuorumNotAchieved):
            work()


def test_synchronize_logs_how_long_it_waited_and_held(
    pottery: ModuleType,
    clients: Clients,
    servers: list[redis.Redis],
    caplog: pytest.LogCaptureFixture,
) -> None:
    @pottery.synchronize(key=KEY, masters=clients, blocking=False)
    def work() -> None:
        pass

    with caplog.at_level(logging.INFO, "pottery"):
        work()
        wait_until(lambda: values(servers) == [None] * 5)
        set_all(servers, b"another's")
        with suppress(pottery.QuorumNotAchieved):
            work()
    told = [
        record.getMessage() for record in caplog.records if "waited" in record.message
    ]
    name = re.escape(work.__qualname__)
    assert re.fullmatch(
        rf"{name}\(\) waited for {STORED} for \d+ ms; held for \d+ ms", told[0]
    )
    assert re.fullmatch(
        rf"{name}\(\) waited for {STORED} for \d+ ms; never acquired lock", told[1]
    )


def test_waiting_is_logged_as_a_sample(
    pottery: ModuleType,
    clients: Clients,
    servers: list[redis.Redis],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    with caplog.at_level(logging.INFO, "pottery"):
        assert lock.acquire()
        lock.release()
        wait_until(lambda: values(servers) == [None] * 5)
        set_all(servers, b"another's", px=50)
        assert lock.acquire()
        assert not lock.acquire(timeout=0.05)
    told = [record.getMessage() for record in caplog.records]
    told = [line for line in told if line.startswith("source=pottery")]
    assert [re.sub(r"=\d+ms", "=?", line) for line in told] == [
        f"source=pottery sample#redlock.enqueued.{KEY}=? "
        f"sample#redlock.acquired.{KEY}={acquired}"
        for acquired in (1, 0)
    ]


# --- masters that fail ----------------------------------------------------------------


def without_majority(pottery: ModuleType, masters: LocalMasters, **options: Any) -> Any:
    """Return a lock that is held, three masters of which were stopped since."""
    lock = pottery.Redlock(key=KEY, masters=impatient(masters.urls), **options)
    assert lock.acquire()
    for i in range(3):
        masters.stop(i)
    return lock


def test_minority_that_fails_is_not_noticed(
    pottery: ModuleType, masters: LocalMasters
) -> None:
    masters.stop(0)
    masters.stop(1)
    clients = impatient(masters.urls)
    lock = pottery.Redlock(key=KEY, masters=clients, raise_on_redis_errors=True)
    assert lock.acquire()
    assert lock.locked()
    lock.extend()
    lock.release()


def test_majority_that_fails_is_false_without_the_flag(
    pottery: ModuleType, masters: LocalMasters
) -> None:
    lock = without_majority(pottery, masters)
    assert lock.locked() == 0
    with pytest.raises(pottery.ExtendUnlockedLock) as extended:
        lock.extend()
    with pytest.raises(pottery.ReleaseUnlockedLock) as released:
        lock.release()
    for raised in (extended, released):
        assert len(list(raised.value.redis_errors)) >= 3
        assert all(isinstance(one, Exception) for one in raised.value.redis_errors)
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(timeout=0.3) is False


@pytest.mark.parametrize("when", ["made", "called"])
def test_majority_that_fails_is_an_error_with_the_flag(
    pottery: ModuleType, masters: LocalMasters, when: str
) -> None:
    is_made = when == "made"
    options = {} if is_made else {"raise_on_redis_errors": True}
    lock = without_majority(pottery, masters, raise_on_redis_errors=is_made)
    for call in (lock.locked, lock.extend, lock.release, lock.acquire):
        with pytest.raises(pottery.QuorumIsImpossible) as raised:
            call(**options)
        assert raised.value.key == STORED
        assert len(list(raised.value.redis_errors)) >= 3


def test_waiter_outlives_an_outage(pottery: ModuleType, masters: LocalMasters) -> None:
    lock = pottery.Redlock(key=KEY, masters=impatient(masters.urls))
    for i in range(3):
        masters.stop(i)

    def start_again() -> None:
        time.sleep(0.5)
        for i in range(3):
            masters.start(i)

    assert in_threads([lock.acquire, start_again])[0] is True


# --- bugs that are not copied ---------------------------------------------------------


def test_holder_when_another_thread_tries_the_same_object_then_keeps_its_token(
    better: ModuleType, clients: Clients
) -> None:
    lock = better.Redlock(key=KEY, masters=clients)
    assert lock.acquire()
    assert in_threads([lambda: lock.acquire(blocking=False)]) == [False]
    assert lock.locked()
    lock.release()


def test_acquire_with_timeout_zero_tries_once(
    better: ModuleType, clients: Clients
) -> None:
    assert better.Redlock(key=KEY, masters=clients).acquire(timeout=0) is True


def test_error_of_the_body_is_not_hidden_by_one_of_the_release(
    better: ModuleType, clients: Clients
) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: SIM117, PT012 - as users write it
        with better.Redlock(key=KEY, masters=clients) as lock:
            lock.release()
            _ = 1 / 0


def test_set_that_the_network_holds_back_does_not_outlive_the_release(
    better: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    with Proxy(urls[0]) as slow:
        clients = impatient([slow.url, *urls[1:]])
        lock = better.Redlock(key=KEY, masters=clients)
        assert lock.acquire()
        lock.release()
        assert wait_until(lambda: set(values(servers)) == {None})
        for client in clients:
            client.connection_pool.disconnect()
        before = slow.connections
        slow.set(holds_up=True)
        assert lock.acquire()
        wait_until(lambda: slow.connections > before, within=0.2)
        slow.set(closes_accepted=True)
        lock.release()  # theirs: over another connection
        time.sleep(0.1)
        slow.heal()
        time.sleep(0.3)
        assert values(servers) == [None] * 5


def test_extension_that_is_confirmed_when_it_is_over_is_none(
    better: ModuleType, urls: list[str]
) -> None:
    with Proxy(urls[0]) as first, Proxy(urls[1]) as second:
        clients = impatient([first.url, second.url, urls[2]])
        lock = better.Redlock(key=KEY, masters=clients, auto_release_time=0.2)
        assert lock.acquire()
        first.set(holds_down=True)
        second.set(holds_down=True)

        def heal() -> None:
            time.sleep(0.4)
            first.heal()
            second.heal()

        def extend() -> None:
            with pytest.raises(better.ExtendUnlockedLock):
                lock.extend()

        in_threads([heal, extend])


def test_errors_can_be_put_into_a_set(better: ModuleType) -> None:
    assert len({better.QuorumNotAchieved(STORED, frozenset())}) == 1


def test_synchronize_refuses_a_coroutine_function(
    better: ModuleType, clients: Clients
) -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    with pytest.raises(TypeError, match="is a coroutine function"):
        better.synchronize(key=KEY, masters=clients)(work)


def test_import_leaves_json_alone(better: ModuleType) -> None:
    code = (
        f"import sys, json; sys.path[:0] = {sys.path!r}; dumps = json.dumps\n"
        f"import {better.__name__}; print(json.dumps is dumps)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert told.stdout == "True\n"
    assert json.dumps({}) == "{}"


def test_password_is_in_no_error(better: ModuleType) -> None:
    error = better.QuorumNotAchieved(STORED, frozenset({"redis://:hunter2@h"}))
    assert "hunter2" not in str(error) + repr(error)


# --- clients that are handed over -----------------------------------------------------


def test_sockets_of_clients_are_never_used(clients: Clients) -> None:
    masters = set(map(forbid_sockets, clients))
    with load(OURS).Redlock(key=KEY, masters=masters) as lock:
        assert lock.locked()
        lock.extend()


def test_lock_objects_share_one_set_of_connections(
    clients: Clients, servers: list[redis.Redis]
) -> None:
    def connected() -> int:
        return int(servers[0].info("clients")["connected_clients"])  # type: ignore[index]

    ours = load(OURS)
    assert ours.Redlock(key="first", masters=clients).acquire()
    before = connected()
    for i in range(5):
        assert ours.Redlock(key=f"second:{i}", masters=clients).acquire()
    assert connected() == before


def test_settings_of_clients_are_copied(pottery: ModuleType) -> None:
    with LocalMasters(1, options=("--requirepass", "s3cret")) as masters:
        client = redis.Redis(
            host="127.0.0.1",
            port=masters.ports[0],
            password="s3cret",
            db=3,
            decode_responses=True,
        )
        with pottery.Redlock(key=KEY, masters={client}) as lock:
            assert re.fullmatch(UUID.decode(), str(client.get(STORED)))
            assert lock.locked()
        client.close()


def refusals() -> list[tuple[Callable[[], redis.Redis], str]]:
    sentinel = redis.sentinel.Sentinel([("h", 26379)])
    own = type("Own", (redis.Connection,), {})
    pool = redis.ConnectionPool(connection_class=own)
    return [
        (lambda: sentinel.master_for("orders"), "Sentinel service 'orders'"),
        (lambda: redis.Redis(connection_pool=pool), "Own is not redis-py's own"),
        (lambda: redis.Redis(credential_provider=object()), "credential_provider"),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(("make", "message"), refusals())
def test_client_that_cannot_be_copied_is_named(
    make: Callable[[], redis.Redis], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(OURS).Redlock(key=KEY, masters={make()})


def test_auto_release_time_that_drift_takes_off_is_refused(clients: Clients) -> None:
    lock = load(OURS).Redlock(key=KEY, masters=clients, auto_release_time=0.002)
    with pytest.raises(ValueError, match=r"ttl=0\.002: allowed is 0\.003"):
        lock.acquire()  # theirs: waits without end
