"""What an observer counts in the core, against prometheus_client's own histogram."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from fastredlock._core import Tally
from fastredlock.prometheus import Collector

INF, NAN = float("inf"), float("nan")
BOUNDS = st.lists(st.integers(-4, 40).map(lambda n: n / 8), min_size=1, unique=True)
AMOUNTS = st.lists(st.integers(-10, 60).map(lambda n: n / 8))


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
    found = [each.read() for each in (tally.waits, tally.holds, tally.margins)]
    for (counts, total), amounts in zip(found, (waits, holds, margins), strict=True):
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


def test_tally_counts_what_is_rare_by_its_place() -> None:
    tally = Tally([1.0])
    for place in range(7):
        tally.add(place, place + 1)
    assert tally.read() == [1, 2, 3, 4, 5, 6, 7]
    for place in (-1, 7):
        with pytest.raises(IndexError):
            tally.add(place, 1)


def test_tally_of_bounds_that_grow_as_they_are_read_has_those_that_were_read() -> None:
    class Growing:
        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[float]:
            return iter([1.0] * 10_000)

    counts, _ = Tally(Growing()).holds.read()  # type: ignore[arg-type]
    assert len(counts) == 10_001


def test_tally_of_what_is_no_number_counts_nothing() -> None:
    tally = Tally([1.0])
    for call in (tally.margin, tally.released):
        with pytest.raises(TypeError):
            call("orders:42", "soon")  # type: ignore[arg-type]
    assert tally.holds.read() == tally.margins.read() == ([0, 0], 0.0)


@pytest.mark.parametrize(
    "buckets", [(), (2.0, 1.0), (INF,), ("inf",), (INF, 1.0), (1.0, NAN)]
)
def test_collector_when_its_buckets_are_no_bounds_then_is_refused(
    buckets: tuple[float, ...],
) -> None:
    with pytest.raises(ValueError, match="buckets="):
        Collector(None, buckets=buckets)


def test_collector_when_its_buckets_end_with_infinity_then_has_it_once() -> None:
    collector = Collector(None, buckets=["0.1", "+Inf"])  # type: ignore[list-item]
    (family,) = (each for each in collector.collect() if "wait" in each.name)
    bounds = [sample.labels.get("le") for sample in family.samples]
    assert bounds == ["0.1", "+Inf", None, None]
