"""What a master's connection needs: its TLS context, and its login anew each time.

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

Prepared = tuple[bytes | None, bytes | None, Any]  # user name, password, TLS context


def contexts_of(endpoints: tuple[Endpoint, ...]) -> tuple[ssl.SSLContext | None, ...]:
    return tuple(
        None if endpoint.tls is None else context_of(endpoint.name, endpoint.tls)
        for endpoint in endpoints
    )


def preparers_of(
    endpoints: tuple[Endpoint, ...],
) -> tuple[Callable[[], Prepared | str] | None, ...]:
    """Return what prepares the connections of each master, None where nothing does."""
    return tuple(
        partial(prepared, endpoint) if endpoint.needs_preparing else None
        for endpoint in endpoints
    )


def prepared(endpoint: Endpoint) -> Prepared | str:
    """Return the login and the context of a master's next connection; or why not.

    An exception of the caller's function goes through: the core names its type alone,
    for its text may show a password.
    """
    context = None
    if endpoint.tls is not None and endpoint.tls.has_files:
        try:
            context = context_of(endpoint.name, endpoint.tls)
        except ConfigurationError as error:
            return str(error).removeprefix(f"{endpoint.name}: ")
    if endpoint.credentials is None:
        username, password = endpoint.username, endpoint.password
        return encoded(username), encoded(password), context
    login = login_of(endpoint.credentials())
    return login if isinstance(login, str) else (*login, context)


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


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def context_of(name: str, tls: TLSSettings) -> ssl.SSLContext:
    """Return the context of one master; reads the certificate files.

    Without settings: the system's CAs, a certificate that fits the host name. Raises
    ConfigurationError for a file that cannot be read or does not fit its key.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    context.verify_mode = getattr(ssl, f"CERT_{tls.cert_reqs.upper()}")
    if tls.min_version is not None:
        context.minimum_version = ssl.TLSVersion(tls.min_version)
    try:
        load_files(context, tls)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(f"{name}: TLS files: {error}") from error
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
