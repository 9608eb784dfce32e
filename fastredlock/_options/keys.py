"""Keys and tokens: resources and tokens of callers become the bytes that are stored."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from .._core import PermitsOf, SharedOf, TokenSource
from .._reports.votes import LONGEST_OWNER, printable
from ..errors import ConfigurationError
from .retry import refused, refused_type

LONGEST_RESOURCE = 1_048_576  # bytes; each round sends it whole to every master
MOST_PERMITS = 1024  # slots of a semaphore: one look asks each master for all
LONGEST_NUMBER = len(f"#{MOST_PERMITS - 1}")  # of a slot, behind its resource
# The clients without a key_prefix, but for those of replaced libraries.
unprefixed: WeakSet[Any] = WeakSet()

# Written or deleted by every client: the restart guard's, and that of scripts.PROBE.
PROBE = b"fastredlock:probe"
OWN = b"fastredlock:"  # in all names of our own keys
RESERVED = frozenset(
    OWN + name
    for name in (
        b"probe voter lineage lineage:replid quarantine quarantine:lifted".split()
    )
)
# Behind the key_prefix of any client; a resource's key comes behind them.
PER_RESOURCE = tuple(OWN + name + b":" for name in b"fence queue turn broken".split())
NOTHING = "; leave it out for the default resource"
FUNCTION = ", or a function of the call's arguments where lock() decorates one"
LONGEST_TOKEN = 262_144  # bytes; scripts.INSPECT returns no longer value
HOST_HEAD, HOST_TAIL = 12, 26  # of the default owner: pods differ in their ends


def encode_resource(resource: str | bytes) -> bytes:
    """Return the key: the resource's bytes, without prefix."""
    key = utf8_or_bytes(resource)
    if key is None:
        raise ConfigurationError(
            f"resource={printable(resource)}: not valid Unicode; give bytes instead"
            if isinstance(resource, str)
            else f"resource of type {type(resource).__name__}: allowed is str or bytes"
            + (FUNCTION if callable(resource) else "")
            + (NOTHING if resource is None else "")
        )
    if not key:
        raise ConfigurationError(f"resource={resource!r}: must not be empty")
    if len(key) > LONGEST_RESOURCE:
        raise ConfigurationError(
            f"resource of {len(key)} bytes: allowed are up to {LONGEST_RESOURCE}"
        )
    if key in RESERVED:
        raise ConfigurationError(
            f"resource={printable(resource)}: a name that every handshake and the "
            "restart guard (max_ttl) use for themselves"
        )
    if key.find(OWN) >= 0 and (used := used_in(key)):
        raise ConfigurationError(
            f"resource={printable(resource)}: another lock's {used.decode()} would "
            "have this key, which fastredlock keeps for itself: give another name"
        )
    return key


def used_in(key: bytes) -> bytes | None:
    """Return the beginning of names of our own that a key has anywhere, or None."""
    return next((used for used in PER_RESOURCE if used in key), None)


def utf8_or_bytes(value: object) -> bytes | None:
    """Return a str as UTF-8, bytes as they are; None of anything else.

    Of a subclass, its bytes count, not its methods.
    """
    if isinstance(value, str):
        try:
            return str.encode(value)
        except UnicodeEncodeError:  # which keeps the value: no other error follows it
            return None
    if isinstance(value, bytes):
        return value if type(value) is bytes else bytes(memoryview(value))
    return None


def listed(resources: Iterable[str | bytes]) -> list[str | bytes]:
    """Return the resources as a list; one alone is refused, not taken apart."""
    if isinstance(resources, str | bytes) or not isinstance(resources, Iterable):
        raise refused("resources", resources, "an iterable of str or bytes")
    return list(resources)


def distinct(resources: Iterable[str | bytes]) -> tuple[str | bytes, ...]:
    """Return each resource once, in the order given."""
    return tuple({encode_resource(each): each for each in listed(resources)}.values())


