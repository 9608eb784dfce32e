"""Many locks at once, each on its own: all but the driving of their batch.

For the blocking and the awaitable client alike: they make one of these, run its batch,
and ask how it ended. What is done per lock is done in few steps: at a hundred locks a
write, Python costs more than the sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ._attempt import round_timeout_hint
from ._core import Batch, Round, Verdict, draw_token, new_acquires, new_releases, now_ns
from ._settings import encode_each, listed
from .errors import (
    ConfigurationError,
    QuorumUnreachableError,
    TokenReusedError,
    ValidityExhaustedError,
)
from .lease import UNKNOWN, BaseLease, ReleaseStatus, end_releases
from .votes import votes_of

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeVar

    from ._locks import BaseLocks

    AnyLease = TypeVar("AnyLease", bound=BaseLease)


class AcquireEach:
    """An acquire_each under way; `batch` is what has to be run, once."""

    __slots__ = ("_began_ns", "_locks", "_resources", "batch")

    def __init__(
        self, locks: Any, resources: Iterable[str | bytes], ttl: float | None
    ) -> None:
        settings = locks._settings
        self._locks = locks
        self._began_ns = now_ns()
        self._resources = listed(resources)
        keys = encode_each(self._resources)
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        new_token, tokens = settings.new_token, None
        if new_token is not draw_token:
            tokens = [new_token() for _ in keys]
        self.batch = new_acquires(locks._engine, keys, terms, tokens)

    def end(
        self, new_lease: Callable[[Any, str | bytes, Round], AnyLease]
    ) -> list[AnyLease | None]:
        """Return the leases of a batch that was run, None where it was taken.

        Raises QuorumUnreachableError or ValidityExhaustedError if one ended so; all
        are withdrawn by then.
        """
        if self.batch.failure is not None:
            self._raise(self.batch.failure)
        locks = self._locks
        return [
            None if round is None else new_lease(locks, resource, round)
            for resource, round in zip(self._resources, self.batch.won(), strict=True)
        ]

    def _raise(self, round: Round) -> NoReturn:
        engine = self._locks._engine
        resource = self._resources[self.batch.rounds.index(round)]
        if round.is_withheld:
            raise TokenReusedError(resource)
        elapsed = (round.closed_ns - self._began_ns) / 1e9
        votes = votes_of(engine, round)
        if round.verdict is not Verdict.UNREACHABLE:
            raise ValidityExhaustedError(resource, votes, 1, elapsed)
        hint = round_timeout_hint(engine, round.terms)
        raise QuorumUnreachableError(resource, votes, 1, elapsed, hint)


class ReleaseEach:
    """A release_each under way."""

    __slots__ = ("_batch", "_leases", "_locks", "_rounds")

    def __init__(self, locks: BaseLocks) -> None:
        self._batch: Batch | None = None
        self._rounds: list[Round | None] = []
        self._leases: list[BaseLease | None] = []
        self._locks = locks

    def begin(self, leases: Iterable[BaseLease | None]) -> Batch:
        """Check what was given, and return what has to be run."""
        leases = self._check(leases)
        self._leases = leases  # from here on an interrupt releases them all
        self._rounds = rounds = new_releases(
            self._locks._engine,
            [
                lease._round
                if lease is not None
                and lease._status is None
                and lease._round.lease_state is None
                else None
                for lease in leases
            ],
        )
        for i, (lease, round) in enumerate(zip(leases, rounds, strict=True)):
            if round is not None:
                lease._status = UNKNOWN  # type: ignore[union-attr]
            elif lease is not None:
                rounds[i] = lease._begin_release()
        self._batch = Batch([round for round in self._rounds if round is not None])
        return self._batch

    def _check(self, given: Iterable[BaseLease | None]) -> list[BaseLease | None]:
        if not isinstance(given, Iterable):
            raise ConfigurationError(
                f"leases of type {type(given).__name__}: allowed is an iterable"
            )
        leases = list(given)
        for lease in leases:
            if lease is not None and not (
                isinstance(lease, BaseLease) and lease._locks is self._locks
            ):
                raise ConfigurationError(
                    f"leases: one of type {type(lease).__name__} is no lease of this "
                    "FastRedlock, and not None"
                )
        return leases

    def end(self) -> list[ReleaseStatus]:
        """Return how each ended."""
        return end_releases(self._leases, self._rounds)

    def rest(self) -> Batch:
        """Return what an interrupted one still has to send."""
        if self._batch is not None:
            return self._batch
        return Batch(
            [
                round
                for lease in self._leases
                if lease is not None and (round := lease._begin_release()) is not None
            ]
        )
