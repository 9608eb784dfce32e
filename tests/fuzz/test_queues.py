"""A wait queue in any order of events; more of it by `python -m tests.fuzz.queues`."""

from __future__ import annotations

import pytest

from .queues import lead


@pytest.mark.parametrize("seed", range(20))
def test_queue_when_led_at_random_then_meets_no_event_that_its_table_rules_out(
    seed: int,
) -> None:
    lead(seed)
