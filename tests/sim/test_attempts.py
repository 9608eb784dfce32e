"""What the simulator found in the generator of attempts, each as one small case."""

from __future__ import annotations

from collections.abc import Iterator

from fastredlock import Retry
from fastredlock._core import Engine, Round, Verdict, by_hand_start
from fastredlock._locking.attempt import attempts
from fastredlock._locking.driver import new_engine

from .process import new_settings
from .world import MS, S

SETTINGS = new_settings(3, ttl=0.2, retry=Retry(delay=0.06, jitter=0.0))


def attempts_of(engine: Engine, timeout_ns: int) -> Iterator[Round | float]:
    terms = SETTINGS.default_terms
    return attempts(
        engine, "r", b"r", terms, lambda: b"token", SETTINGS.retry, timeout_ns, 0
    )


def test_last_try_waits_for_connections_only_as_long_as_the_sleep_has_left() -> None:
    # Seed 21 of the first simulator: an acquire with timeout=1 took 1.19 s.
    engine = new_engine(SETTINGS)
    steps = attempts_of(engine, timeout_ns=S)
    first = next(steps)
    by_hand_start(engine, first, S - 100 * MS)  # nobody is connected: it closes at once
    assert first.verdict is Verdict.UNREACHABLE
    assert next(steps) == 0.06
    assert next(steps).left_ns == 40 * MS
