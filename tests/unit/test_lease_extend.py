"""A lease is extended, by one thread or by several at the same time, or with many."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from fastredlock import ConfigurationError, Lease, LeaseLostError, NotExtendedError
from fastredlock._core import Operation, Round
from fastredlock._locking.each import ExtendEach
from fastredlock._locking.validity import extended
from tests.support.rounds import (
    MS,
    VALIDITY_NS,
    S,
    ScriptedLocks,
    in_child,
    seconds,
    taken,
)

# ---- extend


def test_extend_gives_a_new_validity_from_its_own_beginning() -> None:
    locks = ScriptedLocks("GG.", "GG.", took_ns=3 * MS)
    lease = taken(locks)
    locks.now += 4 * S
    assert lease.extend() == seconds(VALIDITY_NS - 3 * MS)
    assert lease.remaining() == seconds(VALIDITY_NS - 3 * MS)


def test_extend_asks_for_our_key_under_the_new_ttl_or_the_last_one() -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.")
    lease = taken(locks)
    for ttl, asked in zip((60, None), (1, 2), strict=True):
        lease.extend(ttl)
        round = locks.rounds[asked]
        assert round.operation is Operation.EXTEND
        assert (round.resource, round.token) == (b"orders:42", lease.token)
        assert round.terms.ttl_ms == 60_000
    assert lease.ttl == 60


def test_shorter_extension_shrinks_the_validity_before_it_is_confirmed() -> None:
    locks = ScriptedLocks("GG.", "GG.", took_ns=0)
    lease = taken(locks)
    seen: list[float] = []
    locks.meanwhile = lambda: seen.append(lease.remaining())
    lease.extend(2)
    assert seen == [seconds(1_978 * MS)]


def test_shorter_extension_shrinks_the_validity_where_it_is_never_confirmed() -> None:
    locks = ScriptedLocks("GG.", "G..", took_ns=0)
    lease = taken(locks)
    with pytest.raises(NotExtendedError) as caught:
        lease.extend(2)  # no quorum within 100 ms, 5 % of its ttl
    assert lease.remaining() == seconds(1_978 * MS - 100 * MS)
    assert caught.value.remaining == lease.remaining()


def test_longer_extension_counts_only_once_it_is_confirmed() -> None:
    locks = ScriptedLocks("GG.", "GG.", took_ns=0)
    lease = taken(locks)
    seen: list[float] = []
    locks.meanwhile = lambda: seen.append(lease.remaining())
    lease.extend(60)
    assert seen == [seconds(VALIDITY_NS)]
    assert lease.remaining() == seconds(60 * S - 602 * MS)


@pytest.mark.parametrize("votes", ["FF.", "G..", "..."])
def test_extension_without_a_quorum_keeps_the_old_validity(votes: str) -> None:
    locks = ScriptedLocks("GG.", votes, took_ns=0, round_timeout=0.5)
    lease = taken(locks)
    began = locks.now
    with pytest.raises(NotExtendedError, match="not confirmed by a quorum") as caught:
        lease.extend(60)
    left_ns = VALIDITY_NS - (locks.now - began)
    assert lease.remaining() == caught.value.remaining == seconds(left_ns)
    assert f"valid for {left_ns / 1e9:.3f} s more" in str(caught.value)


@pytest.mark.parametrize(("spare_ns", "is_lost"), [(1, False), (0, True), (-S, True)])
def test_extension_without_a_quorum_is_lost_only_where_the_validity_is_over(
    spare_ns: int, is_lost: bool
) -> None:
    locks = ScriptedLocks("GG.", "FF.", took_ns=0, round_timeout=60)
    lease = taken(locks)
    locks.took_ns = VALIDITY_NS - spare_ns
    error: Any = LeaseLostError if is_lost else NotExtendedError
    with pytest.raises(error) as caught:
        lease.extend(60)
    assert ("and its validity is over" in str(caught.value)) is is_lost
    assert caught.value.remaining == seconds(max(spare_ns, 0))


@pytest.mark.parametrize("votes", ["TT.", "GTT", "FTT"])
def test_extension_that_finds_the_key_gone_loses_the_lease_at_once(votes: str) -> None:
    locks = ScriptedLocks("GG.", votes)
    lease = taken(locks)
    with pytest.raises(LeaseLostError, match="lost") as caught:
        lease.extend()
    assert (lease.remaining(), caught.value.remaining) == (0.0, 0.0)
    assert caught.value.votes[0].vote.name[0] == votes[0]


@pytest.mark.parametrize(("spare_ns", "counts"), [(1, True), (0, False), (-S, False)])
def test_extension_counts_only_inside_the_old_validity(
    spare_ns: int, counts: bool
) -> None:
    locks = ScriptedLocks("GG.", "GG.", took_ns=0, round_timeout=60)
    lease = taken(locks)
    locks.took_ns = VALIDITY_NS - spare_ns
    if counts:
        assert lease.extend(60) > 0
        return
    with pytest.raises(LeaseLostError, match="too late"):
        lease.extend(60)
    assert lease.remaining() == 0.0


def test_extension_that_used_its_own_validity_up_is_too_late() -> None:
    locks = ScriptedLocks("GG.", "GG.", took_ns=0, round_timeout=5)
    lease = taken(locks)
    locks.took_ns = 2 * S
    with pytest.raises(LeaseLostError, match="too late"):
        lease.extend(2)
    assert lease.remaining() == 0.0


@pytest.mark.parametrize(
    ("end", "reason"),
    [("the time", "validity is over"), ("lost", None), ("released", "released")],
)
def test_lease_that_is_over_is_not_extended_and_nothing_is_sent(
    end: str, reason: str | None
) -> None:
    locks = ScriptedLocks("GG.", "TT.")
    lease = taken(locks)
    if end == "the time":
        locks.now += 10 * S
    elif end == "released":
        lease.release()
    else:
        with pytest.raises(LeaseLostError):
            lease.extend()
    sent = len(locks.rounds)
    with pytest.raises(LeaseLostError, match=reason):
        lease.extend()
    with in_child(), pytest.raises(LeaseLostError):
        lease.extend()
    assert len(locks.rounds) == sent


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), 0.001])
def test_extension_of_a_bad_ttl_changes_nothing(ttl: float) -> None:
    locks = ScriptedLocks("GG.", took_ns=0)
    lease = taken(locks)
    with pytest.raises(ConfigurationError):
        lease.extend(ttl)
    assert lease.remaining() == seconds(VALIDITY_NS)
    assert len(locks.rounds) == 1


# Of a shorter one a master may have it by now, or get it after the longer one.
@pytest.mark.parametrize(
    ("ttl", "before_ns", "after_ns"),
    [(60, VALIDITY_NS, 60 * S - 602 * MS), (2, 1_978 * MS, 1_978 * MS)],
)
def test_extension_that_is_interrupted_leaves_the_old_validity_or_binds_the_next_one(
    ttl: float, before_ns: int, after_ns: int
) -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.", took_ns=0)
    lease = taken(locks)

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    locks.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        lease.extend(ttl)
    assert lease.remaining() == seconds(before_ns)
    assert lease.extend(60) == seconds(after_ns)


# ---- extensions of several threads


@pytest.mark.parametrize(("outer", "inner"), [(60, 2), (2, 60)])
def test_extensions_that_overlap_end_with_the_earliest(
    outer: float, inner: float
) -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.", took_ns=0)
    lease = taken(locks)
    locks.meanwhile = lambda: lease.extend(inner)
    lease.extend(outer)
    assert lease.remaining() == seconds(1_978 * MS)


def test_extensions_that_do_not_overlap_end_with_the_last() -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.", took_ns=0)
    lease = taken(locks)
    lease.extend(2)
    assert lease.extend(60) == seconds(60 * S - 602 * MS)


class SlowToHear(Lease):
    """A lease that another thread extends before the first reads its outcome."""

    other: Round | None = None

    def _end_extend(self, round: Round, extension: object) -> float:
        if self.other is None:
            self.other = self._begin_extend(
                60, object()
            )  # on its way; nobody has confirmed it
        return super()._end_extend(round, extension)


def test_lease_that_was_released_stays_so_when_an_extension_ends() -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.")
    lease = taken(locks)
    locks.meanwhile = lease.release
    with pytest.raises(LeaseLostError):
        lease.extend(60)
    assert not lease.is_valid


# If `extend` counted itself as ended before it read its outcome, one that begins in
# between would reset the bound, and a grant of 10 s be taken for one of 60 s.
def test_extension_never_counts_for_another_that_is_not_confirmed() -> None:
    locks = ScriptedLocks("GG.", "GG.", took_ns=0)
    grant = taken(locks)._round
    lease = SlowToHear(locks._driver, "orders:42", grant)
    lease.extend(10)
    assert lease.remaining() <= VALIDITY_NS / 1e9


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
    assert [len(extended(lease).under_way) for lease in leases] == [0, 0]
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
