"""The masters as the caller writes them -> checked endpoints, before any I/O.

Each form (URL, pair, dict, redis-py client) becomes one dict of redis-py keyword
arguments, `endpoint_of` checks that: so each rule about a value is written once. No
name is resolved, no file or socket opened.

No message quotes a URL. A password with a raw `/`, `?`, `#` or `&`, or without the `@`
behind it, moves the borders between the parts of a URL, so the text in the place of a
port or an option is quoted only where no piece of a password can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .._core import Electorate, Lists, TokenSource
from .._reports.log import warn
from .._steps import run
from ..errors import ConfigurationError
from .redis_py import (
    CARRIED,
    IGNORED,
    OF_SENTINELS,
    OF_SERVICES,
    REFUSED,
    known_settings,
    refuse_encoding,
    refuse_overrides,
    selected,
    settings_of_client,
)
from .retry import number_in, refused_type
from .scripts import hashed

if TYPE_CHECKING:  # masters without sentinels do not pay for it
    from .._endpoints.sentinel import Sentinels


class CredentialProvider(Protocol):
    """A provider of redis-py."""

    def get_credentials(self) -> Any:
        """Return the password, or user name and password."""


class RedisClient(Protocol):
    """A client of redis-py, blocking or awaitable; its settings are copied."""

    @property
    def connection_pool(self) -> Any:
        """The pool, which has the settings."""


#: One of `masters`: a URL, (host, port), redis-py's keyword arguments, or its client.
Master = str | tuple[str, int] | Mapping[str, Any] | RedisClient

#: What `credentials` gives: the password, or the user name (or None) and the password.
Login = str | bytes | tuple[str | bytes] | tuple[str | bytes | None, str | bytes]
Credentials = Callable[[], Login] | CredentialProvider

MAX_MASTERS = 64  # more is a slip, such as a generator without end
_FORMS = "a URL str, a (host, port) pair, a dict or a redis-py client"
_SCHEMES = (
    *("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"),
    *("redis+cluster", "rediss+cluster"),
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789+-."  # of schemes
_ADVICE = {  # by what another library's scheme has in it
    "sentinel": ": write redis+sentinel://s1:26379,s2:26379/name",
    "cluster": ": write redis+cluster://c1:6379,c2:6379",
    "socket": ": write unix:///path",
    "valkeys": ": write rediss://",
    "valkey": ": write redis://",
}
# A URL has other places for the first four, and none for a function.
_NOT_IN_QUERY = {
    *("host", "port", "unix_socket_path", "ssl", "credential_provider"),
    *("sentinels", "service_name", "sentinel_kwargs", "startup_nodes"),
}
_URL_OPTIONS = tuple(name for name in CARRIED if name not in _NOT_IN_QUERY)

MAX_PATH_BYTES = 107  # sun_path holds 108 with its final NUL: man 7 unix
MAX_HOST_LENGTH = 253  # RFC 1035, section 2.3.4, as text
SENTINEL_PORT = 26379
LONGEST_FAILOVER = 3600  # s
MAX_DB = 2**31 - 1  # a database number is an int in the server

_CERT_REQS = ("none", "optional", "required")  # at the index ssl.VerifyMode gives it
NOT_IN_HOST = " ,;/\\@?#[]<>\"'"
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_TLS_1_2, _TLS_1_3 = 0x0303, 0x0304  # ssl.TLSVersion's values, from the wire


class TLSSettings(NamedTuple):
    """Hold the settings of an `ssl.SSLContext`, under redis-py's names without `ssl_`.

    `cert_reqs` is "none", "optional" or "required"; `check_hostname` is False with
    "none", as `ssl` demands. `ca_data` is PEM (str) or DER (bytes). `password` unlocks
    `keyfile`. `min_version` is an `ssl.TLSVersion` as int; None: Python's default.
    `server_name` is that in the certificate, where it is not that of the address.
    """

    cert_reqs: str = "required"
    check_hostname: bool = True
    ca_certs: str | None = None
    ca_path: str | None = None
    ca_data: str | bytes | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = None
    min_version: int | None = None
    server_name: str | None = None

    @property
    def has_files(self) -> bool:
        """Whether it names files, which may change."""
        return bool(self.ca_certs or self.ca_path or self.certfile)

    def __repr__(self) -> str:
        return f"<TLSSettings {self.cert_reqs}, check_hostname={self.check_hostname}>"


class Endpoint(NamedTuple):
    """Hold the settings of one master; all its text can be encoded as UTF-8.

    TCP: `host` (IPv6 without brackets) and `port`; `path` is "". Unix socket: `path`;
    `host` is "" and `port` 0. `password` None means no AUTH; with a `username` there is
    always a password, "" if none was given (which a nopass user of an ACL needs).
    A service of Sentinel: `host` is its name and `port` 0. A cluster: its `seeds` are
    asked for the nodes, and `host` and `port` are those of the first.
    """

    host: str
    port: int
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: TLSSettings | None = None
    credentials: Callable[[], object] | None = None  # gives the login of a connection
    sentinels: Sentinels | None = None  # give the address of a connection
    # For so long an old primary may grant; < 0: as it says; 0: there is no failover.
    failover_ns: int = 0
    lossless_failover: bool = False  # it keeps what it acknowledged: no restart guard
    seeds: tuple[tuple[str, int], ...] = ()  # of a cluster
    replicas: int = 0  # that it is known to have; 0: not known, or as sentinels say

    @property
    def name(self) -> str:
        """The name for errors and logs: the address and a non-zero db, nothing else."""
        database = f"/{self.db}" if self.db else ""
        if self.path:
            return f"unix:{self.path}{database}"
        if self.sentinels is not None:
            return f"sentinel:{self.sentinels.place}{database}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'cluster:' if self.seeds else ''}{host}:{self.port}{database}"

    @property
    def needs_answer(self) -> bool:
        """Whether no connection can be opened without what is asked for anew."""
        return self.credentials is not None or self.sentinels is not None

    @property
    def server(self) -> tuple[str, int, str]:
        """The server, which two masters must not share: its databases fail together."""
        if self.sentinels is not None:
            return self.host, 0, repr(sorted(self.sentinels.addresses))
        if self.seeds:
            return "cluster", 0, repr(sorted(self.seeds))
        return self.host.lower().removesuffix("."), self.port, self.path

    def __repr__(self) -> str:
        return f"<Endpoint {self.name}>"


class SameServerAllowed(tuple[object, ...]):
    """Masters that may be databases of one server: as the replaced libraries allow.

    Each lock is then as safe as that one server, which is logged. For compat alone.
    """

    __slots__ = ()


def parse_masters(masters: Iterable[object]) -> tuple[Endpoint, ...]:
    """Return one checked endpoint per master, in the caller's order.

    Does no I/O. Raises `ConfigurationError`, which names the position and the values
    allowed, and never a password.
    """
    _refuse_single_master(masters)
    given = tuple(islice(masters, MAX_MASTERS + 1))
    if not 1 <= len(given) <= MAX_MASTERS:
        found = "more" if given else "none"
        raise ConfigurationError(f"1..{MAX_MASTERS} masters are allowed, {found} given")
    endpoints = tuple(_endpoint_at(*item) for item in enumerate(given))
    _refuse_duplicates(endpoints, isinstance(masters, SameServerAllowed))
    return endpoints


def parse_lists(
    masters: Iterable[object], changing_to: Iterable[object] | None
) -> tuple[tuple[Endpoint, ...], Electorate]:
    """Return the endpoints of one list, or of two, the old one first; and who votes.

    A master that is in both lists is one endpoint, with the settings of the first.
    """
    old = parse_masters(masters)
    if changing_to is None:
        return old, Electorate(len(old))
    try:
        new = parse_masters(changing_to)
    except ConfigurationError as problem:
        raise ConfigurationError(
            f"changing_to, the list that masters changes to: {problem}; leave it out "
            "while the list does not change"
        ) from None
    votes = {(each.server, each.db): vote for vote, each in enumerate(old)}
    second = [votes.setdefault((each.server, each.db), len(votes)) for each in new]
    if sorted(second) == [*range(len(old))]:
        raise ConfigurationError(
            "changing_to has the masters that masters has: leave it out, or name the "
            "list that is to come"
        )
    if len(votes) > MAX_MASTERS:
        raise ConfigurationError(
            f"masters and changing_to are {len(votes)} masters together, "
            f"{MAX_MASTERS} are allowed: change the list in several steps"
        )
    added = dict(zip(second, new, strict=True))
    union = (*old, *(added[vote] for vote in range(len(old), len(votes))))
    _refuse_duplicates(union, isinstance(masters, SameServerAllowed))
    first = (1 << len(old)) - 1
    return union, Electorate(len(union), first, sum(1 << vote for vote in second))


def lists_told(
    endpoints: tuple[Endpoint, ...], electorate: Electorate, key_prefix: bytes,
    max_ttl_ms: int, is_strict: bool, tokens: TokenSource | None = None,
) -> Lists:  # fmt: skip
    """Return what these clients say of their masters, and compare with others."""
    digits = [_digits(repr((each.server, each.db)).encode()) for each in endpoints]
    lists = (
        frozenset(each for vote, each in enumerate(digits) if members >> vote & 1)
        for members in dict.fromkeys((electorate.first, electorate.second))
    )
    names = {its: each.name for its, each in zip(digits, endpoints, strict=True)}
    keys = _digits(key_prefix)
    return Lists(keys, tuple(lists), names, max_ttl_ms, is_strict, tokens)


def _digits(text: bytes) -> str:
    return hashed(text).sha1.decode()[:6]


def _refuse_single_master(masters: object) -> None:
    one = isinstance(masters, str | bytes | Mapping)
    pair = isinstance(masters, tuple | list) and [*map(type, masters)] == [str, int]
    # __iter__ is asked for by name: a redis-py client has a __getitem__, so iter()
    # takes it and would send commands.
    if one or pair or not hasattr(masters, "__iter__"):
        raise ConfigurationError(
            f"masters must be an iterable, each item {_FORMS}; got one "
            f"{type(masters).__name__}: wrap it in a list"
        )


def _refuse_duplicates(endpoints: tuple[Endpoint, ...], may_share: bool) -> None:
    """Refuse one server twice; of those that `may_share` one, one database twice."""
    first: dict[object, int] = {}
    for position, endpoint in enumerate(endpoints):
        place = (endpoint.server, endpoint.db if may_share else 0)
        earlier = first.setdefault(place, position)
        if earlier == position:
            continue
        if may_share:  # the second SET would find the key of the first
            raise ConfigurationError(
                f"masters[{earlier}] and masters[{position}] are the same database, "
                f"{endpoint.name}: no lock could be held on both"
            )
        raise ConfigurationError(
            f"masters[{earlier}] ({endpoints[earlier].name}) and masters[{position}] "
            f"({endpoint.name}) are the same server: masters must be independent, and "
            "two databases of one server are not"
        )
    if len({endpoint.server for endpoint in endpoints}) < len(endpoints):
        warn(
            "%s: databases of one server fail together: use independent servers",
            ", ".join(endpoint.name for endpoint in endpoints),
        )


def _endpoint_at(position: int, master: object) -> Endpoint:
    try:
        return endpoint_of(known_settings(_settings_of(master)))
    except ConfigurationError as problem:
        raise ConfigurationError(f"masters[{position}]: {problem}") from None


def _settings_of(master: object) -> Mapping[str, object]:
    if isinstance(master, str):
        return _settings_of_url(master)
    if isinstance(master, Mapping):
        return master
    if hasattr(master, "connection_pool") or hasattr(master, "nodes_manager"):
        settings = settings_of_client(master)
        refuse_overrides(master)
        refuse_encoding(master)
        run(selected(master))
        return settings
    if isinstance(master, tuple | list) and len(master) == 2:
        return {"host": master[0], "port": master[1]}
    url = str(master)  # of pydantic's RedisDsn, yarl's URL
    if url.partition("://")[0].lower() in _SCHEMES:
        return _settings_of_url(url)
    raise ConfigurationError(f"must be {_FORMS}, not {type(master).__name__}")


def _settings_of_url(url: str) -> dict[str, object]:
    """Cut a URL into redis-py keyword arguments, percent-decoded.

    `urllib.parse.urlsplit` is not used: it drops tabs and newlines silently, and
    its errors quote pieces of the password.
    """
    scheme, separator, remainder = text("URL", url).partition("://")
    scheme = scheme.lower()
    for char in url[:1] + url[-1:]:
        if char in "\"'`<>" or char.isspace():
            raise ConfigurationError(
                f"URL begins or ends with {char!r}: leave that out"
            )
    if not separator or scheme not in _SCHEMES:
        is_named = separator and not scheme.strip(_LETTERS)
        named = f"scheme {scheme!r}" if is_named else "no scheme"
        advice = next((_ADVICE[word] for word in _ADVICE if word in scheme), "")
        raise ConfigurationError(
            f"URL has {named}{advice if is_named else ''}; allowed: "
            f"{', '.join(_SCHEMES)}, as in redis://localhost:6379"
        )
    ends = (at for at, char in enumerate(remainder) if char in "/?#")
    end = next(ends, len(remainder))
    authority, tail = remainder[:end], remainder[end:]
    is_path_alone = scheme == "unix" and not authority
    if "#" in tail or ("@" in tail and not is_path_alone):
        raise ConfigurationError(
            "URL has a '#', or an '@' behind the host: in a user name, a password and "
            "an option write / ? # @ as %2F %3F %23 %40"
        )
    userinfo, _, address = authority.rpartition("@")
    username, _, password = userinfo.partition(":")
    path, _, query = tail.partition("?")
    if scheme == "unix" and address:
        raise ConfigurationError(
            "unix URL has a host: allowed are unix:///path and unix://user:password@/path"
        )
    place: dict[str, object]
    if scheme == "unix":
        place = {"unix_socket_path": _decoded("unix socket path", path)}
    elif scheme.endswith("+sentinel"):
        place = _service_place(address, path)
    elif scheme.endswith("+cluster"):
        places = [_place(each.strip(), path) for each in address.split(",")]
        if not all("host" in place for place in places):
            raise ConfigurationError("cluster URL with an empty host")
        nodes = [(place["host"], place.get("port", 6379)) for place in places]
        place = {"startup_nodes": nodes, "db": places[0]["db"]}
    else:
        place = _place(address, path)
    return {
        **place,
        **({"ssl": True} if scheme.startswith("rediss") else {}),
        "username": _decoded("username", username),
        "password": _decoded("password", password),
        **_options(query),
    }


def _place(address: str, path: str) -> dict[str, object]:
    if address.startswith("[") and "]" in address:
        host, _, port = address[1:].partition("]")
    else:
        host, colon, digits = address.partition(":")
        port = colon + digits
    place: dict[str, object] = {"db": path.strip("/") or 0}
    if address and not address.startswith(":"):
        place["host"] = _decoded("host", host)
    if port:
        digits = place["port"] = port.removeprefix(":")
        if digits == port or not digits.isdecimal() or len(digits) > 5:
            raise ConfigurationError(
                "URL has a port that is not a whole number in 1..65535 (not shown: a "
                "piece of a password may stand there); user:password ends with '@', "
                "IPv6 has brackets"
            )
    return place


def _service_place(address: str, path: str) -> dict[str, object]:
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise ConfigurationError(
            "sentinel URL without the name of its service: write "
            "redis+sentinel://s1:26379,s2:26379/name"
        )
    places = [_place(each.strip(), "") for each in address.split(",")]
    if not all("host" in place for place in places):
        raise ConfigurationError("sentinel URL with an empty host")
    return {
        "sentinels": [
            (place["host"], place.get("port", SENTINEL_PORT)) for place in places
        ],
        "service_name": _decoded("service name", service),
        "db": db or 0,
    }


def _options(query: str) -> dict[str, object]:
    options: dict[str, object] = {}
    for field in query.split("&") if query else ():
        option, equals, value = field.partition("=")
        known = {*_URL_OPTIONS, *OF_SENTINELS, *IGNORED, *REFUSED}
        if not equals or option not in known:
            # Behind a raw '&' of a password is its second half, no option.
            is_name = not option.strip(_LETTERS + "_")
            is_shown = equals and is_name and "password" not in query
            named = repr(option) if is_shown else "(not shown)"
            raise ConfigurationError(
                f"URL has an unknown option {named}; allowed: {', '.join(_URL_OPTIONS)}"
            )
        if option in options:
            raise ConfigurationError(f"URL has the option {option} twice")
        options[option] = _decoded(option, value.replace("+", " "))  # as redis-py does
    return options


def _decoded(name: str, quoted: str) -> str:
    if "%" not in quoted:
        return text(name, quoted)
    # Imported here: few need it, and it takes 5 ms.
    from urllib.parse import unquote_to_bytes

    return text(name, unquote_to_bytes(quoted))


# ---- one master


def endpoint_of(settings: Mapping[str, object]) -> Endpoint:
    path = settings.get("unix_socket_path")
    tls = _tls(settings)
    sentinels = _sentinels(settings)
    seeds = _seeds(settings)
    if sentinels is not None:
        host, port = sentinels.service, 0
    elif seeds:
        host, port = seeds[0]
    elif path is None:
        host = _host(settings.get("host", "localhost"))
        port = _number("port", settings.get("port", 6379), 1, 65535)
    elif tls:
        raise ConfigurationError(
            "a unix socket takes no TLS: leave the ssl settings out"
        )
    else:
        host, port = "", 0
    username = _optional_text(settings, "username")
    password = _optional_text(settings, "password")
    provider = settings.get("credential_provider")
    if provider is not None and (username or password):  # redis-py refuses this, too
        raise ConfigurationError(
            "credential_provider beside a user name or a password: give one of them"
        )
    db = settings.get("db")
    replicas = _number("replicas", settings.get("replicas", 0), 0, 99)
    lossless = settings.get("lossless_failover")
    is_lossless = lossless is not None and _flag("lossless_failover", lossless)
    failover_ns = _failover_ns(settings, sentinels is not None or bool(seeds))
    if replicas and not failover_ns:
        raise ConfigurationError("replicas without failover_window: a plain master")
    return Endpoint(
        host=host,
        port=port,
        path="" if path is None else _path(path),
        db=0 if db is None else _number("db", db, 0, MAX_DB),
        username=username,
        password=password or ("" if username else None),
        tls=tls,
        credentials=None
        if provider is None
        else checked_credentials("credential_provider", provider),
        sentinels=sentinels,
        failover_ns=0 if is_lossless else failover_ns,
        lossless_failover=is_lossless,
        seeds=seeds,
        replicas=replicas,
    )


def _seeds(settings: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    """Return the nodes of a cluster that are asked for the others."""
    if settings.get("startup_nodes") is None:
        return ()
    others = ("host", "port", "unix_socket_path", "sentinels")
    if any(settings.get(name) for name in others):
        raise ConfigurationError("startup_nodes beside a host, a socket or sentinels")
    if settings.get("db") not in (None, 0, "0"):
        raise ConfigurationError("a cluster has database 0 alone: leave db out")
    return _addresses("startup_nodes", settings["startup_nodes"])


def _addresses(name: str, given: Any) -> tuple[tuple[str, int], ...]:
    pairs = isinstance(given, list | tuple) and all(
        isinstance(each, list | tuple) and len(each) == 2 for each in given
    )
    if not pairs:
        raise ConfigurationError(f"{name} must be a list of (host, port)")
    found = tuple(
        (_host(host), _number("port", port, 1, 65535)) for host, port in given
    )
    if not 1 <= len(set(found)) == len(found) <= MAX_MASTERS:
        raise ConfigurationError(f"1..{MAX_MASTERS} {name}, each once, are allowed")
    return found


def _sentinels(settings: Mapping[str, object]) -> Sentinels | None:
    given: Any = settings.get("sentinels")
    service = settings.get("service_name")
    if given is None or service is None:
        if given is not None or service is not None:
            raise ConfigurationError("sentinels and service_name: give both")
        odd = [name for name in settings if name in OF_SERVICES]
        if odd:
            raise ConfigurationError(f"{odd[0]} without sentinels and service_name")
        return None
    from .._endpoints.sentinel import Sentinels, refuse_without_redis_py

    refuse_without_redis_py()
    kwargs: Any = settings.get("sentinel_kwargs") or {}
    if not isinstance(kwargs, Mapping):
        raise ConfigurationError("sentinel_kwargs must be a dict")
    addresses = _addresses("sentinels", given)
    places = ("host", "port", "unix_socket_path")
    if not service or any(settings.get(name) for name in places):
        raise ConfigurationError(
            "service_name must not be empty, nor have a host, port or socket beside it"
        )
    options = dict(kwargs)
    for name in OF_SENTINELS:
        if name in settings:
            options[name.removeprefix("sentinel_")] = settings[name]
    try:  # a bad value is an error here, before any I/O
        tls = _tls(options)
    except ConfigurationError as error:
        raise ConfigurationError(f"of the sentinels: {error}") from None
    if tls is not None:  # text of a URL, as what it means
        options |= {"ssl": True, "ssl_check_hostname": tls.check_hostname}
        options["ssl_min_version"] = tls.min_version
    return Sentinels(
        text("service_name", service),
        addresses,
        options,
        _number("min_other_sentinels", settings.get("min_other_sentinels", 0), 0, 99),
        _optional_text(settings, "force_master_ip"),
        _number("replicas", settings.get("replicas", 0), 0, 99),
    )


def _failover_ns(settings: Mapping[str, object], fails_over: bool) -> int:
    window: Any = settings.get("failover_window")
    if window is None:
        return -1 if fails_over else 0
    if isinstance(window, str):
        with suppress(ValueError):
            window = float(window)
    allowed = f"0 to {LONGEST_FAILOVER} s"
    seconds = number_in("failover_window", window, 0, LONGEST_FAILOVER, allowed)
    return max(1, int(seconds * 1_000_000_000))  # 0: it does not fail over


def checked_credentials(name: str, given: object) -> Callable[[], object]:
    """Return the function to call: of redis-py's providers, `get_credentials`."""
    function = getattr(given, "get_credentials", given)
    if not callable(function):
        allowed = "a function without arguments, or a CredentialProvider of redis-py"
        raise refused_type(name, given, allowed)
    return function


