"""python-redis-lock 4.0.1 and what replaces it: one body for both."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastredlock import ConfigurationError
from fastredlock.compat import redis_lock as ours
from fastredlock.compat.redis_lock import _signal
from fastredlock.testing import LocalMasters

from .helpers import (
    KEY,
    assert_exclude_each_other,
    differing,
    library,
    not_copied,
    own_names,
    stopwatch,
    surface,
    wait_until,
)
from .redis_helpers import connections, count_together, impatient, later, other
from .test_redis_lock_class import cluster

theirs = pytest.importorskip("redis_lock", reason="extra compat-test")

PAIR = ("redis_lock", "fastredlock.compat.redis_lock")
LOCK, SIGNAL = f"lock:{KEY}", f"lock-signal:{KEY}"

module = library(*PAIR)
better = not_copied(*PAIR)
their_thread_may_die = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)

# What differs in the surface, and why. What differs in behaviour are the tests with
# `better`: bugs that are not copied.
DIFFERENCES = dict.fromkeys(
    (
        *("EXTEND_SCRIPT", "RESET_SCRIPT", "RESET_ALL_SCRIPT", "UNLOCK_SCRIPT"),
        *("Lock.extend_script", "Lock.reset_script", "Lock.reset_all_script"),
        *("Lock.unlock_script", "Lock.register_scripts"),
    ),
    "what would be called is not what runs: the engine has scripts of its own",
)


@pytest.fixture
def server(servers: list[redis.Redis]) -> redis.Redis:
    """Raw access to the one master."""
    return servers[0]


@pytest.fixture
def client(urls: list[str]) -> Iterator[redis.Redis]:
    with impatient(urls[0]) as made:
        yield made


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def any_client(
    request: pytest.FixtureRequest, urls: list[str]
) -> Iterator[redis.Redis]:
    with impatient(urls[0], decode_responses=request.param) as made:
        yield made


def test_surface_differs_where_the_table_says_so() -> None:
    plain = (bytes, logging.Logger)
    values = [name for name, value in vars(theirs).items() if isinstance(value, plain)]
    names = own_names(theirs) + values
    found = differing(surface(theirs, names), surface(ours, names))
    assert {name.partition(":")[0] for name in found} == DIFFERENCES.keys()


# --- the wire -----------------------------------------------------------------------


def test_lock_is_a_key_with_the_id_and_without_expiry(
    module: ModuleType, any_client: redis.Redis, server: redis.Redis
) -> None:
    lock = module.Lock(any_client, KEY)
    id_before = lock.id
    assert lock.acquire() is True
    assert server.keys() == [LOCK.encode()]
    assert server.get(LOCK) == lock.id.encode() == id_before.encode()
    assert len(lock.id) == 24
    assert server.ttl(LOCK) == -1
    assert lock.release() is None
    assert server.keys() == [SIGNAL.encode()]


def test_release_leaves_one_signal_for_a_while(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    for _ in range(3):
        with module.Lock(client, KEY):
            pass
    assert server.lrange(SIGNAL, 0, -1) == [b"1"]
    assert 0 < server.pttl(SIGNAL) <= 1000
    with module.Lock(client, KEY, signal_expire=5000):
        pass
    assert 4000 < server.pttl(SIGNAL) <= 5000


@pytest.mark.parametrize(("expire", "seconds"), [(10, 10), (9.9, 9), ("10", 10)])
def test_expire_is_in_whole_seconds(
    module: ModuleType,
    client: redis.Redis,
    server: redis.Redis,
    expire: Any,
    seconds: int,
) -> None:
    module.Lock(client, KEY, expire=expire).acquire()
    assert seconds * 1000 - 900 < server.pttl(LOCK) <= seconds * 1000


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("mine", b"mine"),
        (b"mine", b"mine"),
        (b"\xff\x00", b"/wA="),
        ("ä", "ä".encode()),
    ],
)
def test_id_that_is_given_is_stored(
    module: ModuleType,
    client: redis.Redis,
    server: redis.Redis,
    given: Any,
    stored: bytes,
) -> None:
    lock = module.Lock(client, KEY, id=given)
    assert lock.acquire()
    assert server.get(LOCK) == stored == lock.id.encode()
    lock.release()
    assert server.get(LOCK) is None


@pytest.mark.slow
def test_theirs_in_another_process_and_this_one_exclude_each_other(
    module: ModuleType, client: redis.Redis, urls: list[str]
) -> None:
    class Here:
        lock = module.Lock(client, KEY)

        def take(self) -> bool:
            return bool(self.lock.acquire(blocking=False))

        def release(self) -> None:
            self.lock.release()

    with other("redis-lock", PAIR[0], KEY, urls[0]) as there:
        assert_exclude_each_other(Here(), there)


@pytest.mark.parametrize(("here", "there"), [PAIR, PAIR[::-1], (PAIR[1], PAIR[1])])
@pytest.mark.slow
def test_waiter_in_another_process_is_woken_by_the_release(
    here: str, there: str, client: redis.Redis, urls: list[str], server: redis.Redis
) -> None:
    lock = {theirs.__name__: theirs, ours.__name__: ours}[here].Lock(client, KEY)
    lock.acquire()
    with other("redis-lock", there, KEY, urls[0]) as waiter:
        waiter.tell("wait")
        assert wait_until(lambda: is_waited_for(server))
        with stopwatch() as elapsed:
            lock.release()
            assert waiter.answer() == "True"
            assert elapsed() < 4  # below what a waiter waits without a signal
        assert waiter.say("release") == "None"


def is_waited_for(server: redis.Redis) -> bool:
    return any(each["cmd"] == "blpop" for each in server.client_list())


@pytest.mark.slow
def test_fleet_of_both_loses_no_update(client: redis.Redis) -> None:
    locks = [module.Lock(client, KEY, expire=20) for module in (theirs, ours) * 3]
    assert count_together(locks) == 120


def test_key_that_our_roll_back_deletes_wakes_a_waiter_of_theirs(
    client: redis.Redis, server: redis.Redis
) -> None:
    lock = ours.Lock(client, KEY)
    lock.acquire()
    waiter = threading.Thread(target=theirs.Lock(client, KEY).acquire, daemon=True)
    waiter.start()
    assert wait_until(lambda: is_waited_for(server))
    lock._locks._driver.abandon(lock._lease._round)  # type: ignore[union-attr]
    waiter.join(8)
    assert not waiter.is_alive()


# --- taking -------------------------------------------------------------------------


def test_lock_of_another_is_not_acquired_without_blocking(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with module.Lock(client, KEY):
        assert module.Lock(client, KEY).acquire(blocking=False) is False
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("redis_lock.acquire", f"Failed to acquire Lock({LOCK!r}).")
    ]


@pytest.mark.parametrize("timeout", [1, "1", 1.9])
@pytest.mark.slow
def test_timeout_ends_the_wait(
    module: ModuleType, client: redis.Redis, timeout: Any
) -> None:
    module.Lock(client, KEY).acquire()
    with stopwatch() as elapsed:
        assert module.Lock(client, KEY).acquire(timeout=timeout) is False
        assert 0.9 < elapsed() < 3


@pytest.mark.slow
def test_acquire_waits_for_the_end_of_a_lock_that_expires(
    module: ModuleType, client: redis.Redis
) -> None:
    first = module.Lock(client, KEY, expire=1)
    second = module.Lock(client, KEY, expire=1)
    first.acquire()
    assert second.acquire(blocking=False) is False
    assert second.acquire() is True
    with pytest.raises(module.NotAcquired):
        first.release()
    second.release()


def test_lock_is_acquired_once(module: ModuleType, client: redis.Redis) -> None:
    lock = module.Lock(client, KEY)
    with lock:
        for options in ({}, {"blocking": False}, {"blocking": False, "timeout": 1}):
            with pytest.raises(module.AlreadyAcquired, match=r"^Already acquired from"):
                lock.acquire(**options)
        same = module.Lock(client, KEY, id=lock.id)
        with pytest.raises(RuntimeError, match=r"^Already acquired from this Lock"):
            same.acquire()
    with lock:
        pass


def test_own_id_under_which_another_acquired_is_already_acquired(
    module: ModuleType, client: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    module.Lock(client, KEY, id=lock.id).acquire()
    with pytest.raises(module.AlreadyAcquired):
        lock.acquire()


def test_lock_that_was_reset_by_another_can_be_acquired_again(
    module: ModuleType, client: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    lock.acquire()
    module.Lock(client, KEY).reset()
    assert lock.acquire(blocking=False) is True
    lock.release()


@pytest.mark.parametrize(
    ("options", "arguments", "error", "message"),
    [
        (
            {},
            {"blocking": False, "timeout": 1},
            "TimeoutNotUsable",
            "Timeout cannot be used if blocking=False",
        ),
        (
            {},
            {"timeout": -1},
            "InvalidTimeout",
            "Timeout (-1) cannot be less than or equal to 0",
        ),
        (
            {"expire": 1},
            {"timeout": 2},
            "TimeoutTooLarge",
            "Timeout (2) cannot be greater than expire (1)",
        ),
    ],
)
def test_acquire_with_a_bad_timeout_raises(
    module: ModuleType,
    client: redis.Redis,
    options: dict[str, Any],
    arguments: dict[str, Any],
    error: str,
    message: str,
) -> None:
    with pytest.raises(getattr(module, error)) as raised:
        module.Lock(client, KEY, **options).acquire(**arguments)
    assert str(raised.value) == message
    assert isinstance(raised.value, RuntimeError)


def test_bad_arguments_are_refused(module: ModuleType, client: redis.Redis) -> None:
    for options, error, message in [
        ({"expire": -1}, ValueError, "^A negative expire is not acceptable.$"),
        ({"auto_renewal": True}, ValueError, "^Expire may not be None when auto_ren"),
        ({"id": 42}, TypeError, "^Incorrect type for `id`. Must be bytes/str not <cl"),
    ]:
        with pytest.raises(error, match=message):
            module.Lock(client, KEY, **options)
    with pytest.raises(ValueError, match=r"^redis_client must be instance of Stri"):
        module.Lock("redis://localhost", KEY)


# --- the context manager ------------------------------------------------------------


def test_with_block_holds_the_lock(module: ModuleType, client: redis.Redis) -> None:
    lock = module.Lock(client, KEY)
    with lock as entered:
        assert entered is lock
        assert lock.locked()
    assert not lock.locked()


def test_with_block_that_may_not_wait_raises(
    module: ModuleType, client: redis.Redis
) -> None:
    with module.Lock(client, KEY):
        lock = module.Lock(client, KEY, blocking=False)
        with pytest.raises(module.NotAcquired, match=r"^Lock\(lock:orders:42\) is not"):
            lock.__enter__()


def test_with_block_that_lost_the_lock_raises_at_its_end(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(module.NotAcquired), module.Lock(client, KEY):
        server.delete(LOCK)


def test_with_block_that_raises_and_lost_the_lock_raises_what_the_body_raised(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(ZeroDivisionError), better.Lock(client, KEY):
        assert server.delete(LOCK) / 0


# --- release and reset --------------------------------------------------------------


def test_release_of_what_is_not_held_raises(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(module.NotAcquired, match=r"^Lock\(lock:orders:42\) is not acq"):
        module.Lock(client, KEY).release()
    server.set(LOCK, "another")
    with pytest.raises(module.NotAcquired):
        module.Lock(client, KEY).release()
    assert server.keys() == [LOCK.encode()]


def test_lock_is_released_by_whoever_has_its_id(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    lock.acquire()
    module.Lock(client, KEY, id=lock.id).release()
    assert server.keys() == [SIGNAL.encode()]
    with pytest.raises(module.NotAcquired):
        lock.release()


def test_reset_deletes_the_lock_and_signals(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    lock = module.Lock(client, KEY)
    lock.acquire()
    assert module.Lock(client, KEY, signal_expire=3000).reset() is None
    assert server.keys() == [SIGNAL.encode()]
    assert server.llen(SIGNAL) == 1
    assert 2000 < server.pttl(SIGNAL) <= 3000


def test_reset_all_deletes_all_locks_and_signals(
    module: ModuleType, any_client: redis.Redis, server: redis.Redis
) -> None:
    server.set("else", 1)
    for name in ("a", "b"):
        module.Lock(any_client, name).acquire()
    assert module.reset_all(any_client) is None
    assert sorted(server.keys()) == [b"else", b"lock-signal:a", b"lock-signal:b"]
    assert server.llen("lock-signal:a") == 1
    assert 0 < server.pttl("lock-signal:b") <= 1000


# --- extend -------------------------------------------------------------------------


def test_extend_sets_the_time_left(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with module.Lock(client, KEY, expire=100) as lock:
        assert lock.extend(expire=1000) is None
        assert 990 < server.ttl(LOCK) <= 1000
        lock.extend()
        assert 90 < server.ttl(LOCK) <= 100
        module.Lock(client, KEY, id=lock.id).extend("500")
        assert 490 < server.ttl(LOCK) <= 500


def test_extend_of_what_cannot_be_extended_raises(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with pytest.raises(module.NotAcquired, match=r"^Lock lock:orders:42 is not acq"):
        module.Lock(client, KEY, expire=5).extend()
    with module.Lock(client, KEY) as lock:
        with pytest.raises(module.NotExpirable, match=r"no assigned expiration time$"):
            lock.extend(5)
        with pytest.raises(TypeError, match=r"^To extend a lock 'expire' must be"):
            lock.extend()
        with pytest.raises(ValueError, match="negative"):
            lock.extend(-1)
        with pytest.raises(module.NotAcquired):
            module.Lock(client, KEY).extend(5)
    assert server.ttl(SIGNAL) >= 0


# --- who holds it -------------------------------------------------------------------


def test_locked_and_owner_tell_who_holds_it(
    module: ModuleType, any_client: redis.Redis
) -> None:
    lock, rival = module.Lock(any_client, KEY), module.Lock(any_client, KEY)
    assert (lock.locked(), lock._held, lock.get_owner_id()) == (False, False, None)
    lock.acquire()
    assert (lock.locked(), lock._held, lock.get_owner_id()) == (True, True, lock.id)
    assert (rival.locked(), rival._held, rival.get_owner_id()) == (True, False, lock.id)


# --- renewal ------------------------------------------------------------------------


class Hasty:
    """Renew every 0.1 s, as a subclass is told to do it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock_renewal_interval = 0.1


