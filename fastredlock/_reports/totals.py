"""The counters of several FastRedlocks together: they never fall, for metrics."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from .._core import Tally
from .health import MasterHealth
from .stats import Stats

__all__ = ["Tally", "Totals"]

Key = tuple[str, ...]  # what is counted, and of what

VERDICTS = ("won", "taken", "unreachable", "too_late")
OPERATIONS = ("acquire", "extend", "release", "inspect", "ping")


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
        self._lock = Lock()
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
        ("master_connected", master), ("master_votes", master), 0 where it is so of any.
        """
        found: dict[Key, int] = {("leases_held",): 0}
        with self._lock:
            clients = [each for each in self._read if not each._driver.engine.is_closed]
        for locks in clients:
            found["leases_held",] += locks._held_count()
            for health, figures in zip(
                locks.health(), locks.stats().masters, strict=True
            ):
                if figures.connects or figures.losses:
                    name, is_connected = health.master, health.state.name == "READY"
                    for key, value in (
                        ("master_connected", is_connected),
                        ("master_votes", health.votes),
                    ):
                        found[key, name] = min(found.get((key, name), 1), int(value))
        return found


def counts_of(stats: Stats) -> Counter[Key]:
    """Return the counters under the keys of Totals."""
    counts: Counter[Key] = Counter()
    operations = (
        *(stats.acquires, stats.extends, stats.releases, stats.inspects),
        stats.pings,
    )
    for operation, verdicts in zip(OPERATIONS, operations, strict=True):
        for verdict, count in zip(VERDICTS, verdicts, strict=True):
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
