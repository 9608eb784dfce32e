"""Locks on redis-py clients: their calls, settings, encoding, votes, and errors.

The client's settings are copied and its sockets left alone. redis-py repeats a command
when its connection broke; so do we, three times in all. `locks` is a FastRedlock,
blocking or awaitable, `lease` one of its leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from os import urandom
from typing import Any, TypeVar
from weakref import WeakSet

from .. import (
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ReleaseStatus,
    TokenReusedError,
    ValidityExhaustedError,
    Vote,
)
from .._reports.votes import is_quorum, printable
from .._steps import Steps
from ._common import answered, noted, settings_given, token_source

L = TypeVar("L")
RELEASED, GONE, _ = ReleaseStatus

# s before each try of a call that too few masters answered: a connection that was cut
# while idle is replaced at once, a server that restarts needs about that long.
PAUSES = (0.0, 0.0, 0.15)
PATIENCE = 5.0  # s; redis-py waits so long for a reply where its client has no timeout

# Leases that were valid when their release was sent, without an answer: one that is
# gone at the next try was released by the one before.
unanswered_releases: WeakSet[Any] = WeakSet()

# Leases of which a release or an extension was not answered once: it may arrive late,
# so their token must not be used again, however a later try ended.
unsettled: WeakSet[Any] = WeakSet()

_ERRORS = {
    "NOAUTH": "AuthenticationError",
    "WRONGPASS": "AuthenticationError",
    "NOPERM": "NoPermissionError",
    "LOADING": "BusyLoadingError",
    "OOM": "OutOfMemoryError",
    "READONLY": "ReadOnlyError",
}
_LATE = "owed a reply", "no answer to the handshake"  # of a server that has paused


# --- settings and encoding of clients ---------------------------------------------


def patient_locks(make: Callable[..., L], clients: Sequence[Any], **options: Any) -> L:
    """Make a FastRedlock that waits on one master as redis-py does.

    There is no other master, so its reply is waited for as long as the client would. On
    many, the timeouts of FastRedlock are better.
    """
    if len(clients) == 1:
        waits = settings_given(clients[0]).get("socket_timeout")
        options["round_timeout"] = float(waits) if waits else PATIENCE
    return make(clients, **options)


def encoded(client: Any, value: object) -> bytes:
    owner = getattr(client, "connection_pool", client)  # a cluster's client itself
    return bytes(owner.get_encoder().encode(value))


def draw_token() -> bytes:
    """Draw 16 bytes in hex: as long as redis-py's uuid1().hex, and not predictable."""
    return urandom(16).hex().encode()


class Patient(bytes):
    """A token that says how its acquire waits; with it, a hook of users hands that on.

    `waits`: s in turn, as FastRedlock does. `drawn`: where the token of its last try is
    noted, if each has its own (None: all have this one).
    """

    waits: float = 0.0
    drawn: list[bytes] | None = None


# --- calls ------------------------------------------------------------------------


