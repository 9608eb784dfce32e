"""extend_each: many leases, each with a validity of its own, or lost."""

from typing import Any, NoReturn

import pytest

from fastredlock import ConfigurationError, Lease
from fastredlock._core import Operation
from fastredlock._locking.each import ExtendEach
from fastredlock._locking.validity import extensions_of
from fastredlock.errors import LeaseLostError, NotExtendedError
from tests.support.leases import VALIDITY_NS, seconds, taken
from tests.support.rounds import MS, S, ScriptedLocks

LONG = seconds(60 * S - 602 * MS)


def held(*votes: str) -> tuple[ScriptedLocks, list[Lease]]:
    """Take as many leases as there are votes for their extensions."""
    locks = ScriptedLocks(*["GG."] * len(votes), *votes, took_ns=0)
    return locks, [taken(locks) for _ in votes]


def test_each_is_extended_and_has_its_own_validity() -> None:
    locks, leases = held("GG.", "GG.", "GG.")
    locks.now += 4 * S
    assert locks.extend_each([*leases[:2], leases[1]], 60) == [LONG] * 3
    assert [round.operation for round in locks.rounds[3:]] == [Operation.EXTEND] * 3
    assert [lease.remaining() for lease in leases[:2]] == [LONG, LONG]


def test_each_is_asked_for_its_own_last_ttl_without_one() -> None:
    locks = ScriptedLocks(*["GG."] * 4)
    leases = [taken(locks, 5), taken(locks, 7)]
    locks.extend_each(leases)
    assert [round.terms.ttl_ms for round in locks.rounds[2:]] == [5_000, 7_000]


def test_lost_one_is_none_and_an_unconfirmed_one_keeps_what_it_has() -> None:
    locks, leases = held("TT.", "FF.", "GG.")
    locks.now += S
    assert locks.extend_each(leases, 60) == [None, seconds(VALIDITY_NS - S), LONG]
    assert [lease.is_valid for lease in leases] == [False, True, True]
    locks, leases = held("FF.")
    locks.took_ns = VALIDITY_NS  # so it is over
    assert locks.extend_each(leases, 60) == [None]


def test_adopted_one_that_is_not_confirmed_has_no_validity_and_is_not_lost() -> None:
    locks = ScriptedLocks("FF.", "GG.", took_ns=0)
    lease = locks.adopt("orders:42", b"a token")
    assert locks.extend_each([lease]) == [0.0]
    assert locks.extend_each([lease]) == [seconds(VALIDITY_NS)]


def test_nothing_is_sent_for_what_is_lost_already_or_was_never_held() -> None:
    locks, leases = held("GG.", "GG.")
    leases[0].release()
    locks.now += 10 * S
    assert locks.extend_each([None, *leases]) == [None, None, None]
    assert len(locks.rounds) == 3
    assert locks.extend_each([]) == []


def test_released_meanwhile_is_none() -> None:
    locks, leases = held("GG.", "GG.", "GG.")
    locks.meanwhile = leases[1].release
    assert locks.extend_each(leases[:2], 60) == [LONG, None]


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), "5", True])
def test_bad_ttl_changes_nothing(ttl: Any) -> None:
    locks, leases = held("GG.")
    with pytest.raises(ConfigurationError, match="ttl"):
        locks.extend_each(leases, ttl)
    assert leases[0].remaining() == seconds(VALIDITY_NS)
    with pytest.raises(ConfigurationError):
        locks.extend_each([], ttl)


def test_what_is_no_lease_of_this_client_is_refused() -> None:
    locks, leases = held("GG.")
    other: Any = taken(ScriptedLocks("GG."))
    bad: list[Any] = [other, "orders:42", 7]
    for one in bad:
        with pytest.raises(ConfigurationError, match="no lease of this FastRedlock"):
            locks.extend_each([*leases, one])
    with pytest.raises(ConfigurationError, match="iterable"):
        locks.extend_each(leases[0])  # type: ignore[arg-type]
    assert len(locks.rounds) == 1


# An interrupted one that still counted as under way would bound all later ones.
def test_interrupted_one_leaves_the_old_validity_and_bounds_no_later_one() -> None:
    locks, leases = held("GG.", "GG.")

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    locks.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        locks.extend_each(leases, 20)
    assert [lease.remaining() for lease in leases] == [seconds(VALIDITY_NS)] * 2
    assert [len(extensions_of(lease).under_way) for lease in leases] == [0, 0]
    assert locks.extend_each(leases, 60)[1] == LONG


def test_outcomes_say_why_a_lease_was_not_extended() -> None:
    locks, leases = held("GG.", "TT.", "FF.")
    extends = ExtendEach(locks._driver, [None, *leases], 60)
    locks._driver.run(extends.begin())
    nobody, extended, lost, unconfirmed = extends.outcomes()
    assert (nobody, extended) == (None, LONG)
    assert isinstance(lost, LeaseLostError)
    assert isinstance(unconfirmed, NotExtendedError)
    assert unconfirmed.remaining == seconds(VALIDITY_NS)
