"""The seam between the replaced libraries and FastRedlock.

The replaced libraries use redis-py clients of their callers, and a new lock object for
each use costs them nothing. A FastRedlock has connections of its own: it is kept as
long as the pool of one of the clients lives (it copied their settings); where masters
are named by text alone, as long as a lock object uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qs, urlsplit
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

from .. import MasterVote, QuorumUnreachableError, Vote
from .._options.keys import unprefixed
from .._options.redis_py import (
    identity_of,
    pool_of,
    refuse_encoding,
    refuse_overrides,
    selected,
    settings_of_client,
)
from .._options.settings import CONFIG, DEFAULT_TTL, options_of_environment
from .._reports.log import warn_once
from .._reports.votes import hash_of, is_quorum, quorum_left_ms
from .._steps import Steps

L = TypeVar("L")

# The function that draws the token of the next acquire of this thread or task: set
# before every acquire, because one FastRedlock serves locks of several kinds.
token_source: ContextVar[Callable[[], bytes | str]] = ContextVar("token_source")

# s; a client's timeout is kept where it is shorter. A longer one is of no use: a server
# that does not answer costs our rounds no more than this.
LONGEST_CONNECT_TIMEOUT = 1.0
LONGEST_ROUND_TIMEOUT = 0.5

# s; so long a try waits in turn: a longer wait would look for keys of other programs.
LONGEST_PATIENCE = 0.5

# s: the longest lock over a service that fails over, for which nobody locks afterwards.
SERVICE_MAX_TTL = 60.0

_known: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()
_kept: WeakKeyDictionary[object, list[object]] = WeakKeyDictionary()
_tried: WeakSet[Any] = WeakSet()  # every FastRedlock whose first try has failed


# --- one FastRedlock for the same masters -----------------------------------------


def shared_locks(
    make: Callable[..., L],
    masters: Sequence[object],
    *name: object,
    drift_factor: float = 0.01,
) -> L:
    """Return the FastRedlock for these masters, made by `make` where there is none.

    `masters` as FastRedlock takes them; with a dict among them it is always a new one.
    Raises ConfigurationError for a client that cannot be copied, or that would lock
    another key than this `name`. Before every acquire: a client may have changed.
    """
    for master in masters:  # of one pool may be clients of many classes
        for each in name:
            refuse_overrides(master, each)
            refuse_encoding(master, each)
    references = [each for master in masters for each in _references(master)]
    key = (make, drift_factor, *references)
    copies: Any = type(masters)
    try:
        locks: L | None = _known.get(key)
    except TypeError:  # a dict has no hash
        return new_locks(make, copies(map(_copied, masters)), drift_factor)
    if locks is None:
        # Threads may make one at the same time: all of them then use the first.
        new = new_locks(make, copies(map(_copied, masters)), drift_factor)
        locks = _known.setdefault(key, new)
        for reference in references:
            if isinstance(reference, ref):
                _kept.setdefault(reference(), []).append(locks)
    return locks


def look_at(masters: Sequence[object]) -> Steps[None]:
    """Raise ConfigurationError for a client that has selected another database."""
    for master in masters:
        yield from selected(master)


def _copied(master: Any) -> Any:
    """Return a copy of a client's settings: what FastRedlock refuses was looked at."""
    if not hasattr(pool_of(master), "connection_kwargs"):
        return master
    given = settings_given(master)
    timeouts = "socket_timeout", "socket_connect_timeout"
    return settings_of_client(master) | {name: given.get(name) for name in timeouts}


def _references(master: Any) -> Iterator[object]:
    """Yield what a key is made of: references to a master do not keep a client alive.

    A client's pool has the settings, which may be changed, and lives longer: some
    callers make a client per use of it.
    """
    pool = pool_of(master)
    if hasattr(pool, "connection_kwargs"):
        try:
            yield ref(pool)
        except TypeError:  # that of an awaitable cluster, which its client alone has
            yield ref(master)
        yield identity_of(master)
        return
    try:
        yield ref(master)
    except TypeError:  # text
        yield master


def new_locks(
    make: Callable[..., L], masters: Sequence[object], drift_factor: float = 0.01
) -> L:
    """Make a FastRedlock with the masters' timeouts and tokens of `token_source`."""
    connect_timeout = _shortest("socket_connect_timeout", masters)
    round_timeout = _shortest("socket_timeout", masters)
    services = _options_of_services(masters)
    locks = make(
        masters,
        drift_factor=drift_factor,
        connect_timeout=min(connect_timeout, LONGEST_CONNECT_TIMEOUT),
        round_timeout=round_timeout if round_timeout < LONGEST_ROUND_TIMEOUT else None,
        new_token=lambda: token_source.get()(),
        **services,
    )
    unprefixed.discard(locks)
    return locks