class Library:
    """The library of a client, redis-py or valkey-py: calls that raise its errors.

    `errors`: its module of exceptions, the other's need not be there; `base`: the class
    of all of them.
    """

    def __init__(self, client: Any) -> None:
        roots = {base.__module__.partition(".")[0] for base in client.__class__.__mro__}
        name = "valkey" if "valkey" in roots else "redis"
        self.errors: Any = import_module(f"{name}.exceptions")
        self.base: type[Exception] = self.errors.ResponseError.__base__
        self._is_valkey = name == "valkey"

    def key_of(self, client: Any, key: Any) -> bytes:
        """Return a key as a blocking client sends it."""
        # hiredis (which redis-py's locks need) and libvalkey pack the commands: text
        # is UTF-8 then, under every encoding.
        if self._is_valkey and not import_module("valkey.utils").LIBVALKEY_AVAILABLE:
            return encoded(client, key)
        return key.encode() if isinstance(key, str) else encoded(client, key)

    def take(
        self, granted: list[Any], locks: Any, key: bytes, token: bytes, ttl: float
    ) -> Steps[Any]:
        """Try once to take the key with this token; return a lease, or None: taken.

        Raises redis-py's errors; the cause of one that may be tried again, best with
        another token, is a QuorumUnreachableError.
        """
        asked = token if isinstance(token, Patient) else Patient(token)
        drawn, given = asked.drawn, iter([bytes(token)])

        def next_token() -> bytes:
            if drawn is None:
                return bytes(token)
            drawn[:] = (next(given, None) or draw_token(),)
            return drawn[0]

        mark = token_source.set(next_token)
        try:
            return (yield partial(noted, granted, locks, key, ttl, asked.waits))
        except QuorumUnreachableError as error:
            raise self.class_of(error.votes)(str(error)) from error
        except ValidityExhaustedError as error:
            raise self.errors.TimeoutError(str(error)) from error
        except TokenReusedError as error:
            raise self.not_settled(error) from error
        finally:
            token_source.reset(mark)

    def try_again(self, attempt: Callable[[], Any]) -> Steps[Any]:
        """Make an attempt; as redis-py, again where too few masters could answer."""
        failure: Any = None
        for pause in PAUSES:
            yield pause
            try:
                return (yield attempt)
            except self.base as error:
                cause = error.__cause__
                if isinstance(cause, QuorumUnreachableError):
                    failure = error
                elif failure is None or not isinstance(cause, TokenReusedError):
                    raise  # no given token that met the roll-back of its last try
        raise failure

    def ask(self, locks: Any, key: bytes) -> Steps[tuple[MasterVote, ...]]:
        """Return the holders once a quorum has answered; raise redis-py's errors."""
        for pause in PAUSES:
            yield pause
            votes: tuple[MasterVote, ...] = yield partial(locks.holders, key)
            if answered(votes):
                return votes
        each = "; ".join(map(str, votes))
        text = f"{printable(key)}: fewer than a quorum answered [{each}]"
        raise self.class_of(votes)(text)

    def prolong(self, lease: Any, ttl: float) -> Steps[bool]:
        """Set the ttl (s) anew; return False if the lease was lost."""
        for pause in PAUSES:
            yield pause
            try:
                yield partial(lease._prolong, ttl)
                return True
            except (LeaseLostError, NotExtendedError) as error:
                failure = error
            unsettled.add(lease)
            if answered(failure.votes) or not failure.votes:
                return False
        raise self.class_of(failure.votes)(str(failure)) from failure

    def give_back(self, lease: Any) -> Steps[bool]:
        """Release; return False if it was lost before.

        Raises if it is not confirmed. It may then be called again.
        """
        was_valid = lease.is_valid
        for pause in PAUSES:
            yield pause
            status = yield lease.release
            if status is RELEASED:
                return True
            if status is GONE:
                return lease in unanswered_releases
            unsettled.add(lease)
            if was_valid:
                unanswered_releases.add(lease)
        raise self.errors.ConnectionError(
            f"{printable(lease.resource)}: release not confirmed by a quorum; it goes "
            "out again to masters that come back, and may be tried again"
        )

    def not_settled(self, error: TokenReusedError) -> Any:
        """Return the error of a given id or token that was given again too early."""
        return self.errors.ConnectionError(
            f"{printable(error.resource)}: not acquired: the release of the last lock "
            "with this id or token is not confirmed, and would delete the new one; try "
            "again later, or with another"
        )

    def class_of(self, votes: Iterable[MasterVote]) -> Any:
        """Return the class of redis-py's error for these votes."""
        failed = [vote for vote in votes if vote.vote in (Vote.FAILED, Vote.SILENT)]
        for vote in failed:
            code = _code_of(vote.text or "")
            if vote.vote is Vote.FAILED and code.isupper():
                return getattr(self.errors, _ERRORS.get(code, "ResponseError"))
        late = [(vote.text or "").startswith(_LATE) for vote in failed]
        if any(late) or any(vote.vote is Vote.SILENT for vote in failed):
            return self.errors.TimeoutError
        return self.errors.ConnectionError


# --- votes ------------------------------------------------------------------------


def is_held(votes: Sequence[MasterVote]) -> bool:
    """Return whether a majority has the key, with any token."""
    return is_quorum(votes, lambda vote: vote.vote is Vote.TAKEN)


def _code_of(text: str) -> str:
    """Return the first word: a server's error begins with its code in capitals."""
    text = text.partition(" release locks (")[2] or text  # of a user who may not
    command, _, rest = text.partition(": ")
    return (rest if command.isupper() else text).partition(" ")[0]
