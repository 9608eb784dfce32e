"""FastRedlock, blocking: the public face of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType

from ._acquisition import Acquisition, Lock
from ._core import (
    Operation,
    Round,
    Terms,
    Vote,
    engine_abandon,
    engine_close,
    engine_run,
    fork_generation,
    now_ns,
)
from ._settings import Settings, encode_resource, encode_token
from .errors import (
    FastRedlockError,
    InternalError,
    QuorumUnreachableError,
)
from .health import MasterHealth, health_of
from .lease import Lease
from .retry import Retry
from .stats import Stats
from .votes import MasterVote, connection_votes, holders_of

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from typing import NoReturn

EXTEND = int(Operation.EXTEND)
INSPECT = int(Operation.INSPECT)
CLOSE_WITHIN_NS = 100_000_000  # what close() gives the last releases to be confirmed


class FastRedlock:
    """Take locks that are held by a majority of independent Redis masters.

    `masters`: an iterable of URLs, `(host, port)` pairs, dicts of redis-py keyword
    arguments or redis-py clients (their settings are copied). `resource`: the default
    for `acquire()` and `lock()`. Times are seconds: `ttl` of the keys (`NO_EXPIRY`:
    they stay until released, even if the holder dies); `round_timeout` for one question
    to all masters (default 5 % of the ttl, at least 5 ms); `connect_timeout` for one
    connection; `max_ttl` the longest ttl allowed. `retry`: delays between attempts.
    `drift_factor`: what the clocks may differ. `new_token`: called once per round for
    the value to store (default: 20 random bytes in hex). `release_script`: Lua to run
    instead of ours, for those who must tell waiters in the same step: it must compare
    ARGV[1] with what is stored under KEYS[1], and return 1 if it deleted that, else 0.

    Raises ConfigurationError for bad values, before any I/O. Nothing is connected until
    the first use. All threads of a process may share one instance, and should.
    """

    __slots__ = ("__weakref__", "_engine", "_settings", "_warned")

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
        self._warned = 0  # how many of the engine's warnings have been logged

    # --- taking -----------------------------------------------------------------------

    def acquire(
        self,
        resource: str | bytes | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Lease | None:
        """Take the resource; return a Lease, or None if others held it all that time.

        Blocks until it is ours, or for `timeout` s; 0 tries once. Raises
        QuorumUnreachableError if too few masters could answer in several rounds in a
        row or when the timeout ends so, ValidityExhaustedError if a round used the
        validity up. Whatever leaves this call by exception is rolled back first.
        """
        acquisition = Acquisition(self, resource)
        try:
            return acquisition.run(ttl, timeout)
        except BaseException:
            acquisition.undo()
            raise

    def lock(
        self,
        resource: str | bytes | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Lock:
        """Return a context manager that holds the resource, or raises on entering.

        As `acquire`, with ResourceTakenError instead of None: the body never runs
        without the lock.
        """
        return Lock(self, resource, ttl, timeout)

    # --- other questions --------------------------------------------------------------

    def adopt(
        self, resource: str | bytes, token: bytes | str, *, ttl: float | None = None
    ) -> Lease:
        """Return a Lease for what another process took and handed over by its token.

        Does no I/O. It can be released and extended (by `ttl`, s); nothing is known of
        its validity before the first extend, so `remaining()` is 0.0 until then.
        """
        settings = self._settings
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        key = encode_resource(resource)
        round = self._engine.new_adopted(key, encode_token(token), terms)
        return Lease(self, resource, round, 0)

    def holders(self, resource: str | bytes | None = None) -> tuple[MasterVote, ...]:
        """Return who holds the resource, as every master sees it at this moment.

        One `MasterVote` per configured master, in that order: TAKEN with `token_hash`
        and `remaining_ms`, or GRANTED where nobody holds it. Blocks until all have
        answered, one round timeout at most. For people: by the time it is read, it may
        not be so any more.
        """
        if resource is None:
            resource = self._settings.resource
        key = encode_resource(resource)
        terms = self._settings.default_terms
        round = self._engine.new_round(INSPECT, key, b"-", terms)
        self._run(round)
        return holders_of(self._engine, round)

    def health(self) -> tuple[MasterHealth, ...]:
        """Return what is known of each master, in configured order; does not block."""
        return health_of(self._engine)

    def stats(self) -> Stats:
        """Return the counters since this FastRedlock was made; does not block."""
        return Stats.of(self._engine)

    # --- connections ------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to all masters at once; blocks until all are decided.

        Up to `connect_timeout` (s). Not needed: the first acquire connects. Raises
        QuorumUnreachableError if fewer than a quorum is ready.
        """
        engine, began_ns = self._engine, now_ns()
        self._run(engine.new_connecting())
        votes = connection_votes(engine)
        ready = [vote for vote in votes if vote.vote is Vote.GRANTED]
        if len(ready) < len(votes) // 2 + 1:
            elapsed = (now_ns() - began_ns) / 1e9
            raise QuorumUnreachableError(self._settings.resource, votes, 1, elapsed)

    def close(self) -> None:
        """Close all connections; blocks up to 0.1 s for releases not yet confirmed.

        Leases are not released: release them first. Afterwards every call raises
        FastRedlockError.
        """
        engine_close(self._engine, CLOSE_WITHIN_NS)

    def __enter__(self) -> FastRedlock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a FastRedlock cannot be pickled: make one in each process, and pass "
            "lease.token to adopt() there"
        )

    def __repr__(self) -> str:
        return f"<FastRedlock {', '.join(self._engine.master_names)}>"

    # --- for leases -------------------------------------------------------------------

    def _run(self, round: Round) -> None:
        try:
            warnings = engine_run(self._engine, round)
        except ValueError as error:
            raise FastRedlockError("this FastRedlock is closed") from error
        except RuntimeError as error:
            raise InternalError(f"please report this: {error}") from error
        if warnings > self._warned:
            self._log_warnings()

    def _log_warnings(self) -> None:
        from logging import getLogger  # 8 ms: only for those who are warned

        for name, text in self._engine.warnings[self._warned :]:
            getLogger("fastredlock").warning("%s: %s", name, text)
        self._warned = len(self._engine.warnings)

    def _abandon(self, round: Round) -> None:
        engine_abandon(self._engine, round)

    def _new_extension(self, lease_round: Round, terms: Terms) -> Round:
        return self._engine.new_round(
            EXTEND, lease_round.resource, lease_round.token, terms
        )

    _now_ns = staticmethod(now_ns)
    _fork_generation = staticmethod(fork_generation)
