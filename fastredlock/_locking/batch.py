"""Many locks at once, each on its own: all but the driving of their batch.

The blocking and the awaitable FastRedlock make one of these, run its batch, and read
its end. The work per lock is done in few steps: at a hundred locks a write, Python
costs more than the sockets.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._core import Batch, Verdict, draw_token, new_acquires, new_releases, now_ns
from .._options.keys import encode_each, listed
from ..errors import ConfigurationError, TokenReusedError
from .attempt import exhausted, unreachable
from .lease import UNKNOWN, BaseLease, ReleaseStatus, end_releases

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    from .._core import Round
    from .driver import BaseDriver

    AnyDriver = TypeVar("AnyDriver", bound=BaseDriver)
    AnyLease = TypeVar("AnyLease", bound=BaseLease)


class AcquireEach:
    """An acquire_each under way; `batch` is to be run, once."""

    __slots__ = ("_began_ns", "_driver", "_resources", "batch")

    def __init__(
        self, driver: BaseDriver, resources: Iterable[str | bytes], ttl: float | None
    ) -> None:
        settings = driver.settings
        self._driver = driver
        self._began_ns = now_ns()
        self._resources = listed(resources)
        keys = encode_each(self._resources)
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        new_token, tokens = settings.new_token, None
        if new_token is not draw_token:
            tokens = [new_token() for _ in keys]
        self.batch = new_acquires(driver.engine, keys, terms, tokens)

    def end(
        self,
        new_lease: Callable[[AnyDriver, str | bytes, Round], AnyLease],
        driver: AnyDriver,
    ) -> list[AnyLease | None]:
        """Return the leases of a batch that was run, None where it was taken.

        Raises QuorumUnreachableError or ValidityExhaustedError if one ended so; all
        are withdrawn by then.
        """
        if self.batch.failure is not None:
            self._raise(self.batch.failure)
        return [
            None if round is None else new_lease(driver, resource, round)
            for resource, round in zip(self._resources, self.batch.won(), strict=True)
        ]

    def _raise(self, round: Round) -> NoReturn:
        engine = self._driver.engine
        resource = self._resources[self.batch.rounds.index(round)]
        if round.is_withheld:
            raise TokenReusedError(resource)
        if round.verdict is Verdict.UNREACHABLE:
            raise unreachable(engine, resource, round, 1, self._began_ns)
        raise exhausted(engine, resource, round, 1, self._began_ns)


class ReleaseEach:
    """A release_each under way."""

    __slots__ = ("_batch", "_driver", "_leases", "_rounds")

    def __init__(self, driver: BaseDriver) -> None:
        self._batch: Batch | None = None
        self._rounds: list[Round | None] = []
        self._leases: list[BaseLease | None] = []
        self._driver = driver

    def begin(self, leases: Iterable[BaseLease | None]) -> Batch:
        """Check the leases, and return the batch to run."""
        leases = self._check(leases)
        self._leases = leases  # from here on an interrupt releases them all
        self._rounds = rounds = new_releases(
            self._driver.engine,
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
                isinstance(lease, BaseLease) and lease._driver is self._driver
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
        """Return the releases that an interrupted one still has to send."""
        if self._batch is not None:
            return self._batch
        return Batch(
            [
                round
                for lease in self._leases
                if lease is not None and (round := lease._begin_release()) is not None
            ]
        )
