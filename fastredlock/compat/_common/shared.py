"""What the replacements share: one FastRedlock for the same masters, and whose tokens.

The replaced libraries are handed redis-py clients, and a new lock object for every use
costs them nothing. So a FastRedlock, which has connections of its own, is kept as long
as one of the clients' pools lives whose settings it copied; where masters are named by
text alone, as long as somebody uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from ... import FastRedlock, Lease, QuorumUnreachableError
from ..._options.url import (
    SameServerAllowed as SameServerAllowed,  # for the others here
)

L = TypeVar("L")

# Who draws the tokens of the acquire that this thread or task makes next: to be set
# before every acquire, because one FastRedlock serves locks of several kinds.
token_source: ContextVar[Callable[[], bytes | str]] = ContextVar("token_source")

# s; a client's timeout is kept where it is shorter. A longer one is of no use: what it
# is there for, a server that does not answer, costs our rounds no more than this.
LONGEST_CONNECT_TIMEOUT = 1.0
LONGEST_ROUND_TIMEOUT = 0.5

_asked_to_connect: WeakSet[Any] = WeakSet()
_known: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()
_kept: WeakKeyDictionary[object, list[object]] = WeakKeyDictionary()


def shared_locks(
    make: Callable[..., L],
    masters: Sequence[object],
    *,
    drift_factor: float = 0.01,
) -> L:
    """Return the FastRedlock for these masters, made by `make` where there is none.

    `masters` as FastRedlock takes them; with a dict among them it is always a new one.
    Raises ConfigurationError for a client that cannot be copied.
    """
    references = [_reference(master) for master in masters]
    key = (make, drift_factor, *references)
    try:
        locks: L | None = _known.get(key)
    except TypeError:  # a dict has no hash
        return new_locks(make, masters, drift_factor)
    if locks is None:
        # Threads may make one at the same time: all of them then use the first.
        locks = _known.setdefault(key, new_locks(make, masters, drift_factor))
        for reference in references:
            if isinstance(reference, ref):
                _kept.setdefault(reference(), []).append(locks)
    return locks


def try_once(locks: FastRedlock, name: str | bytes, ttl: float) -> Lease | None:
    """Try once; the very first try waits for connections as long as it may.

    One try of FastRedlock waits for them no longer than for a round, which is too short
    for the first one with a ttl of some ms. Raises as `acquire` does.
    """
    try:
        return locks.acquire(name, ttl=ttl, timeout=0)
    except QuorumUnreachableError:
        if not is_first_failure(locks):
            raise
    with suppress(QuorumUnreachableError):
        locks.connect()
    return locks.acquire(name, ttl=ttl, timeout=0)


def is_first_failure(locks: object) -> bool:
    """Return True the first time that it is asked about this FastRedlock."""
    is_first = locks not in _asked_to_connect
    _asked_to_connect.add(locks)
    return is_first


def _reference(master: object) -> object:
    """Return what stands for a master in a key and does not keep a client alive.

    A client's pool has the settings and lives longer: some make a client per use of it.
    """
    try:
        return ref(getattr(master, "connection_pool", master))
    except TypeError:  # text
        return master


def new_locks(
    make: Callable[..., L], masters: Sequence[object], drift_factor: float = 0.01
) -> L:
    """Make a FastRedlock that asks `token_source`, with the masters' timeouts."""
    connect_timeout = _shortest("socket_connect_timeout", masters)
    round_timeout = _shortest("socket_timeout", masters)
    return make(
        masters,
        drift_factor=drift_factor,
        connect_timeout=min(connect_timeout, LONGEST_CONNECT_TIMEOUT),
        round_timeout=round_timeout if round_timeout < LONGEST_ROUND_TIMEOUT else None,
        new_token=lambda: token_source.get()(),
    )


def _shortest(timeout: str, masters: Sequence[object]) -> float:
    """Return the shortest of the masters' timeouts (s), infinity where none is set."""
    given = (_settings_of(master).get(timeout) for master in masters)
    return min((float(one) for one in given if one), default=float("inf"))


def _settings_of(master: Any) -> Mapping[str, Any]:
    if isinstance(master, str):
        query = parse_qs(urlsplit(master).query)
        return {name: values[-1] for name, values in query.items()}
    if isinstance(master, Mapping):
        return master
    pool = getattr(master, "connection_pool", None)
    return getattr(pool, "connection_kwargs", {})


def key_name(resource: Any) -> str | bytes:
    """Return the name of a key; the replaced libraries take numbers as well."""
    return str(resource) if type(resource) in (int, float) else resource
