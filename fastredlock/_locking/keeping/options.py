"""To keep a lease: what may be asked for, and the beginning and end of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._core import DriverFields, Terms
from ..._options.settings import positive_ns
from ...errors import ConfigurationError, LeaseLostError
from ..validity import extensions_of
from .kept import NEVER_KEPT_NS, kept_of

ROUND_TRIPS = 3  # that a renewal may need: a connection, a script that is loaded
LEAST_ROUND_TRIP_NS = 5_000_000  # below that, a busy scheduler is a lost lease
IS_COROUTINE = 0x80  # CO_COROUTINE of `inspect`


class KeepAlive:
    """What a caller asks for by `keep_alive` and `on_lost`; checked before any I/O."""

    __slots__ = ("_for_ns", "_on_lost")

    def __init__(
        self,
        keep_alive: bool | float,
        on_lost: Callable[[Any, LeaseLostError], object] | None,
    ) -> None:
        if on_lost is not None:
            check_callable(on_lost)
        if keep_alive is False:
            raise ConfigurationError("on_lost needs keep_alive: no keeper calls it")
        self._for_ns = None if keep_alive is True else for_ns(keep_alive)
        self._on_lost = on_lost

    def check(self, driver: DriverFields, ttl: float | None) -> None:
        """Raise ConfigurationError where a lease of this ttl cannot be kept."""
        settings = driver.settings
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        check_terms(driver, terms)

    def begin(self, lease: Any) -> Any:
        """Keep a lease that was taken just now; return it."""
        driver = lease._driver
        check_terms(driver, lease._asked())
        kept = kept_of(lease)
        now_ns = driver.now_ns()
        kept.until_ns = None if self._for_ns is None else now_ns + self._for_ns
        if self._on_lost is not None:
            kept.watched().on_lost = self._on_lost
        if lease._is_adopted():
            terms = lease._asked()
            until_ns = now_ns + terms.ttl_ms * 1_000_000 - terms.drift_ns
            kept.watched().unknown_until_ns = until_ns
        driver.observer.begin_kept(lease)
        driver.keep(kept)
        lease._watch_body(kept)
        return lease


class AtLeast(KeepAlive):
    """What a caller asks for by `at_least`, and by a KeepAlive beside it.

    The ttl is as long, so the key is there for that time whatever fails: released
    before, it is left, with an extension that shortens its ttl to what is missing.
    """

    __slots__ = ("_at_least_ns", "_keep")

    def __init__(self, at_least: float, keep: KeepAlive | None) -> None:
        self._at_least_ns = positive_ns("at_least", at_least)
        self._keep = keep

    def check(self, driver: DriverFields, ttl: float | None) -> None:
        """Raise ConfigurationError where a lease of this ttl cannot stay so long."""
        settings = driver.settings
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        if self._at_least_ns > terms.ttl_ms * 1_000_000:
            raise ConfigurationError(
                f"at_least={self._at_least_ns / 1e9:g}: allowed is up to the ttl "
                f"({terms.ttl_ms / 1000:g} s), which counts where its holder dies"
            )
        if terms.linger_ns:
            raise ConfigurationError("at_least beside linger: give one of them")
        if self._keep is not None:
            self._keep.check(driver, ttl)

    def begin(self, lease: Any) -> Any:
        """Let a lease stay that was taken just now; return it."""
        extensions = extensions_of(lease)
        stays_until_ns = lease._round.closed_ns + self._at_least_ns
        extensions.stays_until_ns = max(extensions.stays_until_ns, stays_until_ns)
        return lease if self._keep is None else self._keep.begin(lease)


def keep(
    lease: Any,
    keep_alive: bool | float,
    on_lost: Callable[[Any, LeaseLostError], object] | None,
) -> None:
    """Keep a lease from now on, or end that: `Lease.keep_alive`."""
    if keep_alive is False and on_lost is None:
        made = lease._round.lease_state
        if made is not None and made.kept is not None:
            made.kept.until_ns = NEVER_KEPT_NS
        return
    asked = KeepAlive(keep_alive, on_lost)
    if lease._status is not None:
        raise LeaseLostError(lease.resource, "not kept: it was released")
    if lease._round.generation != lease._driver.fork_generation():
        raise LeaseLostError(lease.resource, "not kept: it is the parent's")
    if not (lease.is_valid or lease._is_adopted()):
        raise LeaseLostError(lease.resource, "not kept: its validity is over")
    asked.begin(lease)


def for_ns(keep_alive: float) -> int:
    """Turn the longest time to keep (s) into ns."""
    return positive_ns("keep_alive", keep_alive)


def check_callable(on_lost: object) -> None:
    """Raise ConfigurationError where it cannot be called by a keeper."""
    code = getattr(on_lost, "__code__", None)
    if not callable(on_lost) or (code is not None and code.co_flags & IS_COROUTINE):
        raise ConfigurationError(
            f"on_lost={on_lost!r}: allowed is a function of a lease and an error, "
            "which is not awaited"
        )


def check_terms(driver: DriverFields, terms: Terms) -> None:
    """Raise ConfigurationError where renewals would come too late, or be of no use.

    By the shortest round so far: it shows how far away the masters are. A longer one
    shows a bad moment, in which a ttl is not wrong all at once.
    """
    if not terms.has_expiry:
        raise ConfigurationError(
            "keep_alive with NO_EXPIRY: such a key needs no renewal, and nothing would "
            "find its loss: give a ttl"
        )
    round_trip_ns = max(driver.engine.shortest_round_trip_ns, LEAST_ROUND_TRIP_NS)
    least_ns = ROUND_TRIPS * round_trip_ns + terms.drift_ns
    if terms.ttl_ms * 1_000_000 < least_ns:
        raise ConfigurationError(
            f"ttl={terms.ttl_ms / 1000}: keep_alive needs {least_ns / 1e9:.3f} s or "
            f"more, {ROUND_TRIPS} round trips of {round_trip_ns / 1e6:.0f} ms and drift"
        )
