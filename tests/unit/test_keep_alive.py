"""Which ttl can be kept: by how far away the masters are."""

from __future__ import annotations

import pytest

from fastredlock import ConfigurationError, FastRedlock
from fastredlock._core import by_hand_conclude
from fastredlock._locking.keeper import KeepAlive
from tests.support.rounds import MS, T0, S, cast


def measured(*took_ns: int) -> FastRedlock:
    """Return a client whose rounds have taken so long."""
    locks = FastRedlock([("master", port) for port in (1, 2, 3)], ttl=1)
    driver = locks._driver
    for each_ns in took_ns:
        terms = driver.settings.terms(10)
        round = driver.engine.new_round(0, b"orders:42", b"token", terms)
        round.open(T0)
        for master in range(3):
            round.on_sent(master)
        cast(round, "GG", T0 + each_ns)
        by_hand_conclude(driver.engine, round, T0 + each_ns)
    return locks


def test_ttl_that_its_masters_are_too_far_away_for_is_refused_with_the_number() -> None:
    locks = measured(400 * MS, 390 * MS, 420 * MS)
    with pytest.raises(
        ConfigurationError, match=r"needs 1\.182 s or more, 3 round trip"
    ):
        KeepAlive(True, None).check(locks._driver, None)
    KeepAlive(True, None).check(locks._driver, 2)


def test_ttl_is_not_refused_for_a_bad_moment_of_its_masters() -> None:
    # Masters that had stood still for 3 s: acquires said that ttl=1.0 is wrong.
    locks = measured(MS, *[490 * MS] * 9)
    assert locks._driver.engine.round_trip_ns > 300 * MS
    KeepAlive(True, None).check(locks._driver, None)


def test_time_for_which_we_stood_still_is_no_round_trip() -> None:
    # Seen: a kept turn waited for 1.3 s, as long as its process had been paused.
    locks = measured(MS, 9 * S, 9 * S, 9 * S)
    assert locks._driver.engine.round_trip_ns == MS
