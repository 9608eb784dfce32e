"""The counters of a FastRedlock."""

from typing import NamedTuple, Self

from .._core import Engine

COUNTED = 18  # fields of Stats that are counters of the core


class OperationStats(NamedTuple):
    """Count the rounds of one operation that have ended, by verdict."""

    won: int = 0
    taken: int = 0  #: of an extension: lost; of a release: gone
    unreachable: int = 0
    too_late: int = 0


class MasterStats(NamedTuple):
    """Count the events of one master, by its name without user or password.

    A master that was silent may answer later: then that counts as well.
    """

    master: str
    granted: int = 0  #: answers, late ones too
    taken: int = 0  #: likewise; of an extension or a release: our key is not there
    failed: int = 0  #: error replies, and commands not sent or cut off
    silent: int = 0  #: rounds that ended at their deadline without its reply
    late_replies: int = 0  #: came after their round was closed
    connects: int = 0  #: connections that became ready
    losses: int = 0  #: connections that failed or were lost
    releases_dropped: int = 0  #: beyond 65,536


class Stats(NamedTuple):
    """Count the events since a FastRedlock was made, rounds of every kind together.

    A round is one command to all masters: acquire, extend, release, inspect or ping.
    The last six are the same apart: by operation, and `tuple[MasterStats, ...]`, one
    for each configured master, in that order.
    """

    rounds: int  #: asked
    won: int  #: granted by a quorum in time
    taken: int  #: a quorum could answer, too few granted
    unreachable: int  #: fewer than a quorum could answer
    too_late: int  #: granted by a quorum with no validity left
    rolled_back: int  #: acquires undone on the masters that may have granted
    late_replies: int  #: came after their round was closed, and were counted there
    repeated_scripts: int  #: NOSCRIPT answered by sending the source
    connects: int  #: connections that became ready
    losses: int  #: connections that failed or were lost
    releases_dropped: int  #: for silent masters, beyond 65,536 each: left to their ttl
    waits: int  #: callers that waited in a queue, each call once
    turns_told: int  #: messages of masters: it is this process's turn
    turns_missed: int  #: ...when nobody waited here any more
    handed_over: int  #: locks that went from one caller of this process to the next
    handed_on: int  #: ...without the network
    lingered: int  #: grants of a key that rested here, without the network
    fences_written: int  #: acquires whose number took a second write, with fencing
    round_trip: float  #: s, smoothed time of a round until its quorum; 0.0 before any
    acquires: OperationStats
    extends: OperationStats
    releases: OperationStats
    inspects: OperationStats
    pings: OperationStats
    masters: tuple[MasterStats, ...]

    @classmethod
    def of(cls, engine: Engine) -> Self:
        """Read the counters of an engine."""
        counters = engine.counters
        counted = {name: getattr(counters, name) for name in cls._fields[:COUNTED]}
        apart = [OperationStats(*each) for each in counters.operations]
        return cls(
            **counted,
            round_trip=engine.round_trip_ns / 1e9,
            acquires=apart[0],
            extends=apart[1],
            releases=apart[2],
            inspects=apart[3],
            pings=apart[4],
            masters=tuple(MasterStats(*each) for each in engine.figures),
        )