def text(name: str, value: object) -> str:
    """Return `value` as a str that can be encoded as UTF-8; bytes are decoded."""
    if not isinstance(value, str | bytes):
        found = "None" if value is None else f"of type {type(value).__name__}"
        raise ConfigurationError(f"{name} is {found}, must be str or bytes")
    # Looked for rather than caught: a UnicodeError would keep the password in it.
    found = value if isinstance(value, str) else value.decode(errors="surrogateescape")
    if any("\ud800" <= char <= "\udfff" for char in found):
        raise ConfigurationError(f"{name} is not valid UTF-8")
    return found


def _tls(settings: Mapping[str, object]) -> TLSSettings | None:
    if settings.get("ssl") is None:
        used = [name for name in settings if name.startswith("ssl_")]
        used = [name for name in used if settings[name] is not None]
        if used:  # redis-py would connect without TLS and not warn
            raise ConfigurationError(f"{used[0]} needs TLS: use rediss:// or ssl=True")
        return None
    if not _flag("ssl", settings["ssl"]):
        return None
    cert_reqs = _cert_reqs(settings.get("ssl_cert_reqs", "required"))
    has_name = _flag("ssl_check_hostname", settings.get("ssl_check_hostname", True))
    ca_data = settings.get("ssl_ca_data")
    if not isinstance(ca_data, bytes):  # bytes are DER, no text
        ca_data = _optional_text(settings, "ssl_ca_data")
    min_version = settings.get("ssl_min_version")
    if min_version is not None:
        min_version = _number("ssl_min_version", min_version, _TLS_1_2, _TLS_1_3)
    names = ("ca_certs", "ca_path", "certfile", "keyfile", "password", "server_name")
    tls = TLSSettings(
        cert_reqs=cert_reqs,
        check_hostname=has_name and cert_reqs != "none",
        ca_data=ca_data,
        min_version=min_version,
        **{name: _optional_text(settings, f"ssl_{name}") for name in names},
    )
    if tls.keyfile and not tls.certfile:
        raise ConfigurationError("ssl_keyfile needs ssl_certfile, which is not given")
    return tls


