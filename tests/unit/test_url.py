"""Masters as callers write them: what each form means, and what is refused."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from functools import partial, wraps
from inspect import iscoroutine
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import redis
import redis.asyncio as aioredis
import redis.sentinel
from hypothesis import given, settings
from hypothesis import strategies as st

from fastredlock._options.masters import Endpoint, TLSSettings, parse_masters
from fastredlock._options.settings import masters_in
from fastredlock.errors import ConfigurationError

MARKER = "hunter2"
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
passwords = st.builds("{}{}{}".format, anything, st.just(MARKER), anything)
# What breaks a URL, more often than chance would bring it.
broken_text = st.text("/?#@:[]&=%+ \t\n\\aZ9é", max_size=6)
broken_passwords = st.builds("{}{}{}".format, broken_text, st.just(MARKER), broken_text)


def one(master: object) -> Endpoint:
    (endpoint,) = parse_masters([master])
    return endpoint


def refusal_of(masters: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_masters(masters)  # type: ignore[arg-type]
    return str(caught.value)


class Tunnel(redis.Connection):
    """A connection that goes another way."""


def later(*settings: str, connection_class: Any = redis.SSLConnection) -> redis.Redis:
    """Make a client whose pool has settings that a later redis-py may have."""
    pool = redis.ConnectionPool(connection_class=connection_class, password=MARKER)
    pool.connection_kwargs |= dict.fromkeys(settings, object())
    return redis.Redis(connection_pool=pool)


# ---- what is accepted


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("redis://", Endpoint("localhost", 6379)),
        ("redis://127.0.0.1:6380/3", Endpoint("127.0.0.1", 6380, db=3)),
        ("REDIS://h/", Endpoint("h", 6379)),
        ("redis://:6380", Endpoint("localhost", 6380)),
        ("redis://h/1?db=2", Endpoint("h", 6379, db=2)),
        ("redis://[::1]:7000", Endpoint("::1", 7000)),
        ("redis://[0:0::1]", Endpoint("::1", 6379)),
        ("redis://[fe80::1%25eth0]", Endpoint("fe80::1%eth0", 6379)),
        ("redis://u:p@h", Endpoint("h", 6379, username="u", password="p")),
        ("redis://:p%40%2F@h", Endpoint("h", 6379, password="p@/")),
        ("redis://:a@b:c@h", Endpoint("h", 6379, password="a@b:c")),
        ("redis://u@h", Endpoint("h", 6379, username="u", password="")),
        ("redis://:@h", Endpoint("h", 6379)),
        ("redis://h?password=a+b", Endpoint("h", 6379, password="a b")),
        ("redis://h?protocol=3&socket_timeout=5", Endpoint("h", 6379)),
        ("rediss://h", Endpoint("h", 6379, tls=TLSSettings())),
        ("unix:///run/r.sock", Endpoint("", 0, "/run/r.sock")),
        ("unix:///run/r@1.sock?db=1", Endpoint("", 0, "/run/r@1.sock", db=1)),
        ("unix://u:p@/a%20b", Endpoint("", 0, "/a b", username="u", password="p")),
    ],
)
def test_url_means_what_it_means_to_redis_py(url: str, endpoint: Endpoint) -> None:
    assert one(url) == endpoint


@pytest.mark.parametrize(
    ("master", "endpoint"),
    [
        (("h", 1), Endpoint("h", 1)),
        (["h", "65535"], Endpoint("h", 65535)),
        (("::1", 6379), Endpoint("::1", 6379)),
        ({}, Endpoint("localhost", 6379)),
        ({"host": b"h", "port": "7", "db": None}, Endpoint("h", 7)),
        ({"password": b"p\xc3\xa9"}, Endpoint("localhost", 6379, password="pé")),
        ({"username": "", "password": ""}, Endpoint("localhost", 6379)),
        ({"unix_socket_path": "/r", "host": "h"}, Endpoint("", 0, "/r")),
        ({"unix_socket_path": None, "ssl": None}, Endpoint("localhost", 6379)),
        ({"ssl": False, "ssl_ca_certs": "/ca"}, Endpoint("localhost", 6379)),
        ({"socket_timeout": 1, "decode_responses": True, "retry": object()}, one({})),
    ],
)
def test_pair_or_dict_means_what_it_means_to_redis_py(
    master: object, endpoint: Endpoint
) -> None:
    assert one(master) == endpoint


KEYS = {"ca_certs": "/ca", "certfile": "/c", "keyfile": "/k", "ca_path": "/p"}
KEYS["password"] = "kp"
ALL_KEYS = TLSSettings(**KEYS)  # type: ignore[arg-type]
OF_TLS = {f"ssl_{name}": value for name, value in KEYS.items()}
UNCHECKED = TLSSettings(cert_reqs="none", check_hostname=False)


@pytest.mark.parametrize(
    ("master", "tls"),
    [
        (f"rediss://h?{urlencode(OF_TLS)}", ALL_KEYS),
        ({"ssl": True, **OF_TLS}, ALL_KEYS),
        ({"ssl": True, "ssl_ca_data": b"\x30\xff"}, TLSSettings(ca_data=b"\x30\xff")),
        ({"ssl": True, "ssl_ca_data": "PEM"}, TLSSettings(ca_data="PEM")),
        # Without a certificate there is no host name to check.
        *(({"ssl": True, "ssl_cert_reqs": no}, UNCHECKED) for no in ("none", None, 0)),
        ("rediss://h?ssl_check_hostname=False", TLSSettings(check_hostname=False)),
        ("rediss://h?ssl_min_version=772", TLSSettings(min_version=772)),
        ("rediss://h?ssl_server_name=c.example", TLSSettings(server_name="c.example")),
    ],
)
def test_tls_settings_are_carried_as_they_are(master: object, tls: TLSSettings) -> None:
    assert one(master).tls == tls


@pytest.mark.parametrize(
    ("master", "name"),
    [
        ("redis://u:p@127.0.0.1:6379", "127.0.0.1:6379"),
        ("redis://:p@[::1]/2", "[::1]:6379/2"),
        ("rediss://h", "h:6379"),
        ("unix://u:p@/run/r.sock", "unix:/run/r.sock"),
        ("unix:///run/r.sock?db=1", "unix:/run/r.sock/1"),
    ],
)
def test_name_and_repr_show_the_address_alone(master: str, name: str) -> None:
    assert one(master).name == name
    assert repr(one(master)) == f"<Endpoint {name}>"


# ---- what is refused


@pytest.mark.parametrize(
    ("master", "message"),
    [
        ("http://h", "scheme 'http'; allowed: redis, rediss, unix"),
        ("sentinel://:secret@h", "s1:26379,s2:26379/name"),
        ("localhost:6379", r"no scheme; allowed: .*, rediss\+cluster, as in redis"),
        ("redis://h?foo=1", "unknown option 'foo'; allowed: db, username"),
        ("redis://h?host=x", "unknown option 'host'"),
        ("redis://h?db=1&db=2", "option db twice"),
        ("redis://h?encoding=latin-1", r"has an encoding= by which 'é' is b'.xe9'"),
        ("redis://h?encoding=none", "has an encoding= by which"),
        ({"host": "h", "encoding": "utf-16"}, "has an encoding= by which"),
        ("redis://h/abc", "db .not shown"),
        ("redis://h/-1", "db .not shown"),
        ("redis://h:65536", "port .not shown"),
        ("redis://h:abc", "port that is not a whole number in 1..65535"),
        ("redis://h:", "port that is not a whole number in 1..65535"),
        ("redis://[::1", "port that is not a whole number"),
        ("redis://[]", "host ''"),
        ("redis://::1", "IPv6 has brackets"),
        ("redis://[::z]", "host .not shown"),
        ("redis://h\n", r"begins or ends with '\\n': leave that out"),
        ("redis://a\nb", r"IPv6 without brackets.: it has '\\n'"),
        ("'redis://h'", 'begins or ends with "\'": leave that out'),
        (" redis://h", "begins or ends with ' ': leave that out"),
        ('redis://"h":1', "it has '\"'"),
        ("valkey://h", "scheme 'valkey': write redis://"),
        ("valkeys://h", "scheme 'valkeys': write rediss://"),
        ("valkey+cluster://h", "scheme 'valkey.cluster': write redis.cluster://c1"),
        ("redis+cluster://h/1", "a cluster has database 0 alone"),
        ("redis+cluster://h,", "cluster URL with an empty host"),
        ("redis+cluster://h,h", "startup_nodes, each once"),
        ("redis+cluster://", "cluster URL with an empty host"),
        ("redis+socket:///a", "scheme 'redis.socket': write unix:///path"),
        ("redis://h?ssl_cert_reqs=none", "ssl_cert_reqs needs TLS: use rediss://"),
        ("rediss://h?ssl_cert_reqs=some", "allowed are none, optional, required"),
        ("rediss://h?ssl_check_hostname=perhaps", "'perhaps': allowed are true, yes"),
        ("rediss://h?ssl_min_version=769", r"is not in 771..772"),
        ("rediss://h?ssl_keyfile=/k", "ssl_keyfile needs ssl_certfile"),
        ("rediss://h?ssl_ciphers=NULL", "ssl_ciphers cannot be copied"),
        ("redis://h#1", "URL has a '#', or an '@' behind the host"),
        ("unix:///r#1", "URL has a '#'"),
        ("redis://:%ff@h", "password is not valid UTF-8"),
        ("redis://:\ud800@h", "URL is not valid UTF-8"),
        ("unix://run/r.sock", "unix URL has a host: allowed are unix:///path"),
        ("unix://", "unix socket path of 0 bytes: must be 1..107"),
        (("h", 0), "port 0 is not in 1..65535"),
        (("h", 65536), "port 65536 is not in 1..65535"),
        (("h", "abc"), "port .not shown"),
        (("h", True), "port True is not a whole number in 1..65535"),
        (("h", None), "port None is not a whole number in 1..65535"),
        (("", 1), "host '' is not a name or address of 1..253"),
        ((None, 1), "host is None, must be str or bytes"),
        (("h:1", 1), "host .not shown"),
        (("[::1]", 1), "IPv6 without brackets"),
        ({"db": -1}, "db -1 is not in 0..2147483647"),
        ({"url": "redis://h"}, "unknown setting 'url'; allowed: host, port"),
        ({"password": 1}, "password is of type int, must be str or bytes"),
        ({"unix_socket_path": "x" * 108}, "of 108 bytes: must be 1..107 bytes"),
        ({"unix_socket_path": "a\0"}, "without control characters"),
        ({"unix_socket_path": "/r", "ssl": True}, "takes no TLS"),
        ({"ssl_ca_certs": "/ca"}, "ssl_ca_certs needs TLS: use rediss:// or ssl=True"),
        ({"connection_pool": object()}, "pass the redis-py client itself"),
        (("h", 1, 2), "must be a URL str, .* not tuple"),
        (b"redis://h", "must be a URL str, .* not bytes"),
        (6379, "must be a URL str, .* not int"),
        (
            aioredis.RedisCluster(host="h", address_remap=lambda place: place),
            "ssl_server_name, the name in the certificate",
        ),
        (redis.sentinel.Sentinel([("h", 26379)]), "must be a URL str"),
        (aioredis.sentinel.Sentinel([("h", 26379)]), "must be a URL str"),
        # What decides on trust.
        (later("redis_connect_func"), "pass username, password and db, or credentials"),
        (later("ssl_ciphers"), "ssl_ciphers cannot be copied: leave it out"),
        (later("ssl_validate_ocsp"), "fastredlock makes no OCSP checks"),
        (later("ssl_new_setting"), "unknown setting 'ssl_new_setting'"),
        (later(connection_class=Tunnel), "Tunnel is not redis-py's own"),
        (SimpleNamespace(connection_pool=SimpleNamespace()), "no connection_kwargs to"),
    ],
)
def test_bad_master_is_refused_with_its_position(master: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        parse_masters([("first", 1), master])
    assert str(caught.value).startswith("masters[1]: ")
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize(
    "masters",
    [
        *("redis://h", b"redis://h", {"host": "h"}, ("h", 6379), 6379, None),
        *(redis.Redis(port=1), aioredis.Redis(port=1)),
    ],
)
def test_one_master_in_place_of_an_iterable_is_refused(masters: object) -> None:
    assert "masters must be an iterable, each item a URL" in refusal_of(masters)
    assert "wrap it in a list" in refusal_of(masters)


def test_no_master_and_too_many_are_refused() -> None:
    without_end = (("h", port) for port in itertools.count(1))
    assert refusal_of([]) == "1..64 masters are allowed, none given"
    assert refusal_of(without_end) == "1..64 masters are allowed, more given"
    assert len(parse_masters([("h", port) for port in range(1, 65)])) == 64


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("redis://host:6379/0", ("HOST", 6379)),
        ("redis://host:6379/0", "redis://user:pw@host/1"),
        ("redis://[::1]", {"host": "0:0:0:0:0:0:0:1"}),
        ("redis://host.example", "redis://host.example."),
        ("unix:///r", {"unix_socket_path": b"/r", "db": 1}),
        ("redis://localhost", redis.Redis()),
    ],
)
def test_same_server_twice_is_refused_with_both_positions(
    first: object, second: object
) -> None:
    message = refusal_of([first, ("other", 1), second])
    assert message.startswith("masters[0] (")
    assert "masters[2] (" in message
    assert "are the same server" in message


# ---- no secrets in what is shown


@settings(deadline=None)  # a loaded machine makes no example wrong
@given(st.data())
def test_url_built_from_parts_is_read_back(data: st.DataObject) -> None:
    username, password = data.draw(anything), data.draw(anything)
    port, db = data.draw(st.integers(1, 65535)), data.draw(st.integers(0, 2**31 - 1))
    userinfo = f"{quote(username, safe='')}:{quote(password, safe='')}@"
    expected = one({"username": username, "password": password, "db": db, "port": port})
    assert one(f"redis://{userinfo}localhost:{port}/{db}") == expected
    path = "/" + data.draw(st.text("abc /?#@%é", max_size=40))
    expected = expected._replace(host="", port=0, path=path)
    assert one(f"unix://{userinfo}{quote(path)}?db={db}") == expected


@pytest.mark.parametrize(
    "template",
    [
        "redis://user:{}@host:6379/0",
        "redis://:{}@host:port/0",
        "redis://user:{}@[::1/0",
        "redis://user:{}@host:0/x?y=z",
        "rediss://{}@host/?ssl_cert_reqs=no",
        "unix://user:{}@/path?mode=1",
        "unix://user:{}@host/path",
        "redis://host?password={}",
        "redis://host?password={}&unknown=1",
        "http://user:{}@host",
        "user:{}@host",
    ],
)
@settings(deadline=None)
@given(password=broken_passwords)
def test_password_is_never_shown_when_it_breaks_a_url(
    template: str, password: str
) -> None:
    # In a list, and where the list was forgotten.
    for masters in ([template.format(password)], template.format(password)):
        assert MARKER not in all_that_is_shown(masters)


@pytest.mark.parametrize(
    "master",
    [
        *("redis://u:h:hunter2", "redis://[u:h:hunter2]", "redis://u%3Ah%3Ahunter2"),
        *("redis://h/hunter2", "redis://h:1?db=hunter2", "redis://h:1?hunter2!=1"),
        *("redis://hunter2 x", "redis://u:99999", "redis://u:1?hunter2#"),
        *(("h", "hunter2"), ("u:h:hunter2", 1), ("redis://u:hunter2", 1)),
        *({"host": "h", "port": "hunter2"}, {"host": "h", "db": b"hunter2"}),
    ],
)
def test_password_is_never_shown_when_it_stands_in_another_place(
    master: object,
) -> None:
    said = all_that_is_shown([master])
    assert "hunter2" not in said
    assert "99999" not in said


@settings(deadline=None)
@given(password=passwords)
def test_password_is_never_shown_when_it_is_a_setting(password: str) -> None:
    good = {"host": "h", "password": password, "ssl": True, "ssl_password": password}
    for wrong in ({}, {"port": 0}, {"db": password + "@"}, {"unknown": password}):
        assert MARKER not in all_that_is_shown([good | wrong])
    assert MARKER not in all_that_is_shown([(f"u:{password}@h", 1)])
    assert MARKER not in all_that_is_shown([good, good])


def all_that_is_shown(masters: object) -> str:
    """Return what logs may hold: the names, or the errors, hidden causes included."""
    try:
        endpoints = parse_masters(masters)  # type: ignore[arg-type]
    except ConfigurationError as error:
        error.__suppress_context__ = False
        return "".join(traceback.format_exception(error)).lower()
    shown = [f"{each!r} {each} {each.name} {each.tls}" for each in endpoints]
    return repr(endpoints).lower() + "".join(shown).lower()


# --- redis-py clients as masters: settings are copied, what overrides them is refused


either = pytest.mark.parametrize("module", [redis, aioredis], ids=["sync", "asyncio"])


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


def test_cluster_client_is_copied() -> None:
    client = aioredis.RedisCluster(host="h", port=7, password="x", ssl=True)
    (endpoint,) = parse_masters([client])
    assert (endpoint.seeds, endpoint.password) == ((("h", 7),), "x")
    assert endpoint.tls is not None
    assert endpoint.name == "cluster:h:7"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"startup_nodes": "h"}, "must be a list of"),
        ({"startup_nodes": [("h",)]}, "must be a list of"),
        ({"startup_nodes": [1]}, "must be a list of"),
        ({"startup_nodes": [("h", 0)]}, "port 0 is not in"),
        ({"startup_nodes": []}, "each once"),
        ({"startup_nodes": [("h", 1)], "host": "h"}, "beside a host"),
        ({"startup_nodes": [("h", 1)], "db": 1}, "database 0"),
    ],
)
def test_cluster_when_its_dict_is_wrong_then_is_refused(
    settings: dict[str, object], message: str
) -> None:
    assert message in refusal_of([settings])


def test_cluster_when_it_is_written_in_any_form_then_is_the_same() -> None:
    url, by_dict = parse_masters(["rediss+cluster://u:p@h:7,i"]), parse_masters(
        [{"startup_nodes": [("h", 7), ("i", 6379)], "username": "u", "password": "p",
          "ssl": True}]
    )  # fmt: skip
    assert url == by_dict
    assert url[0].failover_ns < 0
    assert masters_in("redis+cluster://h,i:1,redis://j") == (
        "redis+cluster://h,i:1", "redis://j"
    )  # fmt: skip


Make = Callable[[Any], Any]  # a client, of one of the two modules


def prefixing(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0], f"p:{args[1]}", *args[2:])


def methods(name: str, change: Callable[[Any], Any]) -> Make:
    """Make a client with a method of its own, which changes a command's words."""
    given = () if name == "execute_command" else (name,)

    def make(module: Any) -> Any:
        def method(self: Any, *args: Any, **options: Any) -> Any:
            changed = change((*given, *args))[len(given) :]
            return getattr(super(Client, self), name)(*changed, **options)

        Client: Any = type("Client", (module.Redis,), {name: method})  # noqa: N806
        return Client(host="h")

    return make


