"""FastRedlock, blocking: the public face of the engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Never, overload

from ._core import (
    DEFAULT_RESOURCE,
    AcquireCall,
    EachCall,
    guard_close,
    releases_in_c,
    undo,
)
from ._locking.blocking import Lease, Lock, leading
from ._locking.driver import Driver
from ._locking.each import AcquireEach, ExtendEach, ReleaseEach
from ._locking.lease import ReleaseStatus
from ._locking.locks import BaseLocks, breaking, held_leases
from ._locking.slots import Rate
from ._locking.wanted import wanted
from ._options.keys import distinct, encode_resource, encode_resources, shared_of
from ._options.settings import checked_flag, unexpected
from ._reports.health import MasterHealth, ping_of
from ._reports.votes import MasterVote
from ._steps import run
from .errors import LeaseLostError

OnLost = Callable[[Lease, LeaseLostError], object]


def ran(call: AcquireCall | EachCall) -> Any:
    """Run a call to its end; what leaves it by exception is undone."""
    try:
        return call.run()
    except BaseException:
        undo(call)
        raise


class FastRedlock(BaseLocks[Lease, Lock, Rate]):
    """Take locks that are held by a majority of independent Redis masters.

    `masters`: an iterable of URLs, `(host, port)` pairs, dicts of redis-py keyword
    arguments or redis-py clients (their settings are copied). `resource`: the default
    for `acquire()` and `lock()`. Times are seconds. docs/options.md has all options,
    with the reason for each default.

    Raises ConfigurationError for bad values, before any I/O. Nothing is connected until
    the first use. All threads of a process may share one instance, and should.
    """

    __slots__ = ()

    _driver: Driver
    _new_driver = Driver
    _new_lease = Lease
    _new_lock = Lock
    _new_rate = Rate

    # --- taking -----------------------------------------------------------------------

    def acquire(
        self,
        resource: str | bytes = DEFAULT_RESOURCE,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        keep_alive: bool | float = False,
        on_lost: OnLost | None = None,
        linger: float | None = None,
        permits: int | None = None,
        shared: bool = False,
        **unknown: Never,
    ) -> Lease | None:
        """Take the resource; return a Lease, or None if others held it all that time.

        Blocks until it is ours, for `timeout` s at most; 0 tries once. Raises
        QuorumUnreachableError if too few masters could answer in several rounds in a
        row or at the end of the timeout, and ValidityExhaustedError if a round used the
        validity up. If an exception leaves this call, its keys are deleted first.
        `keep_alive`: renew the lease from now on, as `Lease.keep_alive` does; if it is
        lost, another thread calls `on_lost(lease, error)` once. `permits`: take one
        slot of a semaphore of so many; see `semaphore`. `shared`: hold it beside others
        that share it.
        """
        if unknown:
            raise unexpected("acquire", unknown)
        keep: Any = None
        encode: Callable[..., Any] = encode_resource
        is_plain = on_lost is None and linger is None and permits is None
        if keep_alive or not is_plain:
            given = self._driver, ttl, timeout, keep_alive, on_lost
            ttl, _, encode, keep = wanted(*given, None, linger, permits, shared)[:4]
        elif shared is not False:
            encode = shared_of(self._driver.settings, shared)
        call = AcquireCall(self._driver, Lease, resource, ttl, timeout, encode, keep)
        # A frame of Python: a signal that came meanwhile is handled before it returns,
        # and undone. After a function of C it would be, once its lease is lost.
        try:
            lease: Lease | None = call.run()
            return lease
        except BaseException:
            undo(call)
            raise

    def acquire_all(
        self,
        resources: Iterable[str | bytes],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        keep_alive: bool | float = False,
        on_lost: OnLost | None = None,
        **unknown: Never,
    ) -> Lease | None:
        """Take all of the resources or none of them, in one round; return one Lease.

        Each master takes all keys in one step or none, so two callers that name the
        same resources in any order cannot deadlock. The lease's `resource` is the tuple
        of resources, each once. The rest is as of `acquire`.
        """
        if unknown:
            raise unexpected("acquire_all", unknown)
        given = self._driver, ttl, timeout, keep_alive, on_lost
        wants = wanted(*given, encode=encode_resources)
        named = distinct(resources)
        lease: Lease | None = ran(AcquireCall(self._driver, Lease, named, *wants[:4]))
        return lease

    def acquire_each(
        self,
        resources: Iterable[str | bytes],
        *,
        ttl: float | None = None,
        shared: bool = False,
    ) -> list[Lease | None]:
        """Try once to take each of the resources; return a Lease or None for each.

        The list is in the order given; each lease has a token and a validity of its
        own, and one write per master serves many. None means: taken, by others or by
        the same resource earlier in the list; or too few masters could answer for it.
        Blocks for about a round. Raises QuorumUnreachableError or
        ValidityExhaustedError if no resource was answered. If an exception leaves this
        call, all keys are deleted first. `shared`: as of `acquire`.
        """
        given = Lease, resources, ttl, shared
        call = EachCall(self._driver, "acquire_each", AcquireEach, *given)
        result: list[Lease | None] = ran(call)
        return result

    @releases_in_c(ReleaseEach)
    def release_each(self, leases: Iterable[Lease | None]) -> list[ReleaseStatus]:
        """Release each of the leases; return how each ended, in the order given.

        As `Lease.release`, with one write per master for many. None, as acquire_each
        returns it, is GONE, like a lease that was released before. Blocks for about a
        round; if an exception leaves this call, all releases are sent first.
        """
        raise NotImplementedError  # its body is in src_cython/calls/lease.pyx

    def extend_each(
        self, leases: Iterable[Lease | None], ttl: float | None = None
    ) -> list[float | None]:
        """Extend each of the leases; return the validity (s) left, None if lost.

        As `Lease.extend` (by `ttl` s, default: its own), in the order given, with one
        write per master for many. If too few masters extended a lease that is still
        valid, the number is what is left of its old validity. None stays None. Blocks
        for about a round. If an exception leaves this call, each may have been extended
        or not: `remaining()` counts on the earlier end.
        """
        call = EachCall(self._driver, "extend_each", ExtendEach, leases, ttl)
        result: list[float | None] = ran(call)
        return result

    def lead(
        self,
        resource: str | bytes = DEFAULT_RESOURCE,
        *,
        ttl: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Generator[Lease, None, None]:
        """Lead, again and again: a generator of a kept lease for each term.

        Each step of a `for` over it blocks until this caller is the leader, also while
        the masters are away; the body leads while `lease.is_valid`. At its end the
        lease is released, and the next step waits in turn again. `break`, an exception
        and `close()` release at once. `on_lost`: as of `acquire`.
        """
        if callable(resource):
            encode_resource(resource)  # which refuses it
        wants = wanted(self._driver, ttl, None, True, on_lost)
        return leading(Lock(self._driver, resource, wants))

    # --- other calls ------------------------------------------------------------------

    @overload
    def holders(self, resource: str | bytes = ...) -> tuple[MasterVote, ...]: ...

    @overload
    def holders(
        self, resource: str | bytes, *, permits: int
    ) -> tuple[tuple[MasterVote, ...], ...]: ...

    def holders(
        self, resource: str | bytes = DEFAULT_RESOURCE, *, permits: int | None = None
    ) -> tuple[Any, ...]:
        """Return the holder of the resource, as every master sees it at this moment.

        One `MasterVote` per configured master, in that order: TAKEN with `token_hash`
        and `remaining_ms`, or GRANTED if nobody holds it. If several share the lock, a
        master has one vote for each of them, one behind the other. Blocks until all
        have answered, one round timeout at most. For people: the answer may be old when
        it is read. `permits`: return such a tuple for each slot of a semaphore of so
        many.
        """
        return run(self._holders(resource, permits))

    def break_(self, resource: str | bytes, *, token_hash: str) -> ReleaseStatus:
        """Break a lock that is stuck, by the hash of its token; return how that ended.

        `token_hash` is that of `holders()`: each master deletes the key only if its
        value is that token. RELEASED: a quorum is sure not to have it any more, and at
        least one had it; GONE: no master had it; UNKNOWN: fewer than a quorum answered,
        or it may be one of more readers than `holders()` shows. Blocks until all have
        answered, three round timeouts at most. The holder is not asked: if it keeps its
        lease, the next renewal reports the loss, and names you.
        """
        return run(breaking(self, resource, token_hash))

    # --- connections ------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to all masters at once; block until each is ready or has failed.

        It takes `connect_timeout` (s) at most. Not needed: the first acquire connects.
        Raises QuorumUnreachableError if fewer than a quorum is ready.
        """
        driver = self._driver
        began_ns = driver.now_ns()
        driver.run(driver.engine.new_connecting())
        self._check_connected(began_ns)

    def ping(self, timeout: float = 1.0) -> tuple[MasterHealth, ...]:
        """Ask every master now whether it would vote; return one MasterHealth for each.

        In configured order. It connects to those that are not connected, and sends each
        the SET of a key of its own that expires at once. So it finds a server that is
        frozen, read-only or without memory: `votes` is False, and `last_error` is the
        reason. Blocks until all have answered, at most `timeout` s, half of it for
        connections. Raises FastRedlockError after close().
        """
        round = self._ping(timeout)
        self._driver.run(round)
        return ping_of(self._driver.engine, round)

    def close(self, *, release: bool = False) -> None:
        """Close all connections; block for releases that are not confirmed yet.

        It waits 0.25 s for a master that is silent. Acquires of other threads end with
        QuorumUnreachableError, and their keys are deleted. `release=True` releases all
        leases that this FastRedlock took and that the program still refers to, also
        those of running `with` blocks. A release that comes later opens connections of
        its own; every other call raises FastRedlockError then.
        """
        driver = self._driver
        if not checked_flag("release", release):
            return driver.close()
        try:
            self.release_each(held_leases(driver, Lease))
        finally:
            try:
                driver.close()
            finally:  # what other threads have taken meanwhile
                self.release_each(held_leases(driver, Lease))

    def __enter__(self) -> FastRedlock:
        return self

    @guard_close
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
