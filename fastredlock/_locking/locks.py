"""The base of the blocking and the awaitable FastRedlock: all but the waiting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Concatenate, Generic, Never, NoReturn, ParamSpec, Self, TypeVar

from .._core import (
    DEFAULT_RESOURCE,
    LocksFields,
    Operation,
    Round,
    Terms,
    Vote,
    has_quorum,
    registered,
)
from .._options.functions import name_methods
from .._options.keys import (
    PROBE,
    SHARED,
    distinct,
    encode_resource,
    encode_resources,
    encode_token,
    permits_of,
    shared_of,
    unprefixed,
)
from .._options.retry import refused, refused_type
from .._options.settings import (
    Settings,
    checked_fence,
    from_environment,
    positive_ns,
    settings_of_call,
    unexpected,
)
from .._reports.health import MasterHealth, health_of
from .._reports.stats import Stats
from .._reports.votes import (
    LONGEST_OWNER,
    MOST_READERS,
    Resource,
    connection_votes,
    holders_of,
    lingers,
    shown,
    tokens_of,
)
from .._steps import Steps
from ..errors import LeaseLostError, QuorumUnreachableError
from .blocks import current_lease
from .driver import BaseDriver, refuse_pickling
from .lease import BaseLease, ReleaseStatus
from .lock import AnyLock, BaseLock
from .slots import holders_of_slots, rate_terms
from .wanted import Wanted, wanted

Options = ParamSpec("Options")
Init = Callable[Concatenate[Any, Options], None]
AnyLease = TypeVar("AnyLease", bound=BaseLease)
AnyRate = TypeVar("AnyRate", bound=BaseLock)

INSPECT, BREAK = int(Operation.INSPECT), int(Operation.BREAK)
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


class BaseLocks(LocksFields, Generic[AnyLease, AnyLock, AnyRate]):
    """Hold the driver of one set of masters; see `FastRedlock`.

    What does not wait is here, once for the blocking and the awaitable one.
    """

    __slots__ = ()

    _driver: BaseDriver
    _new_driver: type[BaseDriver]
    _new_lease: type[AnyLease]
    _new_lock: type[AnyLock]
    _new_rate: type[AnyRate]

    @with_options_of(Settings.__init__)
    def __init__(self, *masters: Any, **options: Any) -> None:
        settings = settings_of_call("FastRedlock", masters, options)
        self._driver = self._new_driver(settings)
        if not settings.key_prefix:
            unprefixed.add(self)
        if settings.observer is not None:
            self._observe(settings.observer)

    @classmethod
    def from_env(cls, resource: str | bytes = "fastredlock", **options: Any) -> Self:
        """Return one on the masters of the environment, as the command line uses them.

        `FASTREDLOCK_MASTERS` has their URLs, with commas, else the TOML file that
        `FASTREDLOCK_CONFIG` names, which may have more options; those given here come
        first. Both are read now, and nothing is connected until the first use. Raises
        ConfigurationError if there are no masters; under pytest and in `in_memory()`
        none are needed.
        """
        in_memory = not isinstance(cls._new_driver, type)
        return cls(resource=resource, **from_environment(options, in_memory))

    def _observe(self, observer: object) -> None:
        from .observing import Observing  # only where there is one

        self._driver.observer = Observing(observer)
        attach = getattr(observer, "attach", None)
        if attach is not None:
            attach(self)

    # --- locks that are entered -------------------------------------------------------

    def lock(
        self,
        resource: str | bytes | Callable[..., str | bytes] = DEFAULT_RESOURCE,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        keep_alive: bool | float = False,
        on_lost: Callable[[AnyLease, LeaseLostError], object] | None = None,
        at_least: float | None = None,
        reentrant: bool = False,
        skip: bool = False,
        linger: float | None = None,
        shared: bool = False,
        **unknown: Never,
    ) -> AnyLock:
        """Return a context manager that holds the resource, or raises on entering.

        As `acquire`, but it raises ResourceTakenError instead of returning None. It may
        be entered any number of times, by several threads or tasks at once; each entry
        has a lease of its own, and those of the same resource wait for each other. A
        block inside another of the same resource and caller raises ReentryError. With
        `reentrant=True` it joins that block, and extends its lease if it asks for more
        `ttl` than is left.

        As a decorator it is held for each call; `resource` may then be a function,
        which is called with the arguments of the call. With `skip=True` a call that
        finds it taken after the `timeout` returns None. If it is left before `at_least`
        s are over, it stays taken until then. In asyncio, the loss of a kept lease
        cancels the task that runs the body, and LeaseLostError leaves the block. With
        `shared=True` others that share it may hold it at the same time.
        """
        if unknown:
            raise unexpected("lock", unknown)
        given = self._driver, ttl, timeout, keep_alive, on_lost, at_least, linger
        wants = wanted(*given, None, shared, reentrant=reentrant, skip=skip)
        return self._new_lock(self._driver, resource, wants)

    def semaphore(
        self,
        resource: str | bytes | Callable[..., str | bytes],
        permits: int,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        keep_alive: bool | float = False,
        on_lost: Callable[[AnyLease, LeaseLostError], object] | None = None,
        at_least: float | None = None,
        skip: bool = False,
        **unknown: Never,
    ) -> AnyLock:
        """Return a context manager that holds one of `permits` slots of the resource.

        As `lock`, which it is for each slot: at most so many hold it at a time, over
        all processes. The lease has the number of its slot, `slot`, from 0. Clients
        with different `permits` never exceed the largest. A block inside another takes
        a second slot, so it may wait for itself.
        """
        if unknown:
            raise unexpected("semaphore", unknown)
        given = self._driver, ttl, timeout, keep_alive, on_lost, at_least
        wants = wanted(*given, encode=permits_of(permits), skip=skip)
        return self._new_lock(self._driver, resource, wants)

    def rate(
        self,
        resource: str | bytes | Callable[..., str | bytes],
        permits: int,
        *,
        per: float,
        timeout: float | None = None,
    ) -> AnyRate:
        """Return a context manager that lets at most `permits` begin in any `per` s.

        The limit is over all processes. Entering it takes a permit, or raises
        ResourceTakenError if there is none within `timeout` s; leaving it does nothing.
        Raises ConfigurationError, with the least that would do, if the window is
        shorter than a round may take. As a decorator, each call takes one.
        """
        terms = rate_terms(self._driver.settings, per)
        wants = Wanted(terms, timeout, permits_of(permits))
        return self._new_rate(self._driver, resource, wants)

    def lock_all(
        self,
        resources: Iterable[str | bytes] | Callable[..., Iterable[str | bytes]],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        keep_alive: bool | float = False,
        on_lost: Callable[[AnyLease, LeaseLostError], object] | None = None,
        at_least: float | None = None,
        **unknown: Never,
    ) -> AnyLock:
        """Return a context manager that holds all of the resources, or raises.

        As `lock`, but of several: `acquire_all` with ResourceTakenError instead of
        None.
        """
        if unknown:
            raise unexpected("lock_all", unknown)
        given = self._driver, ttl, timeout, keep_alive, on_lost, at_least
        wants = wanted(*given, encode=encode_resources)
        if not callable(resources):
            resources = distinct(resources)
        return self._new_lock(self._driver, resources, wants)

    def current(self, resource: str | bytes = DEFAULT_RESOURCE) -> AnyLease:
        """Return the lease of the block of the resource that this caller is in.

        The caller is a thread, a greenlet or a task; the block is a with statement that
        has not ended, or a decorated call. Of a semaphore it is the lease of the
        innermost block. Does no I/O. Raises LeaseLostError if the caller is in no such
        block.
        """
        lease: AnyLease = current_lease(self._driver, resource)
        return lease

    def adopt(
        self,
        resource: Resource,
        token: bytes | str,
        *,
        ttl: float | None = None,
        fence: int | None = None,
        shared: bool = False,
    ) -> AnyLease:
        """Return a Lease for a lock that another process took, by its token.

        Does no I/O, and is not awaited. The lease can be released and extended (by
        `ttl`, s); its `remaining()` is 0.0 until its first extend. For a lease of
        acquire_all, pass its tuple of resources. `fence`: its number, with fencing; the
        masters are not asked for it. `shared`: True if it was taken so; without it the
        first extend or release of such a token is refused.
        """
        driver, settings = self._driver, self._driver.settings
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        given, fence = encode_token(token), checked_fence(fence)
        encode: Any = encode_resource
        if shared is not False:
            encode = shared_of(settings, shared, None, None)
        elif isinstance(resource, tuple):
            encode = encode_resources
        keys = encode(resource)
        round = driver.engine.new_adopted(keys, given, terms, fence, driver.now_ns())
        return self._new_lease(driver, resource, round)

    # --- reports ----------------------------------------------------------------------

    def health(self) -> tuple[MasterHealth, ...]:
        """Return what is known of each master, in configured order; does not block.

        No server is asked, so one that was lost or has come back since the last call is
        not seen. `ping()` asks.
        """
        return health_of(self._driver.engine)

    @property
    def has_quorum(self) -> bool:
        """Whether a quorum of masters would vote, by the last calls; does not block.

        A probe calls `ping()` first. False before the first call that connects.
        """
        voting = [health.votes for health in self.health()]
        return has_quorum(voting, self._driver.engine.electorate)

    def stats(self) -> Stats:
        """Return the counters since this FastRedlock was made; does not block."""
        return Stats.of(self._driver.engine)

    def _held_count(self) -> int:
        """Count the leases that are held."""
        leases = held_leases(self._driver, BaseLease)
        return sum(lease.is_valid for lease in leases)

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    @shown
    def __repr__(self) -> str:
        return f"<FastRedlock {', '.join(self._driver.engine.master_names)}>"

    # --- rounds to run ----------------------------------------------------------------

    def _holders(
        self, resource: str | bytes, permits: int | None
    ) -> Steps[tuple[Any, ...]]:
        driver = self._driver
        if permits is not None:
            key, terms = permits_of(permits)(resource), driver.settings.default_terms
            batch = driver.engine.new_inspections(key, terms)
            yield partial(driver.run, batch)
            return holders_of_slots(driver.engine, batch.rounds)
        round = self._inspection(resource)
        yield partial(driver.run, round)
        return holders_of(driver.engine, round)

    def _inspection(self, resource: str | bytes) -> Round:
        engine, settings = self._driver.engine, self._driver.settings
        if resource is DEFAULT_RESOURCE:
            resource = settings.resource
        key = encode_resource(resource)
        return engine.new_round(INSPECT, key, b"-", settings.default_terms)

    def _ping(self, timeout: float, begin: bytes = b"") -> Round:
        settings = self._driver.settings
        left_ns = positive_ns("timeout", timeout)
        ask_ns = min(settings.default_terms.timeout_ns, left_ns // 2)
        terms = Terms(PROBE_MS, 0, ask_ns)
        return self._driver.engine.new_ping(begin + PROBE, terms, left_ns)

    def _check_connected(self, began_ns: int) -> None:
        driver = self._driver
        votes = connection_votes(driver.engine)
        ready = [vote.vote is Vote.GRANTED for vote in votes]
        if not has_quorum(ready, driver.engine.electorate):
            resource, elapsed = driver.settings.resource, driver.now_ns() - began_ns
            raise QuorumUnreachableError(resource, votes, 1, elapsed / 1e9)


name_methods(BaseLocks, "FastRedlock")

# --- leases that are still held: for close(release=True) ------------------------------


def held_leases(driver: BaseDriver, kind: type[AnyLease]) -> list[AnyLease]:
    """Return the leases of a driver that were not released, and may still be valid.

    A lease that nobody refers to any more is not among them.
    """
    return [
        lease
        for lease in registered(kind)
        if lease._driver is driver and is_held(lease)
    ]


def is_held(lease: BaseLease) -> bool:
    """Return whether it is to be released: not a parent's, nor one merely adopted."""
    return (
        lease._status is None
        and lease._round.generation == lease._driver.fork_generation()
        and not lease._is_adopted()
    )