def warn_of_prefix(prefix: str, key: Any) -> None:
    """Warn once if a FastRedlock of this process locks another key of that name."""
    if unprefixed:
        warn_once(
            "the key of this lock is %r, and a FastRedlock here has no key_prefix: for "
            "the same name both are held at once; give it key_prefix=%r",
            key,
            prefix,
        )


def _options_of_services(masters: Sequence[Any]) -> dict[str, float]:
    """Return a max_ttl where a master fails over; the caller has none."""
    if not any(map(_is_service, masters)):
        return {}
    max_ttl = options_of_environment(()).get("max_ttl", SERVICE_MAX_TTL)
    warn_once(
        "a Sentinel service, or a cluster: after a failover nobody locks for %g s and "
        "longer, and no lock may be longer than that; max_ttl in the file that $%s "
        "names sets it",
        max_ttl,
        CONFIG,
    )
    return {"max_ttl": max_ttl, "ttl": min(max_ttl, DEFAULT_TTL)}


def _is_service(master: Any) -> bool:
    if isinstance(master, str):
        return "+sentinel://" in master.lower() or "+cluster://" in master.lower()
    if isinstance(master, Mapping):
        return bool(master.get("sentinels") or master.get("startup_nodes"))
    pool = pool_of(master)
    return hasattr(pool, "service_name") or hasattr(pool, "startup_nodes")


def _shortest(timeout: str, masters: Sequence[object]) -> float:
    """Return the shortest of the masters' timeouts (s), infinity where none is set."""
    given = (settings_given(master).get(timeout) for master in masters)
    return min((float(one) for one in given if one), default=float("inf"))


def settings_given(master: Any) -> Mapping[str, Any]:
    if isinstance(master, str):
        query = parse_qs(urlsplit(master).query)
        return {name: values[-1] for name, values in query.items()}
    if isinstance(master, Mapping):
        return master
    return getattr(pool_of(master), "connection_kwargs", {})


def answered(votes: Sequence[MasterVote]) -> bool:
    answers = Vote.GRANTED, Vote.TAKEN, Vote.GONE
    return is_quorum(votes, lambda vote: vote.vote in answers)


def left_ms(votes: Sequence[MasterVote], token: bytes) -> float | None:
    """Return for how long (ms) a majority has this token; inf: without expiry.

    None where no majority has it: the lock is not this token's.
    """
    return quorum_left_ms(votes, hash_of(token))


def key_name(resource: Any) -> str | bytes:
    """Return the name of a key; the replaced libraries take numbers as well."""
    return str(resource) if type(resource) in (int, float) else resource


# --- the first try ----------------------------------------------------------------


def noted(
    granted: list[Any], locks: Any, name: str | bytes, ttl: float, timeout: Any = 0
) -> Any:
    """Acquire; note the lease, which a caller that a signal interrupts gives back."""
    # No signal is looked at where a frame of Python returns to another.
    granted[:] = [locks.acquire(name, ttl=ttl, timeout=timeout)]
    return granted[0]


def try_once(
    granted: list[Any], locks: Any, name: str | bytes, ttl: float, waits: float = 0
) -> Steps[Any]:
    """Try once to take the lock, noted in `granted`; raises as `acquire` does.

    A try waits for connections no longer than for a round. That is too short for the
    very first one with a ttl of some ms, which is therefore made again after `connect`.
    """
    waits = min(waits, LONGEST_PATIENCE)
    attempt = partial(noted, granted, locks, name, ttl, waits)
    try:
        return (yield attempt)
    except QuorumUnreachableError:
        if locks in _tried:
            raise
        _tried.add(locks)
    with suppress(QuorumUnreachableError):
        yield locks.connect
    return (yield attempt)


# --- attributes that users set or override ----------------------------------------


class Refusing:
    """The base of what users subclass: nothing that they change is ignored in silence.

    `_NOT_RUN`: names of the library that are not called or read here, so that nobody
    may set or override them. `_READ_ONCE`: those that are read when an object is made,
    and may not be set afterwards: a TypeError.
    """

    __slots__ = ()

    _NOT_RUN: ClassVar[frozenset[str]] = frozenset()
    _READ_ONCE: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.split(".")[0] != "fastredlock":
            for name in sorted(cls._NOT_RUN & vars(cls).keys()):
                raise refused(cls, name)

    def __setattr__(self, name: str, value: object) -> None:
        was_read = name in self._READ_ONCE and name in vars(self)
        if was_read or name in self._NOT_RUN:
            raise refused(type(self), name)
        super().__setattr__(name, value)


def refused(cls: type, name: str) -> TypeError:
    return TypeError(
        f"{cls.__qualname__}.{name} cannot be changed: it would not be run or read "
        "(see the page of this library in docs/migration)"
    )
