"""What an acquire asks for: one record, made in one place."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from .._core import DriverFields
from .._options.keys import encode_resource, permits_of, shared_of
from .._options.settings import checked_flag
from ..errors import ConfigurationError, LeaseLostError
from .keeper import KeepAlive


class Skip(Enum):
    """What enters a lock with `skip=True`: a block, or one call of a function."""

    BLOCK = "block"
    CALL = "call"


class Wanted(NamedTuple):
    """What an acquire asks for, but for the resource."""

    ttl: Any  # s, Terms, or None: the default
    timeout: float | None
    encode: Callable[..., Any]  # of one resource, or of all of several
    keep: KeepAlive | None = None
    # Of the block of a lock:
    is_reentrant: bool = False
    skip: Skip | None = None


def wanted(
    driver: DriverFields,
    ttl: float | None,
    timeout: float | None = None,
    keep_alive: bool | float = False,
    on_lost: Callable[[Any, LeaseLostError], object] | None = None,
    at_least: float | None = None,
    linger: float | None = None,
    permits: int | None = None,
    shared: bool = False,
    *,
    encode: Callable[..., Any] = encode_resource,
    reentrant: bool = False,
    skip: bool = False,
) -> Wanted:
    """Return what these arguments of a call ask for, or raise ConfigurationError."""
    keep, terms = None, ttl
    if keep_alive or on_lost is not None or at_least is not None:
        keep = KeepAlive(keep_alive, on_lost, at_least)
    if linger is not None:
        terms = driver.settings.lingering(ttl, linger)
    if permits is not None:
        if linger is not None:  # a slot that is idle here would be missing elsewhere
            raise ConfigurationError("linger beside permits: a slot does not linger")
        encode = permits_of(permits)
    if shared is not False:
        encode = shared_of(driver.settings, shared, linger, permits)
    is_of_one = at_least is not None and encode is encode_resource
    if is_of_one and driver.settings.terms(terms).idle_ns:
        raise ConfigurationError("at_least beside linger: give one of them")
    if skip is not False and checked_flag("skip", skip) and timeout is None:
        raise ConfigurationError(
            "skip=True: needs a timeout (0: one try); without, each call waits"
        )
    if reentrant is not False and checked_flag("reentrant", reentrant) and skip:
        raise ConfigurationError("skip=True beside reentrant=True: give one of them")
    return Wanted(terms, timeout, encode, keep, reentrant, Skip.BLOCK if skip else None)
