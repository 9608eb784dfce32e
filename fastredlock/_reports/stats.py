"""The counters of a FastRedlock."""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from .._core import Engine


class Stats(
    namedtuple(
        "Stats",
        "rounds won taken unreachable too_late rolled_back late_replies "
        "repeated_scripts connects losses releases_dropped waits turns_told "
        "turns_missed handed_over fences_written round_trip",
    )
):
    """Count the events since a FastRedlock was made, rounds of every kind together.

    A round is one command to all masters: acquire, extend, release or inspect.
    """

    __slots__ = ()

    rounds: int  # asked
    won: int  # granted by a quorum in time
    taken: int  # a quorum could answer, too few granted
    unreachable: int  # fewer than a quorum could answer
    too_late: int  # granted by a quorum with no validity left
    rolled_back: int  # acquires undone on the masters that may have granted
    late_replies: int  # came after their round was closed, and were counted there
    repeated_scripts: int  # NOSCRIPT answered by sending the source
    connects: int  # connections that became ready
    losses: int  # connections that failed or were lost
    releases_dropped: int  # for silent masters, beyond 65,536 each: left to their ttl
    waits: int  # callers that waited in a queue, each call once
    turns_told: int  # that a master told: it is this process's turn
    turns_missed: int  # ...when nobody waited here any more
    handed_over: int  # locks that went from one caller of this process to the next
    fences_written: int  # acquires whose number took a second write, with fencing
    round_trip: float  # s, smoothed time of a round until its quorum; 0.0 before any

    @classmethod
    def of(cls, engine: Engine) -> Stats:
        """Read the counters of an engine."""
        counters = engine.counters
        counted = {name: getattr(counters, name) for name in cls._fields[:-1]}
        return cls(**counted, round_trip=engine.round_trip_ns / 1e9)