# --- to break a lock that another holds -----------------------------------------------

# Nothing is deleted but the token whose hash the caller was shown: masters compare.
HASH_LENGTH = 16
SURE = {Vote.GRANTED, Vote.TAKEN}
RECALLED = 0.05  # s; by then a process that runs has given up its idle key


def checked_hash(token_hash: str) -> str:
    """Return the hash as holders() shows it; raise ConfigurationError for others."""
    if not isinstance(token_hash, str):
        raise refused_type("token_hash", token_hash, "str, as holders() shows it")
    shown = token_hash.strip().lower()
    if len(shown) != HASH_LENGTH or shown.strip("0123456789abcdef"):
        allowed = f"the token_hash that holders() shows, {HASH_LENGTH} hex digits"
        raise refused("token_hash", token_hash[:40], allowed)
    return shown


def breaking(
    locks: Any, resource: str | bytes, token_hash: str
) -> Steps[ReleaseStatus]:
    driver, wanted = locks._driver, checked_hash(token_hash)
    inspected: Round = locks._inspection(resource)
    yield partial(driver.run, inspected)
    found = tokens_of(inspected)
    if wanted not in found:
        sees_all = inspected.is_won and len(found) < MOST_READERS
        return ReleaseStatus.GONE if sees_all else ReleaseStatus.UNKNOWN
    token, is_shared = found[wanted]
    if lingers(token):  # it may be idle in its process: recall it first
        if lease := (yield partial(locks.acquire, resource, timeout=0, linger=0)):
            yield lease.release
        yield RECALLED
    # Without the key_prefix that `inspected` has.
    key = encode_resource(resource)
    asked = b"%b\n%b" % (breaker(), token)
    round = driver.engine.new_round(BREAK, key, asked, inspected.terms)
    yield partial(driver.run, round)
    if all(vote in SURE for vote, _, _ in round.votes()):
        return broken(round)
    # Its user may run no script; or a master is away, for which the release is kept.
    keys = SHARED(resource) if is_shared else key
    held = driver.engine.new_adopted(keys, token, inspected.terms)
    release = driver.engine.new_release(held, inspected.terms)
    release.needs_all = True
    yield partial(driver.run, release)
    return broken(round, release)


def breaker() -> bytes:
    """Return who breaks a lock, for its holder: the user, and the host."""
    user = os.environ.get("LOGNAME") or os.environ.get("USER") or f"{os.getuid()}"
    by = f"{user}@{os.uname().nodename.partition('.')[0]}"
    return "".join(filter(str.isprintable, by)).encode()[:LONGEST_OWNER]


def broken(*rounds: Round) -> ReleaseStatus:
    """Return how it ended, from the votes of the rounds.

    A master that deleted the token, and one that does not have it, are sure of the
    same: they will not count for it any more.
    """
    votes = [[vote for vote, _, _ in round.votes()] for round in rounds]
    is_sure = [not SURE.isdisjoint(each) for each in zip(*votes, strict=True)]
    if not has_quorum(is_sure, rounds[0].electorate):
        return ReleaseStatus.UNKNOWN
    is_deleted = any(Vote.GRANTED in each for each in votes)
    return ReleaseStatus.RELEASED if is_deleted else ReleaseStatus.GONE
