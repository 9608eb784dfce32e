"""The masters as the caller writes them -> checked endpoints, before any I/O.

Each form (URL, pair, dict, redis-py client) becomes one dict of redis-py keyword
arguments, `endpoint_of` checks that. No name is resolved, no file or socket opened.

No message quotes a URL. A password with a raw `/`, `?`, `#` or `&`, or without the `@`
behind it, moves the borders between the parts of a URL, so the text in the place of a
port or an option is quoted only where no piece of a password can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from ..errors import ConfigurationError
from .endpoint import Endpoint, TLSSettings, endpoint_of, text
from .redis_py import (
    CARRIED,
    IGNORED,
    REFUSED,
    identity_of,
    is_client,
    known_settings,
    settings_of_client,
)

__all__ = ["Endpoint", "TLSSettings", "identity_of", "parse_masters"]

MAX_MASTERS = 64  # more is a slip, such as a generator without end
_FORMS = "a URL str, a (host, port) pair, a dict or a redis-py client"
_SCHEMES = ("redis", "rediss", "unix")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789+-."  # of schemes
_ADVICE = {  # by what another library's scheme has in it
    "sentinel": ": it names no fixed address; pass the URLs of independent masters",
    "cluster": ": its nodes are not independent; pass the URLs of independent masters",
    "socket": ": write unix:///path",
    "valkeys": ": write rediss://",
    "valkey": ": write redis://",
}
# A URL has other places for the first four, and none for a function.
_NOT_IN_QUERY = ("host", "port", "unix_socket_path", "ssl", "credential_provider")
_URL_OPTIONS = tuple(name for name in CARRIED if name not in _NOT_IN_QUERY)


class SameServerAllowed(tuple[object, ...]):
    """Masters that may be databases of one server: as the replaced libraries allow.

    Each lock is then as safe as that one server, which is logged. For compat alone.
    """

    __slots__ = ()


def parse_masters(masters: Iterable[object]) -> tuple[Endpoint, ...]:
    """Return one checked endpoint per master, in the caller's order.

    Each master is a `redis://`, `rediss://` or `unix://` URL, a `(host, port)` pair, a
    dict of redis-py keyword arguments, or a redis-py client (its settings are copied).
    Does no I/O and changes nothing it is given. Raises `ConfigurationError`, which
    names the position and the values allowed, and never a password.
    """
    _refuse_single_master(masters)
    given = tuple(islice(masters, MAX_MASTERS + 1))
    if not 1 <= len(given) <= MAX_MASTERS:
        found = "more" if given else "none"
        raise ConfigurationError(f"1..{MAX_MASTERS} masters are allowed, {found} given")
    endpoints = tuple(_endpoint_at(*item) for item in enumerate(given))
    if isinstance(masters, SameServerAllowed):
        _refuse_same_databases(endpoints)
    else:
        _refuse_duplicates(endpoints)
    return endpoints


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


def _refuse_duplicates(endpoints: tuple[Endpoint, ...]) -> None:
    first: dict[tuple[str, int, str], int] = {}
    for position, endpoint in enumerate(endpoints):
        earlier = first.setdefault(endpoint.server, position)
        if earlier != position:
            raise ConfigurationError(
                f"masters[{earlier}] ({endpoints[earlier].name}) and "
                f"masters[{position}] ({endpoint.name}) are the same server: masters "
                "must be independent, and two databases of one server are not"
            )


def _refuse_same_databases(endpoints: tuple[Endpoint, ...]) -> None:
    """Refuse one database twice: the second SET would find the key of the first."""
    first: dict[tuple[object, ...], int] = {}
    for position, endpoint in enumerate(endpoints):
        earlier = first.setdefault((endpoint.server, endpoint.db), position)
        if earlier != position:
            raise ConfigurationError(
                f"masters[{earlier}] and masters[{position}] are the same database, "
                f"{endpoint.name}: no lock could be held on both"
            )
    if len({endpoint.server for endpoint in endpoints}) < len(endpoints):
        from logging import getLogger  # 8 ms: only where there is a warning

        getLogger("fastredlock").warning(
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
    if is_client(master):
        return settings_of_client(master)
    if isinstance(master, tuple | list) and len(master) == 2:
        return {"host": master[0], "port": master[1]}
    raise ConfigurationError(f"must be {_FORMS}, not {type(master).__name__}")


def _settings_of_url(url: str) -> dict[str, object]:
    """Cut a URL into redis-py keyword arguments, percent-decoded.

    `urllib.parse.urlsplit` is not used: it drops tabs and newlines silently, and
    its errors quote pieces of the password.
    """
    scheme, separator, rest = text("URL", url).partition("://")
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
            f"URL has {named}{advice if is_named else ''}; allowed: redis, rediss, "
            "unix, as in redis://localhost:6379"
        )
    end = next((at for at, char in enumerate(rest) if char in "/?#"), len(rest))
    authority, tail = rest[:end], rest[end:]
    _refuse_slipped_credentials(tail, is_path_alone=scheme == "unix" and not authority)
    userinfo, _, address = authority.rpartition("@")
    username, _, password = userinfo.partition(":")
    path, _, query = tail.partition("?")
    place = _socket_place(address, path) if scheme == "unix" else _place(address, path)
    return {
        **place,
        **({"ssl": True} if scheme == "rediss" else {}),
        "username": _decoded("username", username),
        "password": _decoded("password", password),
        **_options(query),
    }


def _refuse_slipped_credentials(tail: str, *, is_path_alone: bool) -> None:
    if "#" in tail or ("@" in tail and not is_path_alone):
        raise ConfigurationError(
            "URL has a '#', or an '@' behind the host: in a user name, a password and "
            "an option write / ? # @ as %2F %3F %23 %40"
        )


def _socket_place(address: str, path: str) -> dict[str, object]:
    if address:
        raise ConfigurationError(
            "unix URL has a host: allowed are unix:///path and unix://user:password@/path"
        )
    return {"unix_socket_path": _decoded("unix socket path", path)}


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
        place["port"] = _digits_of_port(port)
    return place


def _digits_of_port(port: str) -> str:
    colon, digits = port[0], port[1:]
    if colon == ":" and digits.isdecimal() and len(digits) <= 5:
        return digits
    raise ConfigurationError(
        "URL has a port that is not a whole number in 1..65535 (not shown: a piece of "
        "a password may stand there); user:password ends with '@', IPv6 has brackets"
    )


def _options(query: str) -> dict[str, object]:
    options: dict[str, object] = {}
    for field in query.split("&") if query else ():
        option, equals, value = field.partition("=")
        if not equals or option not in {*_URL_OPTIONS, *IGNORED, *REFUSED}:
            # Behind a raw '&' of a password is its second half, no option.
            is_name = not option.strip(_LETTERS + "_")
            named = (
                repr(option)
                if equals and is_name and "password" not in query
                else "(not shown)"
            )
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
