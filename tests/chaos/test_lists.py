"""A list of masters changes under load: the right way holds, wrong ones show it."""

from __future__ import annotations

import pytest

from fastredlock.testing import LocalMasters

from .lists import MASTERS, SAFE, WAYS, go


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_lists_when_they_change_while_masters_freeze_then_only_by_both_is_one_holder(
    way: str,
) -> None:
    for _ in range(1 if way == "joint" else 5):  # what a busy machine may need
        with LocalMasters(MASTERS, options=SAFE) as masters:
            found = go(way, masters, programs=4)
        if found.overlaps and found.warned:
            break
    assert found.grants > 0
    assert (found.overlaps == 0, found.warned == 0) == (way == "joint",) * 2