def permits_of(permits: int) -> PermitsOf:
    """Return what makes the key of a slot of a resource, of so many permits."""
    if type(permits) is not int or not 1 <= permits <= MOST_PERMITS:
        raise ConfigurationError(
            f"permits={permits!r}: allowed is a whole number from 1 to {MOST_PERMITS}"
        )
    return PermitsOf(encode_slots, permits)


SHARED = SharedOf(encode_resource)


def shared_of(
    settings: Any,
    shared: object,
    linger: float | None = None,
    permits: int | None = None,
) -> SharedOf:
    """Return what makes the key of a lock that is shared, or raise."""
    if shared is not True:
        raise refused("shared", shared, "True or False")
    beside = (
        (settings.fencing and "fencing: readers have no numbers")
        or (settings.token_source is None and "new_token")
        or (settings.release_script is not None and "release_script")
        or (linger is not None and "linger: it is for one process")
        or (permits is not None and "permits: a slot is one caller's")
    )
    if beside:
        raise ConfigurationError(f"shared=True beside {beside}")
    return SHARED


def encode_slots(resource: str | bytes) -> bytes:
    """Return the key of a resource, with room for the number of a slot behind it."""
    key = encode_resource(resource)
    longest = LONGEST_RESOURCE - LONGEST_NUMBER
    if len(key) > longest:
        raise ConfigurationError(
            f"resource of {len(key)} bytes: a semaphore's has up to {longest}, and the "
            "number of a slot behind it"
        )
    return key


def encode_each(resources: list[str | bytes]) -> list[bytes]:
    """Return the keys of many resources: as `encode_resource`, without its calls."""
    try:
        keys = [each.encode() if type(each) is str else each for each in resources]
    except UnicodeEncodeError:
        keys = []
    is_plain = len(keys) == len(resources) and {*map(type, keys)} <= {bytes}
    if (
        is_plain
        and all(keys)
        and max(map(len, keys), default=0) <= LONGEST_RESOURCE
        and b" ".join(keys).find(OWN) < 0  # type: ignore[arg-type]
    ):
        return keys  # type: ignore[return-value]
    return [encode_resource(resource) for resource in resources]


def encode_resources(resources: tuple[str | bytes, ...]) -> tuple[bytes, ...]:
    """Return the keys of several resources, sorted: the same for every caller."""
    if callable(resources):
        raise ConfigurationError(f"resources: allowed is an iterable{FUNCTION}")
    keys = {encode_resource(resource) for resource in resources}
    if not keys:
        raise ConfigurationError("resources: must not be empty")
    return tuple(sorted(keys))


def encode_token(token: bytes | str) -> bytes:
    """Return a token's bytes; neither the error of a bad one nor its context has it."""
    value = utf8_or_bytes(token)
    if value is None and isinstance(token, str):
        raise ConfigurationError("token: not valid Unicode; give bytes")
    if not value:
        raise refused_type("token", token, "str or bytes, not empty")
    if len(value) > LONGEST_TOKEN:
        raise ConfigurationError(
            f"token of {len(value)} bytes: allowed are up to {LONGEST_TOKEN}"
        )
    return value


def new_token_source(owner: str | None) -> TokenSource:
    """Return what draws tokens with this owner; None: host:pid; "": without any."""
    if owner is None:
        host = os.uname().nodename.partition(".")[0].encode("ascii", "replace")
        if len(host) > HOST_HEAD + 2 + HOST_TAIL:
            host = host[:HOST_HEAD] + b".." + host[-HOST_TAIL:]
        return TokenSource(host, True)
    name = utf8_or_bytes(owner) if isinstance(owner, str) else None
    if name is None or not owner.isprintable() or len(name) > LONGEST_OWNER:
        allowed = f"text of up to {LONGEST_OWNER} bytes without control characters"
        raise refused("owner", owner, allowed)
    return TokenSource(name)
