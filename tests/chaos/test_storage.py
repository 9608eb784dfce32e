"""A short run of the storage that compares; the long ones are by hand."""

from __future__ import annotations

import pytest

from .storage import FENCED, run


@pytest.mark.slow
def test_storage_when_holders_stand_still_then_no_late_write_gets_through() -> None:
    told = run(FENCED, 60, seed=7, enough=2)
    assert (told.stale, told.refused >= 2) == (0, True)
    assert told.stale_refused == told.refused
