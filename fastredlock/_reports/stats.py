"""The counters of a FastRedlock."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from typing import NamedTuple

    from .._core import Engine
else:
    from .named import NamedTuple


class Stats(NamedTuple):
    """Count the events since a FastRedlock was made, rounds of every kind together.

    A round is one command to all masters: acquire, extend, release, inspect or ping.
    """

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
    round_trip: float  # s, smoothed time of a round until its quorum; 0.0 before any

    @classmethod
    def of(cls, engine: Engine) -> Stats:
        """Read the counters of an engine."""
        counters = engine.counters
        counted = {name: getattr(counters, name) for name in cls._fields[:-1]}
        return cls(**counted, round_trip=engine.round_trip_ns / 1e9)