def _host(value: object) -> str:
    host = text("host", value)
    wrong = [char for char in host if char in NOT_IN_HOST or not char.isprintable()]
    if wrong or not 1 <= len(host) <= MAX_HOST_LENGTH:
        found = f"it has {wrong[0]!r}" if wrong else f"it has {len(host)}"
        raise ConfigurationError(
            f"host {_hidden(host)} is not a name or address of 1..{MAX_HOST_LENGTH} "
            f"characters (IPv6 without brackets): {found}"
        )
    return _ipv6(host) if ":" in host else host


def _ipv6(host: str) -> str:
    # Imported here: few need it. One spelling, so that duplicates are seen.
    from ipaddress import AddressValueError, IPv6Address

    try:
        return str(IPv6Address(host))
    except AddressValueError:
        raise ConfigurationError(
            f"host {_hidden(host)} holds ':' but is not an IPv6 address"
        ) from None


def _path(value: object) -> str:
    path = text("unix socket path", value)
    size = len(path.encode())
    if not path.isprintable() or not 1 <= size <= MAX_PATH_BYTES:
        raise ConfigurationError(
            f"unix socket path of {size} bytes: must be "
            f"1..{MAX_PATH_BYTES} bytes without control characters"
        )
    return path


def _number(name: str, value: object, low: int, high: int) -> int:
    """Return a whole number; redis-py takes decimal digits in a str as well."""
    number = value
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        number = int(value[:20])  # as long as that is out of every range
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigurationError(
            f"{name} {_hidden(value)} is not a whole number in {low}..{high}"
        )
    if not low <= number <= high:
        raise ConfigurationError(f"{name} {_hidden(value)} is not in {low}..{high}")
    return int(number)


