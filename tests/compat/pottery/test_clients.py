"""The clients that pottery's two Redlocks are handed: settings copied, sockets not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.compat.pottery.face import OURS, STORED, UUID, Face
from tests.support.keys import KEY
from tests.support.two_libraries import forbid_sockets, load

Clients = set[redis.Redis]


def test_sockets_of_clients_are_never_used(clients: Clients) -> None:
    masters = set(map(forbid_sockets, clients))
    with load(OURS).Redlock(key=KEY, masters=masters) as lock:
        assert lock.locked()
        lock.extend()


def test_lock_objects_share_one_set_of_connections(
    clients: Clients, servers: list[redis.Redis]
) -> None:
    def connected() -> int:
        return int(servers[0].info("clients")["connected_clients"])

    ours = load(OURS)
    assert ours.Redlock(key="first", masters=clients).acquire()
    before = connected()
    for i in range(5):
        assert ours.Redlock(key=f"second:{i}", masters=clients).acquire()
    assert connected() == before


def test_settings_of_clients_are_copied(pottery: Face) -> None:
    with LocalMasters(1, options=("--requirepass", "s3cret")) as masters:
        url = f"redis://:s3cret@127.0.0.1:{masters.ports[0]}/3"
        client = pottery.client(url, decode_responses=True)
        with pottery.Redlock(key=KEY, masters={client}) as lock:
            with redis.Redis.from_url(url) as server:
                assert re.fullmatch(UUID, server.get(STORED))
            assert lock.locked()


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
