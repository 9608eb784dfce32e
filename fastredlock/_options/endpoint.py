"""One master's settings, and the rules that each of them must meet.

`endpoint_of` takes a dict of redis-py keyword arguments, because every form a caller
may use is turned into one first; so each rule about a value is written once, here.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..errors import ConfigurationError

MAX_PATH_BYTES = 107  # sun_path holds 108 with its final NUL: man 7 unix
MAX_HOST_LENGTH = 253  # RFC 1035, section 2.3.4, as text
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
    """

    host: str
    port: int
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: TLSSettings | None = None
    credentials: Callable[[], object] | None = None  # gives the login of a connection

    @property
    def name(self) -> str:
        """The name for errors and logs: the address and a non-zero db, nothing else."""
        database = f"/{self.db}" if self.db else ""
        if self.path:
            return f"unix:{self.path}{database}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{database}"

    @property
    def needs_preparing(self) -> bool:
        """Whether each connection needs something anew: a login, or the TLS files."""
        return self.credentials is not None or (
            self.tls is not None and self.tls.has_files
        )

    @property
    def server(self) -> tuple[str, int, str]:
        """The server, which two masters must not share: its databases fail together."""
        return self.host.lower().removesuffix("."), self.port, self.path

    def __repr__(self) -> str:
        return f"<Endpoint {self.name}>"


def endpoint_of(settings: Mapping[str, object]) -> Endpoint:
    """Check redis-py keyword arguments and return the endpoint they describe."""
    path = settings.get("unix_socket_path")
    tls = _tls(settings)
    if path is None:
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
    )


def checked_credentials(name: str, given: object) -> Callable[[], object]:
    """Return the function to call: of redis-py's providers, `get_credentials`."""
    function = getattr(given, "get_credentials", given)
    if not callable(function):
        raise ConfigurationError(
            f"{name} of type {type(given).__name__}: allowed is a function without "
            "arguments, or a CredentialProvider of redis-py"
        )
    return function


def text(name: str, value: object) -> str:
    """Return `value` as a str that can be encoded as UTF-8; bytes are decoded."""
    if not isinstance(value, str | bytes):
        raise ConfigurationError(f"{name} is {_kind(value)}, must be str or bytes")
    # Looked for rather than caught: a UnicodeError would keep the password in it.
    found = value if isinstance(value, str) else value.decode(errors="surrogateescape")
    if any("\ud800" <= char <= "\udfff" for char in found):
        raise ConfigurationError(f"{name} is not valid UTF-8")
    return found


def _tls(settings: Mapping[str, object]) -> TLSSettings | None:
    given = [name for name in settings if name.startswith("ssl_")]
    if settings.get("ssl") is None:
        used = [name for name in given if settings[name] is not None]
        if used:  # redis-py would connect without TLS and not warn
            raise ConfigurationError(f"{used[0]} needs TLS: use rediss:// or ssl=True")
        return None
    if not _flag("ssl", settings["ssl"]):
        return None
    tls = _tls_settings(settings)
    if tls.keyfile and not tls.certfile:
        raise ConfigurationError("ssl_keyfile needs ssl_certfile, which is not given")
    return tls


def _tls_settings(settings: Mapping[str, object]) -> TLSSettings:
    cert_reqs = _cert_reqs(settings.get("ssl_cert_reqs", "required"))
    check_hostname = _flag(
        "ssl_check_hostname", settings.get("ssl_check_hostname", True)
    )
    ca_data = settings.get("ssl_ca_data")
    if not isinstance(ca_data, bytes):  # bytes are DER, no text
        ca_data = _optional_text(settings, "ssl_ca_data")
    min_version = settings.get("ssl_min_version")
    if min_version is not None:
        min_version = _number("ssl_min_version", min_version, _TLS_1_2, _TLS_1_3)
    names = ("ca_certs", "ca_path", "certfile", "keyfile", "password")
    return TLSSettings(
        cert_reqs=cert_reqs,
        check_hostname=check_hostname and cert_reqs != "none",
        ca_data=ca_data,
        min_version=min_version,
        **{name: _optional_text(settings, f"ssl_{name}") for name in names},
    )


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
        raise ConfigurationError(
            f"{name} {_shown(value)}: allowed are {', '.join(_FLAGS)}"
        )
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


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
