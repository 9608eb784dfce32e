"""The base of the blocking and the awaitable FastRedlock: all but the waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, NoReturn, ParamSpec, Self

from .._core import (
    DEFAULT_RESOURCE,
    LocksFields,
    Operation,
    PermitsOf,
    Round,
    Terms,
    Vote,
)
from .._options.keys import PROBE, encode_resource, encode_resources, encode_token
from .._options.settings import Settings, checked_fence, positive_ns, settings_of_call
from .._reports.health import MasterHealth, has_quorum, health_of
from .._reports.stats import Stats
from .._reports.votes import Resource, connection_votes, shown
from ..errors import LeaseLostError, QuorumUnreachableError
from .driver import BaseDriver, refuse_pickling
from .held import held_leases
from .keeping.options import AtLeast, KeepAlive
from .lease import BaseLease
from .lock import PLAIN, Manner
from .reentrant import REENTRANT
from .skipping import skipping
from .slots import permits_of, refuse_linger

Options = ParamSpec("Options")
Init = Callable[Concatenate[Any, Options], None]

INSPECT = int(Operation.INSPECT)
PROBE_MS = 1  # the shortest ttl: of the key that a ping asks by


def with_options_of(
    init: Init[Options],
) -> Callable[[Callable[..., None]], Init[Options]]:
    """Return a decorator: the function has the options of `init`, in help() as well.

    Their types too, which dependency injection reads by `typing.get_type_hints`.
    """

    def with_options(function: Callable[..., None]) -> Init[Options]:
        function.__wrapped__ = init  # type: ignore[attr-defined]
        function.__annotations__ = init.__annotations__
        return function

    return with_options


def asked(
    keep_alive: bool | float,
    on_lost: Callable[[Any, LeaseLostError], object] | None,
    at_least: float | None = None,
) -> KeepAlive | None:
    """Return what is asked for by these arguments of an acquire; None: nothing."""
    if not keep_alive and on_lost is None and at_least is None:
        return None
    if at_least is not None:
        return AtLeast(at_least, asked(keep_alive, on_lost))
    return KeepAlive(keep_alive, on_lost)


def manner_of(timeout: float | None, reentrant: bool, skip: bool) -> Manner:
    """Return how a lock of these arguments is entered."""
    if skip:
        return skipping(timeout, reentrant)
    if reentrant:
        return REENTRANT
    return PLAIN


class BaseLocks(LocksFields):
    """Hold the driver of one set of masters; see `FastRedlock`."""

    __slots__ = ()

    _driver: BaseDriver
    _new_driver: type[BaseDriver]

    @with_options_of(Settings.__init__)
    def __init__(self, *masters: Any, **options: Any) -> None:
        settings = settings_of_call("FastRedlock", masters, options)
        self._driver = self._new_driver(settings)
        if settings.observer is not None:
            self._observe(settings.observer)

    @classmethod
    def from_env(cls, resource: str | bytes = "fastredlock", **options: Any) -> Self:
        """Return one on the masters of the environment, as the command line uses them.

        `FASTREDLOCK_MASTERS` has their URLs, with commas, else the TOML file that
        `FASTREDLOCK_CONFIG` names, which may have more options; those given here come
        first. Both are read now, and nothing is connected until the first use: for the
        head of a module. Raises ConfigurationError where there are no masters, so a
        program ends at its start and not at its first lock; where it is only imported,
        as in a build, any URL will do. Under pytest and in `in_memory()` none is
        needed.
        """
        from .._options.settings import from_environment  # only who asks for it

        in_memory = not isinstance(cls._new_driver, type)
        return cls(resource=resource, **from_environment(options, in_memory))

    def _observe(self, observer: object) -> None:
        from .observing import observe  # only where there is one

        observe(self, self._driver, observer)

    def health(self) -> tuple[MasterHealth, ...]:
        """Return what is known of each master, in configured order; does not block.

        Without asking: a server that was lost or has come back since the last call is
        not seen. `ping()` asks.
        """
        return health_of(self._driver.engine)

    @property
    def has_quorum(self) -> bool:
        """Whether a quorum of masters would vote, by the last calls; does not block.

        A probe calls `ping()` first. False before the first call that connects.
        """
        return has_quorum(self._driver.engine)

    def stats(self) -> Stats:
        """Return the counters since this FastRedlock was made; does not block."""
        return Stats.of(self._driver.engine)

    def _held_count(self) -> int:
        """Count the leases that are held; see `held_leases` for what that costs."""
        leases = held_leases(self._driver, BaseLease)
        return sum(lease.is_valid for lease in leases)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    @shown
    def __repr__(self) -> str:
        return f"<FastRedlock {', '.join(self._driver.engine.master_names)}>"

    def _asked(
        self,
        ttl: float | None,
        keep_alive: bool | float,
        on_lost: Callable[[Any, LeaseLostError], object] | None,
        linger: float | None,
        permits: int | None,
    ) -> tuple[Any, Any, KeepAlive | None]:
        """Return an acquire's ttl, what encodes its resource, and how it is kept."""
        keep, encode = asked(keep_alive, on_lost), encode_resource
        if linger is not None:
            ttl = self._driver.settings.lingering(ttl, linger)
        if permits is None:
            return ttl, encode, keep
        return ttl, self._slots(permits, linger), keep

    def _slots(self, permits: int, linger: float | None) -> PermitsOf:
        refuse_linger(linger)
        return permits_of(permits)

    # --- rounds to run ----------------------------------------------------------------

    def _adopted(
        self,
        resource: Resource,
        token: bytes | str,
        ttl: float | None,
        fence: int | None,
    ) -> Round:
        engine, settings = self._driver.engine, self._driver.settings
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        token, fence = encode_token(token), checked_fence(fence)
        keys: bytes | tuple[bytes, ...]
        if isinstance(resource, tuple):
            keys = encode_resources(resource)
        else:
            keys = encode_resource(resource)
        now_ns = self._driver.now_ns()
        return engine.new_adopted(keys, token, terms, fence, now_ns)

    def _inspection(self, resource: str | bytes) -> Round:
        engine, settings = self._driver.engine, self._driver.settings
        if resource is DEFAULT_RESOURCE:
            resource = settings.resource
        key = encode_resource(resource)
        return engine.new_round(INSPECT, key, b"-", settings.default_terms)

    def _ping(self, timeout: float) -> Round:
        settings = self._driver.settings
        left_ns = positive_ns("timeout", timeout)
        ask_ns = min(settings.default_terms.timeout_ns, left_ns // 2)
        return self._driver.engine.new_ping(PROBE, Terms(PROBE_MS, 0, ask_ns), left_ns)

    def _check_connected(self, began_ns: int) -> None:
        votes = connection_votes(self._driver.engine)
        ready = [vote for vote in votes if vote.vote is Vote.GRANTED]
        if len(ready) < len(votes) // 2 + 1:
            driver = self._driver
            resource, elapsed = driver.settings.resource, driver.now_ns() - began_ns
            raise QuorumUnreachableError(resource, votes, 1, elapsed / 1e9)