def hasty(module: ModuleType, client: redis.Redis, **options: Any) -> Any:
    cls: Any = type("HastyLock", (Hasty, module.Lock), {})
    return cls(client, KEY, expire=1, auto_renewal=True, **options)


def test_renewal_is_set_up_as_documented(
    module: ModuleType, client: redis.Redis
) -> None:
    lock = module.Lock(client, KEY, expire=3, auto_renewal=True)
    assert lock._lock_renewal_interval == 2.0
    assert lock._lock_renewal_thread is None
    with lock:
        assert lock._lock_renewal_thread.daemon
        assert not lock._lock_renewal_stop.is_set()
        assert lock._lock_renewal_thread.is_alive()
    assert lock._lock_renewal_thread is None
    assert module.Lock(client, KEY, expire=3)._lock_renewal_interval is None


def test_renewal_keeps_the_lock(
    module: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    with hasty(module, client):
        server.pexpire(LOCK, 400)
        assert wait_until(lambda: server.pttl(LOCK) > 800)


def test_renewal_ends_when_the_lock_is_garbage(
    module: ModuleType, client: redis.Redis
) -> None:
    lock = hasty(module, client)
    lock.acquire()
    thread = lock._lock_renewal_thread
    del lock
    gc.collect()
    thread.join(8)
    assert not thread.is_alive()


def test_timeout_longer_than_expire_is_fine_with_renewal(
    module: ModuleType, client: redis.Redis
) -> None:
    assert hasty(module, client).acquire(timeout=100)


def test_second_renewal_thread_is_refused(
    module: ModuleType, client: redis.Redis
) -> None:
    with (
        hasty(module, client) as lock,
        pytest.raises(module.AlreadyStarted, match=r"^Lock refresh thread already st"),
    ):
        lock._start_lock_renewer()


@their_thread_may_die
def test_lock_that_was_lost_while_renewed_can_be_acquired_again(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    """Theirs sets the key, then raises AlreadyStarted: nobody can have it any more."""
    lock = hasty(better, client)
    lock.acquire()
    server.delete(LOCK)
    assert wait_until(lambda: not lock._lock_renewal_thread.is_alive())
    assert lock.acquire(blocking=False)
    lock.release()


@their_thread_may_die
@pytest.mark.slow
def test_renewal_goes_on_after_an_error(
    better: ModuleType, masters: LocalMasters
) -> None:
    """Theirs ends at the first error, and nobody is told."""
    client = impatient(masters.urls[0], socket_timeout=0.1)
    raw = impatient(masters.urls[0], protocol=2)
    with hasty(better, client) as lock:
        masters.pause(0)
        time.sleep(0.5)
        masters.resume(0)
        raw.pexpire(LOCK, 900)
        time.sleep(1.2)
        assert raw.get(LOCK) == lock.id.encode()
    client.close()
    raw.close()


# --- their bugs ---------------------------------------------------------------------


@pytest.mark.slow
def test_timeout_of_half_a_second_is_half_a_second(
    better: ModuleType, client: redis.Redis
) -> None:
    """Theirs cuts it off to 0, which is none."""
    better.Lock(client, KEY).acquire()
    answers: list[bool] = []
    waiter = threading.Thread(
        target=lambda: answers.append(better.Lock(client, KEY).acquire(timeout=0.5)),
        daemon=True,
    )
    waiter.start()
    waiter.join(1.5)
    better.Lock(client, KEY).reset()  # so that it ends
    waiter.join(8)
    assert answers == [False]


@pytest.mark.slow
def test_lost_race_does_not_begin_the_timeout_anew(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    server.set(LOCK, "another")
    stop = threading.Event()

    def signal() -> None:
        while not stop.wait(0.3):
            server.lpush(SIGNAL, 1)

    signals = threading.Thread(target=signal)
    signals.start()
    waiter = threading.Thread(target=better.Lock(client, KEY).acquire, args=[True, 1])
    waiter.start()
    waiter.join(2)
    is_waiting = waiter.is_alive()
    stop.set()
    signals.join()
    waiter.join(8)
    assert not is_waiting


@pytest.mark.slow
def test_waiter_without_expire_outlives_a_holder_that_died(
    better: ModuleType, client: redis.Redis, server: redis.Redis
) -> None:
    """Theirs waits for a signal that nobody will send."""
    server.set(LOCK, "dead", px=300)
    waiter = threading.Thread(target=better.Lock(client, KEY).acquire, daemon=True)
    waiter.start()
    waiter.join(2)
    is_waiting = waiter.is_alive()
    better.Lock(client, KEY).reset()
    waiter.join(8)
    assert not is_waiting


@pytest.mark.slow
def test_wait_longer_than_the_client_waits_for_a_reply_is_no_error(
    better: ModuleType, urls: list[str], server: redis.Redis
) -> None:
    client = impatient(urls[0], socket_timeout=0.2)
    server.set(LOCK, "another")
    with later(0.5, lambda: better.Lock(client, KEY).reset()):
        assert better.Lock(client, KEY).acquire() is True
    client.close()


@pytest.mark.parametrize("expire", [0.5, 0.999])
def test_expire_below_a_second_is_refused(
    better: ModuleType, client: redis.Redis, expire: float
) -> None:
    """Theirs cuts it off to 0 and gets an error from the server at acquire."""
    with pytest.raises(ValueError, match=f"expire={expire}: allowed is 1 s and more"):
        better.Lock(client, KEY, expire=expire)


def test_forked_child_does_not_hold_what_its_parent_holds(
    better: ModuleType, client: redis.Redis, server: redis.Redis, tmp_path: Path
) -> None:
    """Theirs has one id for both: each of them releases the lock of the other."""
    lock = better.Lock(client, KEY)
    lock.acquire()
    if os.fork() == 0:
        try:
            (tmp_path / "taken").write_text(str(lock.acquire(blocking=False)))
            lock.release()
        except better.NotAcquired as error:
            (tmp_path / "said").write_text(str(error))
        finally:
            os._exit(0)
    os.wait()
    assert server.get(LOCK) == lock.id.encode()
    assert (tmp_path / "taken").read_text() == "False"  # not: AlreadyAcquired
    assert "is not acquired" in (tmp_path / "said").read_text()
    lock.release()


# --- servers and clients ------------------------------------------------------------


@pytest.mark.slow
def test_server_that_is_down_is_a_connection_error(
    module: ModuleType, masters: LocalMasters
) -> None:
    client = impatient(masters.urls[0])
    lock = module.Lock(client, KEY)
    masters.stop(0)
    for call in (lock.acquire, lock.release, lock.locked):
        with pytest.raises(redis.ConnectionError):
            call()
    client.close()


@pytest.mark.parametrize("given", [None, "mine"])
@pytest.mark.slow
def test_own_id_is_not_used_again_after_a_try_without_an_answer(
    masters: LocalMasters, given: str | None
) -> None:
    """The roll-back of that try may arrive late: it must not meet the next key."""
    client = impatient(masters.urls[0])
    lock = ours.Lock(client, KEY, id=given)
    before = lock.id
    masters.stop(0)
    with pytest.raises(redis.ConnectionError):
        lock.acquire()
    assert (lock.id == before) == (given is not None)
    client.close()


def test_lock_for_every_use_opens_one_connection(
    urls: list[str], server: redis.Redis
) -> None:
    gc.collect()
    before = connections(server)
    pool = redis.ConnectionPool.from_url(urls[0])
    clients = [redis.Redis(connection_pool=pool) for _ in range(20)]
    for client in clients:
        with ours.Lock(client, KEY):
            pass
    assert connections(server) <= before + 1


def test_client_that_cannot_be_copied_is_refused_when_the_lock_is_made() -> None:
    with pytest.raises(ConfigurationError, match="a cluster client is not one master"):
        ours.Lock(cluster(), KEY, strict=False)


@pytest.mark.parametrize(
    ("remaining", "left", "socket_timeout", "waits"),
    [
        (-1, None, None, _signal.LONGEST_WAIT),
        (-1, 2.0, None, 2.0),
        (1000, None, None, 1.002),
        (-1, None, 0.5, 0.25),
        (-1, 0.0001, None, _signal.SHORTEST_WAIT),
    ],
)
def test_wait_is_as_long_as_it_is_of_use(
    remaining: int, left: float | None, socket_timeout: float | None, waits: float
) -> None:
    from fastredlock import MasterVote, Vote

    waited: list[tuple[str, float]] = []
    client = redis.Redis(socket_timeout=socket_timeout, retry=Retry(NoBackoff(), 0))
    client.blpop = lambda *args: waited.append(args)  # type: ignore[method-assign]
    vote = MasterVote("m", Vote.TAKEN, remaining_ms=remaining)
    _signal.wait(client, SIGNAL, [vote], left)
    assert waited == [(SIGNAL, waits)]


def test_log_of_a_release_names_the_lock(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "redis_lock"), module.Lock(client, KEY):
        pass
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("redis_lock.acquire", f"Acquiring Lock({LOCK!r}) ..."),
        ("redis_lock.acquire", f"Acquired Lock({LOCK!r})."),
        ("redis_lock.release", f"Releasing Lock({LOCK!r})."),
    ]


@pytest.mark.slow
def test_log_of_a_renewal_is_theirs(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Section E. People search their logs for these texts."""
    caplog.set_level(logging.DEBUG, "redis_lock")
    with hasty(module, client) as lock:
        interval = lock._lock_renewal_interval
        time.sleep(interval * 1.5)
    assert [
        (each.name.removeprefix("redis_lock."), each.getMessage())
        for each in caplog.records
        if "refresh" in each.name
    ] == [
        (
            "refresh.start",
            f"Starting renewal thread for Lock({LOCK!r}). "
            f"Refresh interval: {interval} seconds.",
        ),
        ("refresh.thread", f"Refreshing Lock({LOCK!r})."),
        (
            "refresh.shutdown",
            f"Signaling renewal thread for Lock({LOCK!r}) to exit.",
        ),
        ("refresh.thread", f"Exiting renewal thread for Lock({LOCK!r})."),
        ("refresh.exit", f"Renewal thread for Lock({LOCK!r}) exited."),
    ]


@pytest.mark.slow
def test_log_of_a_renewal_names_a_lock_that_is_garbage(
    module: ModuleType, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Section E. People search their logs for this text."""
    caplog.set_level(logging.DEBUG, "redis_lock")
    lock = hasty(module, client)
    lock.acquire()
    thread = lock._lock_renewal_thread
    del lock
    gc.collect()
    thread.join(8)
    stopped = f"Stopping loop because Lock({LOCK!r}) was garbage collected."
    assert stopped in [each.getMessage() for each in caplog.records]
