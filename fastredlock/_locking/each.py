"""Many locks at once, each on its own: all but the driving of their batch.

The blocking and the awaitable FastRedlock make one of these, run its batch, and read
its end. The work per lock is done in few steps: at a hundred locks a write, Python
costs more than the sockets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from .._core import (
    Batch,
    Round,
    Shared,
    Verdict,
    begin_releases,
    new_acquires,
    new_leases,
    observe_releases,
)
from .._options.keys import encode_each, listed, shared_of
from .._options.retry import refused_type
from ..errors import (
    ConfigurationError,
    FastRedlockError,
    LeaseLostError,
    NotExtendedError,
    TokenReusedError,
)
from .attempt import failure
from .driver import BaseDriver
from .lease import GONE, BaseLease, ReleaseStatus
from .validity import extended

Outcome = float | LeaseLostError | NotExtendedError | None


class Each:
    """A call for each of many under way: its batch is run between `begin` and `end`.

    However it ends, the core takes it out of the sets `under_way` of the leases (see
    `BaseLease._begin_extend`).
    """

    __slots__ = ("under_way",)

    is_release = False  # all of it is sent, whatever exception leaves the call

    def __init__(self) -> None:
        self.under_way: list[set[object] | None] = []


class AcquireEach(Each):
    """An acquire_each under way."""

    __slots__ = ("_began_ns", "_driver", "_kind", "_resources", "batch")

    def __init__(
        self,
        driver: BaseDriver,
        kind: type[BaseLease],
        resources: Iterable[str | bytes],
        ttl: float | None,
        shared: bool,
    ) -> None:
        super().__init__()
        settings = driver.settings
        self._driver = driver
        self._kind = kind
        self._began_ns = driver.now_ns()
        self._resources = listed(resources)
        keys: list[bytes] | list[Shared] = encode_each(self._resources)
        if shared is not False:
            keys = [*map(shared_of(settings, shared), self._resources)]
        terms = settings.terms(ttl)
        source = settings.token_source
        draw = settings.new_token if source is None else source.draw
        tokens = [draw() for _ in keys]
        self.batch = new_acquires(driver.engine, keys, terms, tokens, self._began_ns)

    def begin(self) -> Batch:
        return self.batch

    to_abandon = begin

    def end(self) -> list[BaseLease | None]:
        """Return the leases of a batch that was run, None where there is none.

        Raises QuorumUnreachableError or ValidityExhaustedError if none was answered;
        all are withdrawn by then.
        """
        driver = self._driver
        failed = self.batch.failure
        if failed is not None and self.batch.is_withdrawn:
            error = self._error(failed)
            driver.observer.on_failed(error)
            raise error
        for round in self.batch.rounds if failed is not None else ():
            if round.verdict in (Verdict.UNREACHABLE, Verdict.TOO_LATE):
                driver.observer.on_failed(self._error(round))
        return new_leases(self._kind, driver, self._resources, self.batch.rounds)

    def _error(self, round: Round) -> FastRedlockError:
        engine = self._driver.engine
        resource = self._resources[self.batch.rounds.index(round)]
        if round.is_withheld:
            return TokenReusedError(resource)
        return failure(engine, resource, round, 1, self._began_ns)


class ReleaseEach(Each):
    """A release_each under way."""

    __slots__ = (
        *("_batch", "_driver", "_given", "_leases", "_left_ns"),
        *("_listed", "_rounds", "_source"),
    )

    is_release = True

    def __init__(self, driver: BaseDriver, leases: Iterable[BaseLease | None]) -> None:
        super().__init__()
        self._given = leases
        self._source: Iterator[BaseLease | None] | None = None
        self._listed: list[BaseLease | None] = []
        self._batch: Batch | None = None
        self._rounds: list[Round | None] = []
        self._leases: list[BaseLease | None] = []
        self._left_ns: list[int] = []  # validities, for an observer
        self._driver = driver

    def begin(self) -> Batch:
        """Check the leases, and return the batch to run."""
        leases = self._read()
        self._leases = leases  # from here on an interrupt releases them all
        self._rounds, self._left_ns = begin_releases(self._driver, leases)
        self._batch = Batch([round for round in self._rounds if round is not None])
        return self._batch

    def _read(self) -> list[BaseLease | None]:
        # What an iterator gave before an exception is not given again.
        if self._source is None:
            self._source = iter(iterable(self._given))
        self._listed.extend(self._source)
        return checked_leases(self._driver, self._listed)

    def end(self) -> list[ReleaseStatus]:
        statuses: list[ReleaseStatus] = []
        for lease, round in zip(self._leases, self._rounds, strict=True):
            if lease is None or round is None:
                statuses.append(GONE)
            else:
                statuses.append(lease._end_release(round))
        observe_releases(self._driver, self._leases, self._left_ns)
        return statuses

    def to_abandon(self) -> Batch:
        """Return the releases that an interrupted one still has to send."""
        if self._batch is not None:
            return self._batch
        if not self._leases:
            with suppress(ConfigurationError):  # refused: none of them is released
                self._leases = self._read()
        return Batch(
            [
                round
                for lease in self._leases
                if lease is not None and (round := lease._begin_release()) is not None
            ]
        )


class ExtendEach(Each):
    """An extend_each under way."""

    __slots__ = ("_batch", "_begun", "_leases", "_observer", "_ttl")

    def __init__(
        self, driver: BaseDriver, leases: Iterable[BaseLease | None], ttl: float | None
    ) -> None:
        super().__init__()
        driver.settings.terms(ttl)  # refused before any I/O
        self._ttl = ttl
        self._observer = driver.observer
        self._leases = checked_leases(driver, leases)
        for lease in filter(None, self._leases):
            lease._check_not_kept()
        self._begun: list[Round | LeaseLostError | None] = []
        self._batch: Batch | None = None
        self.under_way = [
            None if lease is None else extended(lease).under_way
            for lease in self._leases
        ]

    def begin(self) -> Batch:
        """Count the extensions as under way; return the batch to run."""
        for lease in self._leases:
            begun: Round | LeaseLostError | None = None
            if lease is not None:
                try:
                    begun = lease._begin_extend(self._ttl, self)
                except LeaseLostError as error:
                    begun = error.with_traceback(None)
            self._begun.append(begun)
        self._batch = self._batch_of_begun()
        return self._batch

    def _batch_of_begun(self) -> Batch:
        return Batch([round for round in self._begun if isinstance(round, Round)])

    def end(self) -> list[float | None]:
        """Return the validity left (s) of each lease, None for one that is lost."""
        outcomes = [*map(outcome_of, self._leases, self._begun)]
        for lease, outcome in zip(self._leases, outcomes, strict=True):
            if lease is not None:
                self._observer.on_extended(lease, outcome)
        return [left_after(outcome) for outcome in outcomes]

    def to_abandon(self) -> Batch:
        """Return the extensions that an interrupted one gives up."""
        return self._batch or self._batch_of_begun()


def outcome_of(
    lease: BaseLease | None, begun: Round | LeaseLostError | None
) -> Outcome:
    """Take the outcome of one extension, while it still counts as under way."""
    if lease is None or begun is None or isinstance(begun, LeaseLostError):
        return begun  # type: ignore[return-value]  # a round has a lease
    try:
        return lease._end_extend(begun)
    except (LeaseLostError, NotExtendedError) as error:
        return error.with_traceback(None)  # which would keep frames, and so the lease


def left_after(outcome: Outcome) -> float | None:
    """Return the validity left (s) after an extension, None for a lost lease."""
    if isinstance(outcome, NotExtendedError):
        return outcome.remaining
    return outcome if isinstance(outcome, float) else None


def iterable(given: Iterable[BaseLease | None]) -> Iterable[BaseLease | None]:
    """Return it, or raise ConfigurationError where it cannot be read."""
    if isinstance(given, Iterable):
        return given
    raise refused_type("leases", given, "an iterable")


def checked_leases(
    driver: BaseDriver, given: Iterable[BaseLease | None]
) -> list[BaseLease | None]:
    """Return the leases as a list; raise ConfigurationError for what is none of it."""
    leases = list(iterable(given))
    for lease in leases:
        if lease is not None and not (
            isinstance(lease, BaseLease) and lease._driver is driver
        ):
            raise ConfigurationError(
                f"leases: one of type {type(lease).__name__} is no lease of this "
                "FastRedlock, and not None"
            )
    return leases
