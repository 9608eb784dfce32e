"""The counters of a FastRedlock."""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from .._core import Engine


COUNTED = 15  # fields of Stats that are counters of the core


class OperationStats(
    namedtuple(
        "OperationStats", "won taken unreachable too_late", defaults=[0, 0, 0, 0]
    )
):
    """Count the rounds of one operation that have ended, by verdict."""

    __slots__ = ()

    won: int
    taken: int  # of an extension: lost; of a release: gone
    unreachable: int
    too_late: int


class MasterStats(
    namedtuple(
        "MasterStats",
        "master granted taken failed silent late_replies connects losses "
        "releases_dropped",
        defaults=[0, 0, 0, 0, 0, 0, 0, 0],
    )
):
    """Count the events of one master, by its name without user or password.

    A master that was silent may answer later: then that counts as well.
    """

    __slots__ = ()

    master: str
    granted: int  # answers, late ones too
    taken: int  # likewise; of an extension or a release: our key is not there
    failed: int  # error replies, and commands not sent or cut off
    silent: int  # rounds that ended at their deadline without its reply
    late_replies: int  # came after their round was closed
    connects: int  # connections that became ready
    losses: int  # connections that failed or were lost
    releases_dropped: int  # beyond 65,536


class Stats(
    namedtuple(
        "Stats",
        "rounds won taken unreachable too_late rolled_back late_replies "
        "repeated_scripts connects losses releases_dropped waits turns_told "
        "turns_missed handed_over round_trip acquires extends releases inspects "
        "masters",
    )
):
    """Count the events since a FastRedlock was made, rounds of every kind together.

    A round is one command to all masters: acquire, extend, release or inspect. The last
    five are the same apart: by operation, and `tuple[MasterStats, ...]`, one for each
    configured master, in that order.
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
    round_trip: float  # s, smoothed time of a round until its quorum; 0.0 before any
    acquires: OperationStats
    extends: OperationStats
    releases: OperationStats
    inspects: OperationStats
    masters: tuple[MasterStats, ...]

    @classmethod
    def of(cls, engine: Engine) -> Stats:
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
            masters=tuple(MasterStats(*each) for each in engine.figures),
        )
