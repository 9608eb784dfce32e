"""redis-py clients as masters: their settings are copied, nothing is connected."""

from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock._options.masters import Endpoint, TLSSettings, parse_masters
from fastredlock.errors import ConfigurationError

redis = pytest.importorskip("redis")
aioredis = pytest.importorskip("redis.asyncio")
sentinel = pytest.importorskip("redis.sentinel")

either = pytest.mark.parametrize("module", [redis, aioredis], ids=["sync", "asyncio"])


def refusal_of(client: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_masters([client])
    return str(caught.value)


@either
@pytest.mark.parametrize(
    ("kwargs", "endpoint"),
    [
        ({}, Endpoint("localhost", 6379)),
        ({"host": b"h", "port": 1, "db": 2}, Endpoint("h", 1, db=2)),
        (
            {"host": "h", "username": "u", "password": b"p"},
            Endpoint("h", 6379, username="u", password="p"),
        ),
        ({"unix_socket_path": "/r"}, Endpoint("", 0, "/r")),
        ({"host": "h", "ssl": True}, Endpoint("h", 6379, tls=TLSSettings())),
        (
            {"host": "h", "ssl": True, "ssl_ca_certs": "/ca", "ssl_cert_reqs": "none"},
            Endpoint("h", 6379, tls=TLSSettings("none", False, "/ca")),
        ),
    ],
)
def test_client_is_copied_as_the_dict_of_its_arguments_would_be(
    module: Any, kwargs: dict[str, object], endpoint: Endpoint
) -> None:
    client = module.Redis(**kwargs)
    assert parse_masters([client]) == parse_masters([kwargs]) == (endpoint,)
    assert not client.connection_pool._available_connections


@either
@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://u:p%40@h:1/2",
        "redis://u@[::1]/1?db=3",
        "redis://:%2B+@h?socket_timeout=1&client_name=a+b",
        "rediss://h?ssl_cert_reqs=optional&ssl_check_hostname=no&ssl_ca_certs=/a%2Bb+c",
        "unix://u:p@/r%20s?db=1",
        "unix:///r?password=a+b%2B",
    ],
)
def test_url_and_client_made_from_it_give_the_same_endpoint(
    module: Any, url: str
) -> None:
    assert parse_masters([module.from_url(url)]) == parse_masters([url])


def test_settings_of_a_tls_client_may_be_enums_of_ssl() -> None:
    import ssl

    client = redis.Redis(
        ssl=True,
        ssl_cert_reqs=ssl.CERT_OPTIONAL,
        ssl_min_version=ssl.TLSVersion.TLSv1_3,
    )
    (endpoint,) = parse_masters([client])
    assert endpoint.tls == TLSSettings("optional", min_version=772)
    assert type(endpoint.tls.min_version) is int


def test_client_with_a_blocking_pool_is_copied() -> None:
    pool = redis.BlockingConnectionPool(host="h", timeout=3)
    (endpoint,) = parse_masters([redis.Redis(connection_pool=pool)])
    assert endpoint == Endpoint("h", 6379)


def test_client_and_url_of_the_same_server_are_duplicates() -> None:
    with pytest.raises(ConfigurationError, match=r"masters\[0\].*masters\[1\].*same"):
        parse_masters(["redis://localhost", redis.Redis()])


@either
def test_one_client_in_place_of_an_iterable_is_refused_unused(module: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"got one Redis: wrap it in a list"):
        parse_masters(module.Redis(port=1))


def test_cluster_client_is_refused() -> None:
    client = aioredis.RedisCluster(host="h")
    assert "cluster client is not one master" in refusal_of(client)
    assert "pass the URLs of independent masters" in refusal_of(client)


@either
def test_sentinel_client_is_refused_with_the_name_of_its_service(module: Any) -> None:
    sentinels = module.sentinel.Sentinel([("h", 26379)])
    message = refusal_of(sentinels.master_for("orders"))
    assert "Sentinel service 'orders' has no fixed address" in message
    assert "must be a URL str" in refusal_of(sentinels)


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("redis_connect_func", "pass username, password and db, or credentials"),
        ("ssl_ciphers", "leave it out"),
        ("ssl_validate_ocsp", "fastredlock makes no OCSP checks"),
    ],
)
def test_setting_that_decides_on_trust_is_refused_with_what_to_do(
    setting: str, instead: str
) -> None:
    message = refusal_of(redis.Redis(ssl=True, **{setting: object()}))
    assert f"{setting} cannot be copied: {instead}" in message


def test_client_with_a_connection_class_of_its_own_is_refused() -> None:
    class Tunnel(redis.Connection):  # type: ignore[name-defined]
        pass

    pool = redis.ConnectionPool(connection_class=Tunnel, password="hunter2")
    message = refusal_of(redis.Redis(connection_pool=pool))
    assert "Tunnel is not redis-py's own" in message
    assert "hunter2" not in message


def test_settings_of_a_later_redis_py_are_dropped_unless_they_concern_tls() -> None:
    client = redis.Redis(ssl=True)
    client.connection_pool.connection_kwargs["new_setting"] = 1
    assert parse_masters([client])
    client.connection_pool.connection_kwargs["ssl_new_setting"] = 1
    assert "unknown setting 'ssl_new_setting'" in refusal_of(client)


def test_object_with_a_pool_of_another_shape_is_refused() -> None:
    client = SimpleNamespace(connection_pool=SimpleNamespace())
    assert "no connection_kwargs to copy; pass a URL" in refusal_of(client)
