"""What a master's connection needs anew each time: login, TLS files, its address.

The core calls `prepared` before each connection that needs it, in a thread of its own
(src_cython/master/lookup.pyx). What it returns is used for that connection alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from .keys import utf8_or_bytes
from .masters import Endpoint, TLSSettings

if TYPE_CHECKING:  # 20 ms that masters without TLS do not pay
    import ssl

ALLOWED = "allowed is (user name, password), (password,) or a password, of str or bytes"

Place = tuple[bytes, int, int, str | None]  # host, port, replicas; a warning
# User name, password, TLS context; its place, None: as in the settings.
Prepared = tuple[bytes | None, bytes | None, Any, Place | None]


def preparer_of(endpoint: Endpoint) -> Callable[[], Prepared | str] | None:
    """Return what prepares each connection of a master; None: nothing is to be done."""
    has_files = endpoint.tls is not None and endpoint.tls.has_files
    is_needed = has_files or endpoint.needs_answer
    return partial(prepared, endpoint) if is_needed else None


def prepared(endpoint: Endpoint) -> Prepared | str:
    """Return what a master's next connection needs; or why it is not to be had.

    An exception of the caller's function goes through: the core names its type alone,
    for its text may show a password.
    """
    context = None
    if endpoint.tls is not None and endpoint.tls.has_files:
        try:
            context = context_of(endpoint)
        except ConfigurationError as error:
            return str(error).removeprefix(f"{endpoint.name}: ")
    address = None
    if endpoint.sentinels is not None:
        found = endpoint.sentinels.find_primary()
        if isinstance(found, str):
            return found
        host, port = found
        encoded_host = host.encode("ascii" if host.isascii() else "idna")
        sentinels = endpoint.sentinels
        address = encoded_host, port, sentinels.replicas, sentinels.warning
    if endpoint.credentials is None:
        words = utf8_or_bytes(endpoint.username), utf8_or_bytes(endpoint.password)
        return *words, context, address
    login = login_of(endpoint.credentials())
    return login if isinstance(login, str) else (*login, context, address)


def login_of(given: Any) -> tuple[bytes | None, bytes] | str:
    """Return user name (None: the default user) and password; or why it is no login."""
    words = given if isinstance(given, tuple | list) else (given,)
    if isinstance(given, CoroutineType):
        given.close()  # or Python warns that it was never awaited
        return "credentials: their function returned a coroutine: give a plain function"
    if len(words) == 2 and words[0] is None:
        words = words[1:]
    encoded_words = [utf8_or_bytes(word) for word in words]
    if not 1 <= len(words) <= 2 or None in encoded_words:
        types = ", ".join(type(word).__name__ for word in words[:3])
        found = f"{type(given).__name__} ({types})" if words is given else types
        return f"credentials: their function returned a {found}: {ALLOWED}"
    *username, password = encoded_words
    return (username[0] or None) if username else None, password or b""


def context_of(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Return the TLS context of one master, if any; reads the certificate files.

    Without settings: the system's CAs, a certificate that fits the host name. Raises
    ConfigurationError for a file that cannot be read or does not fit its key.
    """
    tls = endpoint.tls
    if tls is None:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    context.verify_mode = getattr(ssl, f"CERT_{tls.cert_reqs.upper()}")
    if tls.min_version is not None:
        context.minimum_version = ssl.TLSVersion(tls.min_version)
    try:
        load_files(context, tls)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(f"{endpoint.name}: TLS files: {error}") from error
    return context


def load_files(context: ssl.SSLContext, tls: TLSSettings) -> None:
    if tls.ca_certs or tls.ca_path or tls.ca_data:
        context.load_verify_locations(tls.ca_certs, tls.ca_path, tls.ca_data)
    elif tls.cert_reqs != "none":
        context.load_default_certs()
    if tls.certfile:
        context.load_cert_chain(tls.certfile, tls.keyfile, tls.password or no_password)


def no_password() -> str:
    """Refuse to ask on the terminal for the password of an encrypted key."""
    raise ValueError("the key is encrypted, and no ssl_password was given")
