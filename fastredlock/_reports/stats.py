"""The counters of a FastRedlock, and their sums over several, for metrics."""

import _thread  # by its name: gevent may patch it later
from collections import Counter
from typing import Any, NamedTuple, Protocol, Self
from weakref import WeakKeyDictionary

from .._core import Engine
from .health import MasterHealth

COUNTED = 18  # fields of Stats that are counters of the core
Key = tuple[str, ...]  # of Totals: what is counted, and of what
# s, of histograms: from a round on one machine to a wait of minutes.
BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
OPERATIONS = ("acquire", "extend", "release", "inspect", "ping")


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
    losses: int = 0  #: of these, how many ended
    releases_dropped: int = 0  #: beyond 65,536


class Stats(NamedTuple):
    """Count the events since a FastRedlock was made, rounds of all operations together.

    A round is one command to all masters: acquire, extend, release, inspect or ping.
    The last six fields are by operation, and `tuple[MasterStats, ...]`, one for each
    configured master, in that order.
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
    losses: int  #: of these, how many ended
    releases_dropped: int  #: for silent masters, beyond 65,536 each: left to their ttl
    waits: int  #: callers that waited in a queue, each call once
    turns_told: int  #: messages of masters: it is this process's turn
    turns_missed: int  #: ...when nobody waited here any more
    handed_over: int  #: locks that went from one caller of this process to the next
    handed_on: int  #: ...without the network
    lingered: int  #: grants of an idle key of this process, without the network
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
        """Return the counts of an engine, as they are now."""
        counters = engine.counters
        ended = map(sum, zip(*counters.operations, strict=True))
        counted = (getattr(counters, name) for name in cls._fields[5:COUNTED])
        apart = (OperationStats(*each) for each in counters.operations)
        masters = tuple(MasterStats(*each) for each in engine.figures)
        together = counters.rounds, *ended, *counted, engine.round_trip_ns / 1e9
        return cls._make((*together, *apart, masters))


class Counting(Protocol):
    """A FastRedlock, as far as its counters are read."""

    _driver: Any

    def stats(self) -> Stats: ...

    def health(self) -> tuple[MasterHealth, ...]: ...

    def _held_count(self) -> int: ...


class Totals:
    """Sum the Stats of FastRedlocks, whether these are still there or not.

    Keys: ("rounds", operation, verdict), ("master_answers", master),
    ("master_failures", master, "failed" or "silent"), ("master_connects", master),
    ("master_losses", master), ("releases_dropped", master).
    """

    __slots__ = ("_counts", "_lock", "_read")

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._counts: Counter[Key] = Counter()
        self._read: WeakKeyDictionary[Counting, Counter[Key]] = WeakKeyDictionary()

    def add(self, locks: Counting) -> None:
        """Count this FastRedlock from now on."""
        with self._lock:
            self._read[locks] = Counter()

    def read(self) -> dict[Key, int]:
        """Return the sums, 0 of what has not happened yet; does no I/O."""
        with self._lock:
            for locks in list(self._read):
                counts = counts_of(locks.stats())
                before = self._read[locks]
                for key, count in counts.items():
                    self._counts[key] += count - before[key]
                self._read[locks] = counts
            return dict(sorted(self._counts.items()))

    def gauges(self) -> dict[Key, int]:
        """Return what is so now, of the FastRedlocks that are open; does no I/O.

        Keys: ("leases_held",), and for each master that was asked, 1 or 0:
        ("master_connected", master), ("master_votes", master), 0 where it is so of any;
        ("master_warnings", master): how many, where there are the most.
        """
        found: dict[Key, int] = {("leases_held",): 0}
        with self._lock:
            clients = [each for each in self._read if not each._driver.engine.is_closed]
        for locks in clients:
            found["leases_held",] += locks._held_count()
            for health in locks.health():
                if health.state.name == "CLOSED":  # it was not asked
                    continue
                is_connected = health.state.name == "READY"
                for key, value in (
                    (("master_connected", health.master), is_connected),
                    (("master_votes", health.master), health.votes),
                ):
                    found[key] = min(found.get(key, 1), int(value))
                warned = "master_warnings", health.master
                found[warned] = max(found.get(warned, 0), len(health.warnings))
        return found


def counts_of(stats: Stats) -> Counter[Key]:
    """Return the counters under the keys of Totals."""
    counts: Counter[Key] = Counter()
    for operation in OPERATIONS:
        verdicts: OperationStats = getattr(stats, f"{operation}s")
        for verdict, count in zip(verdicts._fields, verdicts, strict=True):
            counts["rounds", operation, verdict] = count
    for each in stats.masters:
        name = each.master
        # Two masters of one name are databases of one server: they are summed.
        counts["master_answers", name] += each.granted + each.taken
        counts["master_failures", name, "failed"] += each.failed
        counts["master_failures", name, "silent"] += each.silent
        counts["master_connects", name] += each.connects
        counts["master_losses", name] += each.losses
        counts["releases_dropped", name] += each.releases_dropped
    return counts
