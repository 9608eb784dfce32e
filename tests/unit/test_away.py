"""A master that is away for long, in the log: once, and once when it is back."""

from __future__ import annotations

import logging

import pytest

from fastredlock import FastRedlock
from fastredlock._core import Engine
from fastredlock.testing import LocalMasters
from tests.support import by_hand as hand
from tests.support.by_hand import (
    START_NS,
    S,
    info,
    make_ready,
    ready_engine,
)

NAME = "127.0.0.1:7001"
AWAY = (logging.WARNING, NAME, "not connected for 11 s: refused")


def lose(engine: Engine, *seconds: int) -> list[tuple[int, str, str]]:
    """Have a connection, or an attempt, fail at these times; return the lines."""
    for at in seconds:
        hand.open_due(engine, True, START_NS + at * S)
        hand.lost(engine, 0, "refused", START_NS + at * S)
    return engine.take_unlogged()


@pytest.mark.parametrize(
    ("lost_at", "lines"),
    [((1,), []), ((1, 2, 10), []), ((1, 2, 12), [AWAY]), ((1, 12, 13, 60), [AWAY])],
)
def test_master_when_away_for_longer_than_10_s_then_is_one_line(
    lost_at: tuple[int, ...], lines: list[tuple[int, str, str]]
) -> None:
    assert lose(ready_engine(), *lost_at) == lines


@pytest.mark.parametrize("outage", [1, 2])
def test_master_when_back_after_a_line_then_is_one_more_each_time(outage: int) -> None:
    engine = ready_engine()
    for i in range(outage):
        assert lose(engine, 100 * i + 1, 100 * i + 12) == [AWAY]
        make_ready(engine, [info(run_id="a")], START_NS + (100 * i + 31) * S)
        assert engine.take_unlogged() == [
            (logging.INFO, NAME, "connected again after 30 s")
        ]


def test_master_when_back_after_a_blip_then_is_no_line() -> None:
    engine = ready_engine()
    assert lose(engine, 1, 5) == []
    make_ready(engine, [info(run_id="a")], START_NS + 6 * S)
    assert lose(engine, 20, 25) == []
    assert engine.warnings == []


def test_master_when_a_refused_server_is_in_its_place_then_is_not_back() -> None:
    engine = ready_engine()
    lose(engine, 1, 12)
    refused = info(run_id="b", role="active-replica")
    make_ready(engine, [refused], START_NS + 13 * S)
    assert [level for level, *_ in engine.take_unlogged()] == [logging.WARNING]


def test_line_of_a_return_when_a_call_ends_then_is_logged_at_level_info(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        LocalMasters(1) as masters,
        FastRedlock(masters.urls) as locks,
        caplog.at_level(logging.INFO, "fastredlock"),
        locks.lock("orders"),
    ):
        locks._driver.engine.unlogged.append((logging.INFO, "a:1", "is back"))
    (line,) = caplog.records
    assert (line.levelno, line.message) == (logging.INFO, "a:1: is back")
