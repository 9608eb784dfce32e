"""Locks of redis-py's kin over servers that fail, and the clients they are given."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import LockError
from redis.retry import Retry
from redis.sentinel import Sentinel

from fastredlock import ConfigurationError
from fastredlock.compat.redis import Lock
from fastredlock.testing import LocalMasters
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.redis_flavours import Flavour, cluster, connections, impatient
from tests.support.threads import later
from tests.support.two_libraries import forbid_sockets
from tests.support.waiting import wait_until

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
@pytest.mark.parametrize("call", ["extend", "reacquire"])
def test_extension_while_the_server_is_down_is_a_connection_error(
    flavour: Flavour, one_master: LocalMasters, call: str
) -> None:
    lock = flavour.lock(client=flavour.client(one_master.urls[0]), timeout=5)
    assert lock.acquire()
    one_master.stop(0)
    with pytest.raises(redis.ConnectionError):
        getattr(lock, call)(*([5] if call == "extend" else []))
    assert lock.local.token is not None


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, "never used before"])
def test_server_that_does_not_answer_is_a_timeout_error(
    flavour: Flavour, one_master: LocalMasters, token: str | None
) -> None:
    client = flavour.client(one_master.urls[0], socket_timeout=0.2)
    lock = flavour.lock(client=client, timeout=5)
    lock.locked()
    one_master.pause(0)
    with pytest.raises(redis.TimeoutError):
        lock.acquire(blocking=False, token=token)
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


def test_user_who_may_not_release_gets_the_error_of_redis_py(
    better: Flavour, one_master: LocalMasters
) -> None:
    """redis-py takes the lock, and has this error at the release."""
    server = impatient(one_master.urls[0])
    rights = ["on", ">pw", "~*", "+@all", "-evalsha", "-eval", "-script"]
    natives = "delifeq", "delex"  # which release without a script
    rights += [
        f"-{n}" for n in natives if any(server.execute_command(f"COMMAND INFO {n}"))
    ]
    server.execute_command("ACL", "SETUSER", "lim", *rights)
    client = better.client(one_master.urls[0], username="lim", password="pw")
    with pytest.raises(redis.exceptions.NoPermissionError, match="NOPERM"):
        better.lock(client=client, timeout=5).acquire()


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
            lambda: redis.Redis(redis_connect_func=print),
            "redis_connect_func cannot be copied: pass username, password and db",
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
