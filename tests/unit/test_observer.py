"""What may observe, what it counts in the core, the counters, and what none costs."""

from __future__ import annotations

from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    OperationStats,
    Stats,
)
from fastredlock._core import Counters, Tally
from fastredlock._locking.observing import Observing
from fastredlock.observer import Observer
from fastredlock.prometheus import Collector

MASTERS = ["redis://127.0.0.1:1"]


class Awaited:
    async def acquired(self, *_: object) -> None:
        """Do nothing."""


class Data:
    released = 5


@pytest.mark.parametrize(
    ("observer", "words"),
    [
        (5, "observer of type int"),
        (Observer, "observer of type type"),
        (print, "builtin_function_or_method"),
        (Awaited(), "acquired of the observer of type Awaited: .* not awaited"),
        (Data(), "released of the observer of type Data"),
    ],
)
def test_observer_when_it_cannot_be_told_then_is_refused(
    observer: object, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        FastRedlock(MASTERS, observer=observer)


def test_observer_when_it_wants_then_knows_its_locks() -> None:
    class Attached(Observer):
        __slots__ = ("locks",)

        def attach(self, locks: Any) -> None:
            self.locks = locks

    observer = Attached()
    assert FastRedlock(MASTERS, observer=observer) is observer.locks


# ---- the cost without


def test_observer_when_a_method_is_the_bases_then_it_is_not_called() -> None:
    class Counting(Observer):
        def acquired(self, *_: object) -> None:
            """Do nothing."""

    hooks = Observing(Counting())
    assert list(hooks.methods) == ["acquired"]


COUNTED = Stats._fields[: Stats._fields.index("round_trip")]
APART = Stats._fields[Stats._fields.index("round_trip") + 1 :]


def engine_of(round_trip_ns: int = 0, **counted: int) -> Any:
    """Return a stand-in for an engine with these counters, and all others 0."""
    ended = tuple(counted.pop(name, 0) for name in OperationStats._fields)
    operations = ((0, 0, 0, 0), ended, *((0, 0, 0, 0),) * 3)
    zero = dict.fromkeys(COUNTED, 0)
    counters = SimpleNamespace(**zero | counted, operations=operations)
    return SimpleNamespace(counters=counters, round_trip_ns=round_trip_ns, figures=())


def test_stats_tell_every_counter_of_the_core() -> None:
    assert " ".join(APART) == "acquires extends releases inspects pings masters"
    kept = {name for name in dir(Counters) if not name.startswith("_")}
    assert {*COUNTED, "operations"} - {*OperationStats._fields} == kept


@pytest.mark.parametrize("name", COUNTED)
def test_stats_tell_each_counter_under_its_own_name(name: str) -> None:
    found = Stats.of(engine_of(**{name: 7}))._asdict()
    assert {key: found[key] for key in COUNTED} == (
        dict.fromkeys(COUNTED, 0) | {name: 7}
    )


INF, NAN = float("inf"), float("nan")
BOUNDS = st.lists(st.integers(-4, 40).map(lambda n: n / 8), min_size=1, unique=True)
AMOUNTS = st.lists(st.integers(-10, 60).map(lambda n: n / 8))


@settings(deadline=None)  # a loaded machine makes no example wrong
@given(BOUNDS.map(sorted), AMOUNTS, AMOUNTS, AMOUNTS)
def test_tally_of_any_amounts_is_that_of_a_histogram(
    bounds: list[float], waits: list[float], holds: list[float], margins: list[float]
) -> None:
    tally = Tally(bounds)
    for wait in waits:
        tally.acquired("orders:42", wait, 2)
    for hold in holds:
        tally.released("orders:42", hold)
    for margin in margins:
        tally.margin("orders:42", margin)
    assert tally.read() == [len(waits), 0, 0, 0, 2 * len(waits), 0, 0]
    found = (tally.waits, tally.holds, tally.margins)
    for (*counts, total), amounts in zip(found, (waits, holds, margins), strict=True):
        registry = CollectorRegistry()
        theirs = Histogram("seconds", "all", registry=registry, buckets=bounds)
        for amount in amounts:
            theirs.observe(amount)
        (family,) = registry.collect()
        buckets = [
            sample.value for sample in family.samples if sample.name.endswith("_bucket")
        ]
        assert list(accumulate(counts)) == buckets
        assert total == sum(amounts)


@pytest.mark.parametrize(
    "buckets", [(), (2.0, 1.0), (INF,), ("inf",), (INF, 1.0), (1.0, NAN)]
)
def test_collector_when_its_buckets_are_no_bounds_then_is_refused(
    buckets: tuple[float, ...],
) -> None:
    with pytest.raises(ValueError, match="buckets="):
        Collector(None, buckets=buckets)
