"""The counters since a FastRedlock was made."""

from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock import FastRedlock, Stats
from fastredlock._core import Counters

COUNTED = [name for name in Stats._fields if name != "round_trip"]


def test_stats_are_all_zero_before_any_use() -> None:
    assert FastRedlock(["redis://a"]).stats() == (0,) * 16 + (0.0,)


def test_stats_tell_every_counter_of_the_core() -> None:
    kept = {name for name in dir(Counters) if not name.startswith("_")}
    assert set(COUNTED) == kept


@pytest.mark.parametrize("name", COUNTED)
def test_stats_tell_each_counter_under_its_own_name(name: str) -> None:
    counters = SimpleNamespace(**dict.fromkeys(COUNTED, 0) | {name: 7})
    engine: Any = SimpleNamespace(counters=counters, round_trip_ns=0)
    assert Stats.of(engine)._asdict() == (
        dict.fromkeys(COUNTED, 0) | {name: 7, "round_trip": 0.0}
    )


def test_stats_tell_the_round_trip_in_seconds() -> None:
    counters = SimpleNamespace(**dict.fromkeys(COUNTED, 0))
    engine: Any = SimpleNamespace(counters=counters, round_trip_ns=130_000)
    assert Stats.of(engine).round_trip == 0.00013


def test_stats_are_a_value_that_later_rounds_do_not_change() -> None:
    counters = SimpleNamespace(**dict.fromkeys(COUNTED, 0))
    engine: Any = SimpleNamespace(counters=counters, round_trip_ns=0)
    stats = Stats.of(engine)
    counters.rounds += 1
    assert stats.rounds == 0
