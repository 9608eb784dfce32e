"""What the blocking and the awaitable FastRedlock share: settings, engine, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ._core import Engine, Operation, Round, Terms, Vote, fork_generation, now_ns
from ._log import warn
from ._settings import Settings, encode_resource, encode_resources, encode_token
from .errors import QuorumUnreachableError
from .health import MasterHealth, health_of
from .retry import Retry
from .stats import Stats
from .votes import Resource, connection_votes

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from typing import NoReturn

    from ._core import AsyncioDriver

INSPECT = int(Operation.INSPECT)
CLOSE_WITHIN_NS = 100_000_000  # what close() gives the last releases to be confirmed


class BaseLocks:
    """Hold the settings and the engine; see `FastRedlock`."""

    __slots__ = ("__weakref__", "_driver", "_engine", "_settings", "_warned")

    _engine: Engine

    def __init__(
        self,
        masters: Iterable[object],
        resource: str | bytes = "fastredlock",
        *,
        ttl: float = 10.0,
        retry: Retry = Retry(),  # noqa: B008 - frozen
        drift_factor: float = 0.01,
        round_timeout: float | None = None,
        connect_timeout: float = 1.0,
        max_ttl: float | None = None,
        new_token: Callable[[], bytes | str] | None = None,
        release_script: bytes | None = None,
    ) -> None:
        self._settings = Settings(
            masters,
            resource,
            ttl=ttl,
            retry=retry,
            drift_factor=drift_factor,
            round_timeout=round_timeout,
            connect_timeout=connect_timeout,
            max_ttl=max_ttl,
            new_token=new_token,
            release_script=release_script,
        )
        self._engine = self._settings.new_engine()
        self._driver: AsyncioDriver | None = (
            None  # the awaitable one's, from its first use
        )
        self._warned = 0  # how many of the engine's warnings have been logged

    def health(self) -> tuple[MasterHealth, ...]:
        """Return what is known of each master, in configured order; does not block."""
        return health_of(self._engine)

    def stats(self) -> Stats:
        """Return the counters since this FastRedlock was made; does not block."""
        return Stats.of(self._engine)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a FastRedlock cannot be pickled: make one in each process, and pass "
            "lease.token to adopt() there"
        )

    def __repr__(self) -> str:
        return f"<FastRedlock {', '.join(self._engine.master_names)}>"

    def _log_warnings(self) -> None:
        # Counted before they are logged: a handler may take a lock, and come here.
        count = len(self._engine.warnings)
        new = self._engine.warnings[self._warned : count]
        self._warned = count
        for name, text in new:
            warn("%s: %s", name, text)

    # --- rounds to run ----------------------------------------------------------------

    def _new_adopted(
        self, resource: Resource, token: bytes | str, ttl: float | None
    ) -> Round:
        settings = self._settings
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        token = encode_token(token)
        if isinstance(resource, tuple):
            keys = encode_resources(resource)
            return self._engine.new_adopted(keys, token, terms)
        return self._engine.new_adopted(encode_resource(resource), token, terms)

    def _new_extension(self, lease_round: Round, terms: Terms) -> Round:
        return self._engine.new_extension(lease_round, terms)

    def _new_inspection(self, resource: str | bytes | None) -> Round:
        settings = self._settings
        key = encode_resource(settings.resource if resource is None else resource)
        return self._engine.new_round(INSPECT, key, b"-", settings.default_terms)

    def _check_connected(self, began_ns: int) -> None:
        votes = connection_votes(self._engine)
        ready = [vote for vote in votes if vote.vote is Vote.GRANTED]
        if len(ready) < len(votes) // 2 + 1:
            elapsed = (now_ns() - began_ns) / 1e9
            raise QuorumUnreachableError(self._settings.resource, votes, 1, elapsed)

    # --- for leases -------------------------------------------------------------------

    _now_ns = staticmethod(now_ns)
    _fork_generation = staticmethod(fork_generation)
