"""What a master's connection needs anew each time: its login, and its TLS files.

The core calls a `Preparer` before each connection, in a thread of its own
(src_cython/master/lookup.pyx). What it returns is used for that connection alone.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from ..errors import ConfigurationError
from .endpoint import Endpoint, checked_credentials
from .keys import utf8_or_bytes

ALLOWED = "allowed is (user name, password), (password,) or a password, of str or bytes"


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


class Preparer:
    """Get the login and the TLS context of one master's next connection."""

    __slots__ = ("_endpoint",)

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __call__(self) -> tuple[bytes | None, bytes | None, Any] | str:
        """Return user name, password and context, each may be None; or why not.

        An exception of the caller's function goes through: the core names its type
        alone, for its text may show a password.
        """
        endpoint, context = self._endpoint, None
        if endpoint.tls is not None and endpoint.tls.has_files:
            from .tls import context_of

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
        kinds = ", ".join(type(word).__name__ for word in words[:3])
        kind = f"{type(given).__name__} ({kinds})" if words is given else kinds
        return f"credentials: their function returned a {kind}: {ALLOWED}"
    *username, password = encoded_words
    return (username[0] or None) if username else None, password or b""


def encoded(text: str | None) -> bytes | None:
    """Return a text of the settings as bytes."""
    return None if text is None else text.encode()
