"""Bugs of redlock-py that are not copied, and clients that are handed over."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.redlock.face import PAIR, TTL, Impatient
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.threads import in_threads
from tests.support.two_libraries import forbid_sockets, load, not_copied
from tests.support.waiting import stopwatch

OURS = PAIR[1]
better = not_copied(*PAIR)


# --- bugs that are not copied ---------------------------------------------------------


def test_quorum_is_a_lock_although_another_server_is_down(
    better: ModuleType, masters: LocalMasters, impatient: Impatient
) -> None:
    manager = better.Redlock(impatient(masters.urls))
    masters.stop(4)
    lock = manager.lock(KEY, TTL)  # theirs: raises, and leaves four keys behind
    assert lock
    manager.unlock(lock)
    assert manager.lock(KEY, TTL)


def test_no_delay_after_the_last_try(
    better: ModuleType, clients: list[redis.Redis]
) -> None:
    manager = better.Redlock(clients, retry_count=1, retry_delay=1)
    assert manager.lock(KEY, TTL)
    with stopwatch() as elapsed:
        assert manager.lock(KEY, TTL) is False
        assert elapsed() < 0.9


def test_every_try_has_a_key_of_its_own(
    better: ModuleType, urls: list[str], servers: list[redis.Redis]
) -> None:
    drawn = []

    class Watched(better.Redlock):  # type: ignore[name-defined]
        def get_unique_id(self) -> bytes:
            drawn.append(super().get_unique_id())
            return bytes(drawn[-1])

    assert better.Redlock(urls).lock(KEY, TTL)
    assert Watched(urls, retry_count=3, retry_delay=0.001).lock(KEY, TTL) is False
    assert len(set(drawn)) == 3


def test_key_cannot_be_predicted_from_the_seed_of_random(
    better: ModuleType, urls: list[str]
) -> None:
    manager = better.Redlock(urls)
    keys = []
    for _ in range(2):
        random.seed(7)
        keys.append(manager.get_unique_id())
    assert keys[0] != keys[1]


def test_validity_when_the_wall_clock_is_set_back_then_is_not_longer_than_the_ttl(
    better: ModuleType, clients: list[redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = better.Redlock(clients)
    hours = iter(range(100, 0, -1))
    monkeypatch.setattr(time, "time", lambda: next(hours) * 3600.0)
    assert manager.lock(KEY, TTL).validity < TTL


def test_ttl_is_checked_under_optimisation_as_well(better: ModuleType) -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; from {better.__name__} import *\n"
        "try: Redlock(['redis://localhost']).lock_instance(None, 'k', b'v', 1.5)\n"
        "except ValueError: print('refused')"
    )
    told = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False
    )
    assert told.stdout == "refused\n"


# --- clients that are handed over -----------------------------------------------------


def test_sockets_of_clients_are_never_used(urls: list[str]) -> None:
    clients = [forbid_sockets(redis.Redis.from_url(url)) for url in urls]
    manager = load(OURS).Redlock(clients)
    lock = manager.lock(KEY, TTL)
    manager.unlock(lock)
    assert manager.lock_instance(clients[0], KEY, b"v", TTL)


def test_clients_share_one_set_of_connections(
    clients: list[redis.Redis], servers: list[redis.Redis]
) -> None:
    assert load(OURS).Redlock(clients).lock("first", TTL)
    connected = servers[0].info("clients")["connected_clients"]
    for i in range(5):
        assert load(OURS).Redlock(clients).lock(f"second:{i}", TTL)
    again = servers[0].info("clients")["connected_clients"]
    assert again == connected


@pytest.mark.parametrize("decode_responses", [False, True])
def test_settings_of_clients_are_copied(
    redlock: ModuleType, decode_responses: bool
) -> None:
    with LocalMasters(1, options=("--requirepass", "s3cret")) as masters:
        options: dict[str, Any] = {"password": "s3cret", "db": 3}
        options["decode_responses"] = decode_responses
        client = redis.Redis(host="127.0.0.1", port=masters.ports[0], **options)
        lock = redlock.Redlock([client]).lock(KEY, TTL)
        stored = client.get(KEY)
        assert stored == (lock.key.decode() if decode_responses else lock.key)
        client.close()


def test_unix_socket_of_a_client_is_copied(redlock: ModuleType) -> None:
    with LocalMasters(1, unix=True) as masters:
        client = redis.Redis.from_url(masters.urls[0])
        manager = redlock.Redlock([client])
        assert manager.lock(KEY, TTL).key == client.get(KEY)
        client.close()


def test_client_that_cannot_be_copied_is_named() -> None:
    sentinel = pytest.importorskip("redis.sentinel").Sentinel([("h", 26379)])
    ours = load(OURS)
    with pytest.raises(Warning, match="Sentinel service 'orders' has no fixed address"):
        ours.Redlock([sentinel.master_for("orders")])
    pool = redis.ConnectionPool(connection_class=type("Own", (redis.Connection,), {}))
    with pytest.raises(Warning, match=r"connection class .*Own is not redis-py's own"):
        ours.Redlock([redis.Redis(connection_pool=pool)])
    client = redis.Redis(credential_provider=object())  # type: ignore[arg-type]
    with pytest.raises(Warning, match="credential_provider of type object"):
        ours.Redlock([client])


def test_same_database_twice_is_refused() -> None:
    """Theirs takes it, and never gets a lock."""
    with pytest.raises(Warning, match="are the same database"):
        load(OURS).Redlock([{"host": "h", "db": 1}, {"host": "h", "db": 1}])


def test_failed_try_is_logged_with_what_every_server_said(
    masters: LocalMasters, caplog: pytest.LogCaptureFixture
) -> None:
    manager = load(OURS).Redlock(masters.urls, retry_count=1)
    for i in range(3):
        masters.stop(i)
    assert manager.lock(KEY, TTL) is False
    assert "fewer than a quorum of masters could answer" in caplog.text
    assert f"127.0.0.1:{masters.ports[0]} FAILED" in caplog.text


def test_first_try_waits_for_connections_longer_than_for_a_round(
    urls: list[str],
) -> None:
    with Proxy(urls[0]) as slow:
        manager = load(OURS).Redlock([slow.url], retry_count=1)
        slow.set(holds_down=True)

        def heal() -> None:
            time.sleep(0.3)
            slow.heal()

        _, lock = in_threads([heal, lambda: manager.lock(KEY, 2_000)])
        assert lock  # a round with this ttl waits 0.1 s
