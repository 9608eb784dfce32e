"""The counters since a FastRedlock was made."""

from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock import FastRedlock, MasterStats, OperationStats, Stats
from fastredlock._core import Counters

COUNTED = Stats._fields[: Stats._fields.index("round_trip")]
APART = Stats._fields[Stats._fields.index("round_trip") + 1 :]


def engine_of(round_trip_ns: int = 0, **counted: int) -> Any:
    """Return a stand-in for an engine with these counters, and all others 0."""
    operations = ((0, 0, 0, 0),) * 5
    zero = dict.fromkeys(COUNTED, 0)
    counters = SimpleNamespace(**zero | counted, operations=operations)
    return SimpleNamespace(counters=counters, round_trip_ns=round_trip_ns, figures=())


def test_stats_are_all_zero_before_any_use() -> None:
    nothing = OperationStats()
    expected = (*[0] * 18, 0.0, *[nothing] * 5, (MasterStats("a:6379"),))
    assert FastRedlock(["redis://a"]).stats() == expected


def test_stats_tell_every_counter_of_the_core() -> None:
    kept = {name for name in dir(Counters) if not name.startswith("_")}
    assert {*COUNTED, "operations"} == kept


@pytest.mark.parametrize("name", COUNTED)
def test_stats_tell_each_counter_under_its_own_name(name: str) -> None:
    found = Stats.of(engine_of(**{name: 7}))._asdict()
    assert {key: found[key] for key in COUNTED} == (
        dict.fromkeys(COUNTED, 0) | {name: 7}
    )


def test_stats_tell_the_round_trip_in_seconds() -> None:
    assert Stats.of(engine_of(round_trip_ns=130_000)).round_trip == 0.00013


def test_stats_are_a_value_that_later_rounds_do_not_change() -> None:
    engine = engine_of()
    stats = Stats.of(engine)
    engine.counters.rounds += 1
    assert stats.rounds == 0


def test_stats_apart_are_of_the_operations_and_of_the_masters() -> None:
    assert " ".join(APART) == "acquires extends releases inspects pings masters"
