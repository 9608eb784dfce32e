"""Semaphores and rates: slots, each of which is an ordinary lock.

Slot i of a semaphore is the key `<resource>#<i>`: at most one process holds it, so at
most k hold the semaphore, by the proof of the lock. A rate is slots that are taken and
never released: each is granted once per window, for its key lives that long.
"""

from __future__ import annotations

from typing import Any

from .._core import AcquireCall, Engine, Round, Terms, undo
from .._options.retry import number_of, refused_number
from .._options.settings import FIXED_DRIFT_NS, LONGEST_TTL, NS_PER_MS, Settings
from .._reports.votes import MasterVote, Resource, holders_of, shown
from ..errors import ConfigurationError
from . import blocking
from .lease import BaseLease

RATE_SHARE = 40  # of a window, for the round and until its caller acts
SHORTEST_ACT_NS = 5_000_000  # as the shortest round timeout
LONGEST_ACT_NS = 1_000_000_000


def holders_of_slots(
    engine: Engine, rounds: list[Round]
) -> tuple[tuple[MasterVote, ...], ...]:
    """Return the holder of each slot, as every master sees it.

    All slots have one queue, so each shows how many wait for any of them.
    """
    *slots, queue = (holders_of(engine, round) for round in rounds)
    waiting = {vote.master: vote.waiting for vote in queue}
    return tuple(
        tuple(vote._replace(waiting=waiting[vote.master]) for vote in votes)
        for votes in slots
    )


# --- rates ----------------------------------------------------------------------------


def rate_terms(settings: Settings, per: float) -> Terms:
    """Return the times of a slot that is granted once per `per` s.

    Its caller begins at t0 + act at the latest, which is the validity of the round. Its
    key is there until t0 + ttl - drift at the least, and the next one begins later. So
    ttl = per + act + drift, and `per` counts as drift.
    """
    act_ns = settings.round_timeout_ns
    seconds = number_of(per)
    per_ns = int(seconds * 1e9) if 0 < seconds <= LONGEST_TTL / 2 else 0
    if act_ns is None:
        act_ns = max(SHORTEST_ACT_NS, min(per_ns // RATE_SHARE, LONGEST_ACT_NS))
    if per_ns < act_ns:
        allowed = (
            f"{act_ns / 1e9:g} to {LONGEST_TTL // 2} s: a round may take that long "
            "(round_timeout)"
        )
        raise refused_number("per", per, allowed)
    kept_ns = per_ns + act_ns + FIXED_DRIFT_NS
    ttl_ms = -int(-kept_ns / (1 - settings.drift_factor) // NS_PER_MS)
    if settings.max_ttl is not None and ttl_ms > settings.max_ttl * 1000:
        raise ConfigurationError(
            f"per={per!r}: its keys live for {ttl_ms / 1000} s, and max_ttl is "
            f"{settings.max_ttl} s"
        )
    drift_ns = settings.drift_ns(ttl_ms) + per_ns
    return Terms(ttl_ms, drift_ns, act_ns, is_of_rate=True)


class Permit:
    """Be the permission to begin once; made by entering a rate.

    It is not released: its slot is free again when its window is over.
    """

    __slots__ = ("_driver", "_round", "resource")

    def __init__(self, lease: BaseLease) -> None:
        self._driver, self._round = lease._driver, lease._round
        self.resource: Resource = lease.resource

    @property
    def slot(self) -> int:
        """The number of the permit in its window, from 0."""
        return self._round.slot

    @property
    def waited(self) -> float:
        """The time (s) from the call until a quorum had granted."""
        return (self._round.closed_ns - self._round.began_ns) / 1e9

    def remaining(self) -> float:
        """Return the time (s) in which to begin, 0.0 when it is over; does not block.

        If work begins later, it may be one too many in its window.
        """
        if self._round.generation != self._driver.fork_generation():
            return 0.0  # a forked child has none of its parent's permits
        left_ns = self._round.valid_until_ns - self._driver.now_ns()
        return max(0.0, left_ns / 1e9)

    @shown
    def __repr__(self) -> str:
        return f"<Permit {self.resource!r} slot={self.slot}>"


def permitted(rate: Any) -> AcquireCall:
    """Return the call that takes a slot: no block, it is not left."""
    return AcquireCall(rate._driver, rate._lease, rate._resource, *rate._wanted[:4])


class Rate(blocking.Lock):
    """Let at most so many begin in any window; made by `FastRedlock.rate`.

    Entering it takes a permit, or raises ResourceTakenError; leaving it does nothing.
    As a decorator each call takes one. It may be entered any number of times, by
    several threads at once.
    """

    __slots__ = ()

    def __enter__(self) -> Permit:
        acquire = permitted(self)
        try:
            lease: BaseLease | None = acquire.run()
            if lease is None:
                raise self._taken(acquire)
            return Permit(lease)
        except BaseException:
            undo(acquire)
            raise

    def __exit__(self, *_: object) -> None:
        pass