commands, sets = partial(methods, "execute_command"), partial(methods, "set")


class Forwarding:
    """Wrap a function, and forward every attribute to it, as wrapt does."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __get__(self, owner: Any, kind: Any) -> Any:
        return Forwarding(self.function.__get__(owner, kind))

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*prefixing(args), **options)


def forwarding(module: Any) -> Any:
    function = Forwarding(module.Redis.execute_command)
    return type("C", (module.Redis,), {"execute_command": function})(host="h")


def awaited(module: Any) -> Any:
    class Awaited(aioredis.Redis):
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            return await super().execute_command(*prefixing(args), **options)

    return Awaited()


def pools(name: str, place: dict[str, Any] | None = None, **settings: Any) -> Make:
    """Make a client whose pool has a method of its own: it connects with other
    settings, or changes the place of the connection that it has made."""

    def make(module: Any) -> Any:
        def changed(connection: Any) -> Any:
            vars(connection).update(place or {})
            return connection

        async def awaited(connection: Any) -> Any:
            return changed(await connection)

        def method(self: Any, *args: Any, **options: Any) -> Any:
            self.connection_kwargs = {**self.connection_kwargs, **settings}
            connection = getattr(super(Pool, self), name)(*args, **options)
            return (awaited if iscoroutine(connection) else changed)(connection)

        Pool: Any = type("Pool", (module.ConnectionPool,), {name: method})  # noqa: N806
        return module.Redis(connection_pool=Pool(host="h", port=6379))

    return make


def by_itself(module: Any) -> Any:
    class Pool(module.ConnectionPool):
        def make_connection(self) -> Any:
            return module.Connection(host="other")

    return module.Redis(connection_pool=Pool(host="h"))


def guarded(args: tuple[Any, ...]) -> tuple[Any, ...]:
    if args[0] == "FLUSHALL":
        raise PermissionError
    return args


def patched(module: Any) -> Any:
    client = module.Redis(host="h")
    original = client.execute_command
    client.execute_command = lambda *args: original(*prefixing(args))
    return client


def wrapped(module: Any) -> Any:
    class Wrapper:
        def __init__(self, inner: Any) -> None:
            self.connection_pool = inner.connection_pool
            self.set = lambda name, *args: inner.set(f"p:{name}", *args)

    return Wrapper(module.Redis(host="h"))


def packing(module: Any) -> Any:
    return module.Redis(
        connection_pool=module.ConnectionPool(host="h", command_packer=object())
    )


def moved(module: Any) -> Any:
    client = module.Redis(host="h")
    pool = client.connection_pool
    pool._available_connections.append(pool.make_connection())
    pool.connection_kwargs["db"] = 3
    return client


def single(module: Any) -> Any:
    client = module.Redis(host="h")
    client.connection = object()
    return client


REFUSED: dict[str, Make] = {
    "execute_command with a prefix": commands(prefixing),
    "set with a prefix": sets(prefixing),
    "awaited execute_command with a prefix": awaited,
    "make_connection to another database": pools("make_connection", db=3),
    "get_connection to another host": pools("get_connection", host="other"),
    "make_connection that moves what it has made": pools(
        "make_connection", {"port": 1}
    ),
    "get_connection that moves what it gives": pools("get_connection", {"db": 7}),
    "make_connection by itself": by_itself,
    "wrapper that forwards its attributes": forwarding,
    "patched object": patched,
    "wrapper": wrapped,
    "command_packer": packing,
    "settings changed after a connection": moved,
    "single connection": single,
}
TAKEN: dict[str, Make] = {
    "execute_command that passes on": commands(lambda args: args),
    "execute_command that guards": commands(guarded),
    "set that passes on": sets(lambda args: args),
    "make_connection that passes on": pools("make_connection"),
    "get_connection that passes on": pools("get_connection"),
    "get_connection that moves nothing": pools("get_connection", {"port": 6379}),
    "class with nothing of its own": lambda module: type("C", (module.Redis,), {})(
        host="h"
    ),
}


@either
@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_client_that_would_lock_another_key_or_elsewhere_is_refused(
    module: Any, make: Make
) -> None:
    client = make(module)
    with pytest.raises(ConfigurationError, match="key_prefix"):
        parse_masters([client])
    client.connection = None


@either
@pytest.mark.parametrize("make", TAKEN.values(), ids=TAKEN)
def test_client_that_only_logs_or_guards_is_taken_and_connects_nowhere(
    module: Any, make: Make
) -> None:
    client = make(module)
    for _ in range(2):
        assert parse_masters([client]) == (Endpoint("h", 6379),)
    assert not client.connection_pool._available_connections


class ClosedError(Exception):
    """What a class of a user raises while it lets nothing through."""


@either
@pytest.mark.parametrize(
    ("raised", "seen"),
    [(ClosedError, ClosedError), (AttributeError, ConfigurationError)],
)
def test_error_of_a_class_when_it_is_tried_out_is_raised_as_it_is(
    module: Any, raised: type[Exception], seen: type[Exception]
) -> None:
    """Errors of Python and redis-py may be of the trial itself."""

    def closed(args: tuple[Any, ...]) -> tuple[Any, ...]:
        raise raised("back at 12")

    with pytest.raises(seen, match=r"^back at 12$|raised a AttributeError"):
        parse_masters([commands(closed)(module)])


def test_method_of_redis_py_itself_that_was_replaced_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = redis.Redis.execute_command

    @wraps(original)
    def replaced(self: Any, *args: Any, **options: Any) -> Any:
        return original(self, *prefixing(args), **options)

    monkeypatch.setattr(redis.Redis, "execute_command", replaced)
    with pytest.raises(ConfigurationError, match="p:fastredlock:trial"):
        parse_masters([redis.Redis()])


def test_fakeredis_is_refused_with_how_to_test() -> None:
    fakeredis = pytest.importorskip("fakeredis")
    with pytest.raises(ConfigurationError, match=r"in_memory\(\).*redlock_memory"):
        parse_masters([fakeredis.FakeRedis()])
