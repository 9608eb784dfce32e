"""Metrics for Prometheus: needs `pip install 'fastredlock[prometheus]'`.

    locks = FastRedlock(masters, observer=Collector())

One Collector may observe any number of FastRedlocks. What is counted by the locks
themselves, per operation and per master, is read where the metrics are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector as BaseCollector
except ImportError as _error:
    raise ImportError(
        "fastredlock.prometheus needs prometheus-client: "
        "pip install 'fastredlock[prometheus]'"
    ) from _error

from ._reports.totals import Totals
from .errors import AcquireError, LeaseLostError, ValidityExhaustedError
from .observer import Observer

if TYPE_CHECKING:
    from ._locking.base import BaseLocks
    from ._reports.votes import Resource


# s: from a round on one machine to a wait of minutes.
BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
OUTCOMES = ("acquired", "taken", "unreachable", "too_late")
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
    ("master_losses", "Connections that failed or were lost", ("master",)),
    ("releases_dropped", "Releases left to the ttl of their keys", ("master",)),
)
GAUGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("leases_held", "Leases that are valid, and not released", ()),
    ("master_connected", "Whether a master is connected", ("master",)),
    ("master_votes", "Whether the vote of a master counts now", ("master",)),
)


class Series(NamedTuple):
    """The methods that count, of one label."""

    acquired: Callable[[], None]
    taken: Callable[[], None]
    unreachable: Callable[[], None]
    too_late: Callable[[], None]
    attempts: Callable[[float], None]
    extensions: Callable[[], None]
    lost: Callable[[], None]
    wait: Callable[[float], None]
    hold: Callable[[float], None]
    margin: Callable[[float], None]


class Collector(Observer, BaseCollector):
    """Collect the metrics of the FastRedlocks that it observes.

    `registry`: where it registers itself; None: nowhere. `label`: a function from a
    resource to a few words, which become the label `resource` of the metrics of locks;
    without it they have none, for each value is a series of its own. `buckets`: of all
    histograms, in s.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = REGISTRY,
        *,
        label: Callable[[Resource], str] | None = None,
        buckets: Sequence[float] = BUCKETS,
    ) -> None:
        names = () if label is None else ("resource",)
        self._label = label
        self._by_label: dict[str, Series] = {}
        self._acquires = Counter(
            "fastredlock_acquires",
            "Acquires that have ended",
            ("outcome", *names),
            registry=None,
        )
        self._attempts = Counter(
            "fastredlock_attempts", "Rounds of these acquires", names, registry=None
        )
        self._extensions = Counter(
            "fastredlock_extensions",
            "Extensions, by hand and by keepers",
            names,
            registry=None,
        )
        self._lost = Counter(
            "fastredlock_leases_lost",
            "Leases that ended otherwise than by their release",
            names,
            registry=None,
        )
        self._wait, self._hold, self._margin = (
            Histogram(name, text, names, registry=None, buckets=buckets)
            for name, text in (
                ("fastredlock_wait_seconds", "Time from the call until the grant"),
                ("fastredlock_hold_seconds", "Time from the grant until the release"),
                ("fastredlock_margin_seconds", "Validity left when a release began"),
            )
        )
        self._metrics: tuple[Any, ...] = (
            *(self._acquires, self._attempts, self._extensions, self._lost),
            *(self._wait, self._hold, self._margin),
        )
        # All of a label at once: counters that begin with 0 can be alerted on.
        self._series = self._new_series() if label is None else None
        self._totals = Totals()
        if registry is not None:
            registry.register(self)

    # --- events -----------------------------------------------------------------------

    def attach(self, locks: BaseLocks) -> None:
        """Read the counters of this FastRedlock as well."""
        self._totals.add(locks)

    def acquired(self, resource: Resource, waited: float, attempts: int) -> None:
        """Count a grant."""
        series = self._series or self._series_of(resource)
        series.acquired()
        series.attempts(attempts)
        series.wait(waited)

    def taken(self, resource: Resource, waited: float, attempts: int) -> None:
        """Count an acquire that ended without."""
        series = self._series or self._series_of(resource)
        series.taken()
        series.attempts(attempts)

    def unreachable(
        self, resource: Resource, waited: float, attempts: int, error: AcquireError
    ) -> None:
        """Count an acquire without a quorum in time."""
        series = self._series or self._series_of(resource)
        is_late = isinstance(error, ValidityExhaustedError)
        (series.too_late if is_late else series.unreachable)()
        series.attempts(attempts)

    def extended(self, resource: Resource, remaining: float) -> None:
        """Count an extension."""
        (self._series or self._series_of(resource)).extensions()

    def lost(self, resource: Resource, held: float, error: LeaseLostError) -> None:
        """Count a loss."""
        (self._series or self._series_of(resource)).lost()

    def margin(self, resource: Resource, left: float) -> None:
        """Count how close it was."""
        (self._series or self._series_of(resource)).margin(left)

    def released(self, resource: Resource, held: float) -> None:
        """Count a hold."""
        (self._series or self._series_of(resource)).hold(held)

    def _series_of(self, resource: Resource) -> Series:
        label = self._label(resource)  # type: ignore[misc]  # else there is one alone
        found = self._by_label.get(label)
        return self._new_series(label) if found is None else found

    def _new_series(self, *labels: str) -> Series:
        # The methods of its metrics, looked up once. Two threads make the same ones.
        acquired, taken, unreachable, too_late = (
            self._acquires.labels(outcome, *labels).inc for outcome in OUTCOMES
        )
        attempts, extensions, lost, wait, hold, margin = (
            metric.labels(*labels) if labels else metric for metric in self._metrics[1:]
        )
        series = Series(
            *(acquired, taken, unreachable, too_late),
            *(attempts.inc, extensions.inc, lost.inc),
            *(wait.observe, hold.observe, margin.observe),
        )
        if labels:
            self._by_label[labels[0]] = series
        return series

    # --- collecting -------------------------------------------------------------------

    def describe(self) -> Iterable[Metric]:
        """Name the metrics, so that a registry refuses a second Collector."""
        for metric in self._metrics:
            yield from metric.describe()
        for name, text, labels in FIGURES:
            yield CounterMetricFamily(f"fastredlock_{name}", text, labels=labels)
        for name, text, labels in GAUGES:
            yield GaugeMetricFamily(f"fastredlock_{name}", text, labels=labels)

    def collect(self) -> Iterable[Metric]:
        """Read all metrics, for a scrape; does no I/O."""
        for metric in self._metrics:
            yield from metric.collect()
        for family, figures, read in (
            (CounterMetricFamily, FIGURES, self._totals.read()),
            (GaugeMetricFamily, GAUGES, self._totals.gauges()),
        ):
            for name, text, labels in figures:
                metric = family(f"fastredlock_{name}", text, labels=labels)
                for key, value in read.items():
                    if key[0] == name:
                        metric.add_metric(key[1:], value)
                yield metric
