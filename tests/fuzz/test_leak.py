"""The leak run, short; python -m tests.fuzz.leak is the long one."""

from __future__ import annotations

import pytest

from .leak import ALLOWED_GROWTH, growth


@pytest.mark.slow
def test_memory_when_many_rounds_are_run_then_stays_flat() -> None:
    before, after = growth(20_000)
    assert after.resident - before.resident < ALLOWED_GROWTH
    assert after.descriptors == before.descriptors
