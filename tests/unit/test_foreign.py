"""When a resource that is taken is looked at."""

from __future__ import annotations

from fastredlock._locking.attempt import REMEMBERED, ForeignKeys
from tests.support.rounds import S


def test_key_is_looked_at_when_a_second_has_passed_and_every_ten_from_then_on() -> None:
    keys = ForeignKeys()
    looked = [at for at in range(0, 250, 5) if keys.is_due(b"r", at * S // 10)]
    assert looked == [10, 110, 210]


def test_each_key_has_its_own_time_and_many_are_no_leak() -> None:
    keys = ForeignKeys()
    for i in range(10 * REMEMBERED):
        assert not keys.is_due(b"%d" % i, 0)
    assert len(keys._due_ns) <= REMEMBERED
    assert keys.is_due(b"%d" % (10 * REMEMBERED - 1), S)
