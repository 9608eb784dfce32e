"""Ids and times as python-redis-lock reads them."""

from __future__ import annotations

from base64 import b64encode
from os import urandom
from time import monotonic

from ._errors import InvalidTimeout, TimeoutNotUsable, TimeoutTooLarge


def new_id() -> str:
    """Draw an id: 18 random bytes in base64."""
    return b64encode(urandom(18)).decode("ascii")


def text_of(id: str | bytes) -> str:
    """Return an id as it is stored; bytes that are not ASCII in base64."""
    if isinstance(id, str):
        return id
    if not isinstance(id, bytes):
        raise TypeError(f"Incorrect type for `id`. Must be bytes/str not {type(id)}.")
    try:
        return id.decode("ascii")
    except UnicodeDecodeError:
        return b64encode(id).decode("ascii")


def whole_seconds(expire: float) -> int:
    """Return an expire in whole s, as the library cuts it off."""
    seconds = int(expire)
    if seconds < 0:
        raise ValueError("A negative expire is not acceptable.")
    if seconds == 0:
        raise ValueError(f"expire={expire!r}: allowed is 1 s and more, in whole s")
    return seconds


def deadline_of(
    blocking: bool, timeout: float | str | None, longest: int | None
) -> float | None:
    """Return the end of an acquire (s of `monotonic`), None without one.

    `longest` (s): for which the lock would live, None for ever.
    """
    if not blocking and timeout is not None:
        raise TimeoutNotUsable("Timeout cannot be used if blocking=False")
    seconds = float(timeout or 0)
    if seconds < 0:
        raise InvalidTimeout(f"Timeout ({timeout}) cannot be less than or equal to 0")
    if longest and int(seconds) > longest:
        raise TimeoutTooLarge(
            f"Timeout ({int(seconds)}) cannot be greater than expire ({longest})"
        )
    return monotonic() + seconds if seconds else None
