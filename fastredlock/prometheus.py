"""Metrics for Prometheus: needs `pip install 'fastredlock[prometheus]'`.

    locks = FastRedlock(masters, observer=Collector())

One Collector may observe any number of FastRedlocks. What is counted by the locks
themselves, per operation and per master, is read where the metrics are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import isnan
from types import MethodType
from typing import Any

from ._reports.votes import Resource

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector as BaseCollector
    from prometheus_client.utils import INF, floatToGoString
    from prometheus_client.values import MutexValue, ValueClass
except ImportError as _error:
    raise ImportError(
        "fastredlock.prometheus needs prometheus-client: "
        "pip install 'fastredlock[prometheus]'"
    ) from _error

from ._core import Tally
from ._reports.stats import BUCKETS, Counting, Key, Totals
from .errors import AcquireError, LeaseLostError, ValidityExhaustedError
from .observer import Observer

OUTCOMES = ("acquired", "taken", "unreachable", "too_late")
ACQUIRED, ATTEMPTS, EXTENSIONS, LOST = 0, *range(len(OUTCOMES), len(OUTCOMES) + 3)
COUNTED = (  # behind the outcomes, in the order of calls/observer.pyx
    ("attempts", "Rounds of these acquires"),
    ("extensions", "Extensions, by hand and by keepers"),
    ("leases_lost", "Leases that ended otherwise than by their release"),
)
TIMED = (  # by the attributes of a tally
    ("waits", "wait_seconds", "Time from the call until the grant"),
    ("holds", "hold_seconds", "Time from the grant until the release"),
    ("margins", "margin_seconds", "Validity left when a release began"),
)
ACQUIRES = "fastredlock_acquires", "Acquires that have ended"
# Of Totals: name, what it counts, its labels.
FIGURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("rounds", "Rounds that have ended", ("operation", "verdict")),
    ("master_answers", "Answers of a master to rounds", ("master",)),
    (
        "master_failures",
        "Rounds in which a master failed, or was silent until the deadline",
        ("master", "kind"),
    ),
    ("master_connects", "Connections that became ready", ("master",)),
    ("master_losses", "Connections that were lost", ("master",)),
    ("releases_dropped", "Releases left to the ttl of their keys", ("master",)),
)
GAUGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("leases_held", "Leases that are valid, and not released", ()),
    ("master_connected", "Whether a master is connected", ("master",)),
    ("master_votes", "Whether the vote of a master counts now", ("master",)),
    ("master_warnings", "Warnings of health() about a master", ("master",)),
)


class Files:
    """The metrics of several processes, which prometheus_client keeps in files."""

    def __init__(self, names: tuple[str, ...], buckets: Sequence[float]) -> None:
        self.acquires: Counter = Counter(*ACQUIRES, ("outcome", *names), registry=None)
        self.metrics: list[Any] = [
            Counter(f"fastredlock_{name}", text, names, registry=None)
            for name, text in COUNTED
        ]
        self.metrics += (
            Histogram(f"fastredlock_{n}", text, names, registry=None, buckets=buckets)
            for _, n, text in TIMED
        )

    def collect(self) -> Iterable[Metric]:
        """Return those of this process."""
        for metric in (self.acquires, *self.metrics):
            yield from metric.collect()


class FileTally:
    """Count in files, by the methods that a `Tally` of the core has."""

    def __init__(self, files: Files, label: tuple[str, ...]) -> None:
        counts: list[Any] = [files.acquires.labels(each, *label) for each in OUTCOMES]
        others = [each.labels(*label) if label else each for each in files.metrics]
        counts += others[: len(COUNTED)]
        self._incs = [each.inc for each in counts]
        self._wait, self._hold, self._margin = (
            each.observe for each in others[len(COUNTED) :]
        )

    def acquired(self, resource: Resource, waited: float, attempts: int) -> None:
        self.add(ACQUIRED, 1)
        self.add(ATTEMPTS, attempts)
        self._wait(waited)

    def margin(self, resource: Resource, left: float) -> None:
        self._margin(left)

    def released(self, resource: Resource, held: float) -> None:
        self._hold(held)

    def add(self, place: int, amount: int) -> None:
        self._incs[place](amount)


class Collector(Observer, BaseCollector):
    """Collect the metrics of the FastRedlocks that it observes.

    `registry`: the one that it registers itself with; None: with none. `label`: a
    function from a resource to a few words, which become the label `resource` of the
    metrics of locks. Without it they have no such label, because each value is a series
    of its own. `buckets`: of all histograms, in s.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = REGISTRY,
        *,
        label: Callable[[Resource], str] | None = None,
        buckets: Sequence[float] = BUCKETS,
    ) -> None:
        bounds = [float(each) for each in buckets]
        is_sorted = bounds == sorted(bounds) and not any(map(isnan, bounds))
        if bounds and bounds[-1] == INF:
            bounds.pop()
        if not bounds or not is_sorted:
            raise ValueError(f"buckets={buckets!r}: give bounds in s, the least first")
        self._bounds = bounds
        self._label = label
        self._names = () if label is None else ("resource",)
        is_shared = ValueClass is not MutexValue
        self._files = Files(self._names, bounds) if is_shared else None
        self._tallies: dict[tuple[str, ...], Any] = {}
        self._totals = Totals()
        if label is None:
            # Called by the core, without a function of Python in between.
            tally = self._tally_of("")
            for event in ("acquired", "margin", "released"):
                if getattr(self, event, None) == MethodType(OWN[event], self):
                    setattr(self, event, getattr(tally, event))
        if registry is not None:
            registry.register(self)

    # --- events -----------------------------------------------------------------------

    def attach(self, locks: Counting) -> None:
        self._totals.add(locks)

    def acquired(self, resource: Resource, waited: float, attempts: int) -> None:
        self._tally_of(resource).acquired(resource, waited, attempts)

    def taken(self, resource: Resource, waited: float, attempts: int) -> None:
        self._count_failure(resource, "taken", attempts)

    def unreachable(
        self, resource: Resource, waited: float, attempts: int, error: AcquireError
    ) -> None:
        is_late = isinstance(error, ValidityExhaustedError)
        self._count_failure(
            resource, "too_late" if is_late else "unreachable", attempts
        )

    def extended(self, resource: Resource, remaining: float) -> None:
        self._tally_of(resource).add(EXTENSIONS, 1)

    def lost(self, resource: Resource, held: float, error: LeaseLostError) -> None:
        self._tally_of(resource).add(LOST, 1)

    def margin(self, resource: Resource, left: float) -> None:
        self._tally_of(resource).margin(resource, left)

    def released(self, resource: Resource, held: float) -> None:
        self._tally_of(resource).released(resource, held)

    def _count_failure(self, resource: Resource, outcome: str, attempts: int) -> None:
        tally = self._tally_of(resource)
        tally.add(OUTCOMES.index(outcome), 1)
        tally.add(ATTEMPTS, attempts)

    def _tally_of(self, resource: Resource) -> Any:
        label = () if self._label is None else (str(self._label(resource)),)
        found = self._tallies.get(label)
        if found is None:
            # All counts of a label at once: those that begin with 0 can be alerted on.
            files = self._files
            new = Tally(self._bounds) if files is None else FileTally(files, label)
            found = self._tallies.setdefault(label, new)  # two threads may come here
        return found

    # --- collecting -------------------------------------------------------------------

    def describe(self) -> Iterable[Metric]:
        """Name the metrics, so that a registry refuses a second Collector."""
        yield from self._families({})
        yield from figures_of({}, {})

    def collect(self) -> Iterable[Metric]:
        """Read all metrics, for a scrape; does no I/O."""
        if self._files is None:
            yield from self._families(self._tallies.copy())
        else:
            yield from self._files.collect()
        yield from figures_of(self._totals.read(), self._totals.gauges())

    def _families(self, tallies: dict[tuple[str, ...], Any]) -> Iterable[Metric]:
        names, read = self._names, {at: each.read() for at, each in tallies.items()}
        acquires = CounterMetricFamily(*ACQUIRES, labels=("outcome", *names))
        for label, counts in read.items():
            for outcome, count in zip(OUTCOMES, counts, strict=False):
                acquires.add_metric((outcome, *label), count)
        yield acquires
        for place, (name, text) in enumerate(COUNTED, len(OUTCOMES)):
            counted = CounterMetricFamily(f"fastredlock_{name}", text, labels=names)
            for label, counts in read.items():
                counted.add_metric(label, counts[place])
            yield counted
        written: Any = floatToGoString
        bounds = [written(bound) for bound in (*self._bounds, INF)]
        for attribute, name, text in TIMED:
            timed = HistogramMetricFamily(f"fastredlock_{name}", text, labels=names)
            for label, tally in tallies.items():
                *counts, total = getattr(tally, attribute)
                buckets = [*zip(bounds, accumulate(counts), strict=True)]
                timed.add_metric(label, buckets, total)
            yield timed


def figures_of(counts: dict[Key, int], gauges: dict[Key, int]) -> Iterable[Metric]:
    for family, figures, read in (
        (CounterMetricFamily, FIGURES, counts),
        (GaugeMetricFamily, GAUGES, gauges),
    ):
        for name, text, labels in figures:
            metric = family(f"fastredlock_{name}", text, labels=labels)
            for key, value in read.items():
                if key[0] == name:
                    metric.add_metric(key[1:], value)
            yield metric


# What the core may call in the place of these methods: they do nothing but count. Not
# where a subclass, or a test, has put others there.
OWN = {event: vars(Collector)[event] for event in ("acquired", "margin", "released")}