def _flag(name: str, value: object) -> bool:
    flag = _FLAGS.get(str(value).lower())
    if flag is None:
        allowed = ", ".join(_FLAGS)
        raise ConfigurationError(f"{name} {_shown(value)}: allowed are {allowed}")
    return flag


def _cert_reqs(value: object) -> str:
    if value is None:  # means CERT_NONE in redis-py
        return "none"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2:
        return _CERT_REQS[value]
    if isinstance(value, str) and value in _CERT_REQS:
        return value
    raise ConfigurationError(
        f"ssl_cert_reqs {_shown(value)}: allowed are {', '.join(_CERT_REQS)}"
    )


def _optional_text(settings: Mapping[str, object], name: str) -> str | None:
    value = settings.get(name)
    return None if value is None else text(name, value) or None


def _shown(value: object) -> str:
    """Quote a value for a message; with an '@' it may be a URL in the wrong place."""
    shown = repr(value)
    if "@" in shown:
        return "(not shown: it holds an '@')"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _hidden(value: object) -> str:
    """Quote what is no text: a host, a port, a db may be a password, cut wrongly."""
    if isinstance(value, str | bytes) and value:
        return "(not shown: it may be a password)"
    return _shown(value)


def with_credentials(
    endpoints: tuple[Endpoint, ...], given: object
) -> tuple[Endpoint, ...]:
    """Return the endpoints with one function for all; none may have a login."""
    function = checked_credentials("credentials", given)
    for position, endpoint in enumerate(endpoints):
        if endpoint.username or endpoint.password or endpoint.credentials:
            raise ConfigurationError(
                f"masters[{position}] has a login of its own, and credentials is given "
                "for all: give one of them"
            )
    return tuple(endpoint._replace(credentials=function) for endpoint in endpoints)
