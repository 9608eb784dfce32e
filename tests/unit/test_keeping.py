"""When kept leases are renewed, told lost and dropped, and which ttl can be kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from fastredlock import ConfigurationError, FastRedlock, Lease
from fastredlock._core import Round
from fastredlock._locking.keeper import KeepAlive
from fastredlock._locking.renewals import Keeping
from fastredlock._locking.validity import (
    FOREVER_NS,
    NEVER_KEPT_NS,
    Validity,
    validity_of,
)
from tests.support.core import by_hand_conclude
from tests.support.rounds import (
    MS,
    RELEASED,
    T0,
    VALIDITY_NS,
    S,
    ScriptedLocks,
    cast,
    taken,
)

THIRD_NS = 10 * S // 3
WON, UNCONFIRMED = "GG.", "G.."


class Desk:
    """A Keeping, the time, and leases whose renewals end as they are told to."""

    def __init__(self) -> None:
        self.locks = ScriptedLocks(*["GG."] * 2000, took_ns=0)
        self.keeping = Keeping()
        self.time_ns = 0  # that the renewals of the last `wait` may take
        self.locks._driver.keep = lambda kept: (  # type: ignore[method-assign]
            self.keeping.add(kept, self.now)
        )

    @property
    def now(self) -> int:
        return self.locks.now

    def take(self, until_ns: int = FOREVER_NS, ttl: float | None = None) -> Lease:
        lease = taken(self.locks, ttl)
        self.keep(lease, until_ns)
        return lease

    def keep(self, lease: Lease, until_ns: int = FOREVER_NS) -> Validity:
        kept = validity_of(lease)
        kept.begin_keeping(until_ns)
        self.keeping.add(kept, self.now)
        return kept

    def wait(self) -> tuple[list[Validity], list[Validity]]:
        """Let the time pass until something is due; return that."""
        next_ns = self.keeping.next_ns
        assert next_ns is not None
        self.locks.now = max(self.now, next_ns)
        due = self.keeping.due(self.now)
        self.time_ns = due.time_ns
        return due.renewals, due.lost

    def wait_for_renewals(self) -> list[Validity]:
        """Wait until some are due, and nothing is lost; return those."""
        while True:
            renewals, lost = self.wait()
            assert not lost
            if renewals:
                return renewals

    def wait_for_loss(self, votes: str = WON) -> tuple[list[int], list[Validity]]:
        """Let all renewals end so, until a loss is due; return when, and the lost."""
        times: list[int] = []
        while True:
            renewals, lost = self.wait()
            if lost:
                return times, lost
            times += [self.now] * bool(renewals)
            assert len(times) < 100
            assert self.renew(renewals, votes) == []

    def end(self, kept: Validity, round: Round, ago_ns: int = 0) -> None:
        """Let a renewal that was begun before be won, opened so long ago."""
        round.open(self.now - ago_ns)
        cast(round, WON, self.now)
        self.keeping.end([kept], [round], self.now)

    def renew(
        self, renewals: list[Validity], votes: str = WON
    ) -> list[tuple[Validity, Round]]:
        rounds = [self.begin(kept) for kept in renewals]
        for round in rounds:
            round.open(self.now)
            for master in range(3):
                round.on_sent(master)
            cast(round, votes, self.now)
            round.on_deadline(self.now)
        return self.keeping.end(renewals, rounds, self.now)

    def begin(self, kept: Validity) -> Round:
        lease: Lease | None = kept()
        assert lease is not None
        round = kept.renew(lease._driver.engine, self.now, S)
        assert round is not None
        return round


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_kept_lease_that_is_collected_with_its_task_can_be_released(desk: Desk) -> None:
    # The collector clears weak references to all garbage before any of it is finalized.
    statuses = []

    def body(lease: Lease, itself: list[object]) -> Iterator[None]:
        try:
            yield
        finally:
            statuses.append(lease.release())

    itself: list[object] = []
    itself.append(body(desk.take(), itself))
    next(itself[0])  # type: ignore[call-overload]
    del itself
    gc.collect()
    assert statuses == [RELEASED]


def test_first_renewal_is_due_between_a_thirtieth_and_a_third_of_the_ttl(
    desk: Desk,
) -> None:
    leases = [desk.take() for _ in range(50)]
    found: list[int] = []
    while len(found) < len(leases):
        renewals, lost = desk.wait()
        assert not lost
        found += [desk.now - T0] * len(renewals)
    assert 0 < min(found) <= max(found) <= THIRD_NS
    assert (
        max(found) - min(found) > 2 * S
    )  # leases taken at once are not renewed at once


def test_renewal_that_is_not_confirmed_is_tried_again_and_again_while_it_stands(
    desk: Desk,
) -> None:
    lease = desk.take()
    times, _ = desk.wait_for_loss(UNCONFIRMED)
    assert lease.is_valid
    assert len(times) >= 10
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) <= THIRD_NS // 4
    assert min(gaps) >= 4 * MS


@pytest.mark.parametrize("is_adopted", [False, True])
def test_loss_is_told_before_the_end_of_the_validity_and_only_just(
    desk: Desk, is_adopted: bool
) -> None:
    lease = adopt(desk) if is_adopted else desk.take()
    assert desk.wait_for_loss(UNCONFIRMED)[1] == [validity_of(lease)]
    assert T0 + VALIDITY_NS - 100 * MS <= desk.now < T0 + VALIDITY_NS
    assert desk.keeping.next_ns is None
    lease = desk.take()
    desk.locks.now += 60 * S  # the time jumps over the end
    assert desk.wait() == ([], [validity_of(lease)])


def test_loss_is_told_in_time_behind_a_renewal_that_fails_just_before(
    desk: Desk,
) -> None:
    lease = desk.take(ttl=0.2)
    (kept,) = desk.wait_for_renewals()
    assert kept is validity_of(lease)
    desk.locks.now = kept.valid_until_ns - 5_200_000  # and the next is 5 ms later
    assert desk.renew([kept], UNCONFIRMED) == []
    assert desk.wait() == ([], [kept])
    assert desk.now <= kept.valid_until_ns - 2 * MS


def test_renewal_that_comes_after_the_validity_does_not_count(desk: Desk) -> None:
    lease = desk.take()
    (kept,) = desk.wait_for_renewals()
    round = desk.begin(kept)
    desk.locks.now = T0 + VALIDITY_NS
    desk.end(kept, round, ago_ns=S)
    assert not lease.is_valid
    assert desk.wait() == ([], [validity_of(lease)])


@pytest.mark.parametrize("until_ns", [T0 + 6 * S, NEVER_KEPT_NS])
def test_lease_beyond_its_bound_is_not_renewed_and_its_loss_is_told(
    desk: Desk, until_ns: int
) -> None:
    lease = desk.take(until_ns)
    times, lost = desk.wait_for_loss()
    assert all(each < until_ns for each in times)
    assert lost == [validity_of(lease)]
    assert desk.now < lease._valid_until_ns <= max(until_ns, T0) + VALIDITY_NS


def test_many_leases_are_renewed_at_few_times(desk: Desk) -> None:
    leases = [desk.take() for _ in range(1000)]
    times: list[int] = []
    while desk.now < T0 + 60 * S:
        renewals, lost = desk.wait()
        assert not lost
        times.append(desk.now)
        desk.renew(renewals)
    assert len({time // MS for time in times}) / 60 < 5  # each second
    assert all(lease.is_valid for lease in leases)


@pytest.mark.slow
def test_ten_thousand_leases_when_all_are_late_then_none_is_lost() -> None:
    """Seen once, overloaded: 9,165 of 10,000 were lost together."""
    desk = Desk()
    desk.locks.answers = ["GG."] * 10_001
    leases = []
    for _ in range(10_000):
        leases.append(desk.take())
        desk.locks.now += 100_000
    short = desk.take(until_ns=T0, ttl=5)  # lost while they are late
    desk.locks.now += 6 * S
    while desk.now < T0 + 30 * S:
        renewals, _ = desk.wait()
        began_ns, took_ns = desk.now, 30 * MS + len(renewals) * 200_000
        rounds = [desk.begin(kept) for kept in renewals]
        desk.locks.now += min(took_ns, desk.time_ns)
        for round in rounds:
            round.open(began_ns)
            if took_ns < desk.time_ns:
                cast(round, WON, desk.now)
            round.on_deadline(desk.now)
        desk.keeping.end(renewals, rounds, desk.now)
    assert not short.is_valid
    assert sum(not lease.is_valid for lease in leases) == 0


# ---- extended by hand


@pytest.mark.parametrize("ttl", [1, 60])
def test_kept_lease_when_prolonged_then_is_valid_for_its_own_ttl_and_renewed(
    desk: Desk, ttl: int
) -> None:
    lease = desk.take()
    desk.locks.now += S
    assert lease._prolong(ttl) == lease.remaining() < 9
    assert desk.locks.rounds[-1].terms.ttl_ms == max(ttl, 10) * 1000
    desk.renew(desk.wait_for_renewals())
    assert lease._valid_until_ns == desk.now + VALIDITY_NS


@pytest.mark.parametrize("is_kept_again", [False, True])
def test_renewal_under_way_when_kept_no_longer_then_bounds_an_extension_by_hand(
    desk: Desk, is_kept_again: bool
) -> None:
    lease = desk.take()
    (kept,) = desk.wait_for_renewals()
    round = desk.begin(kept)  # of 10 s, on its way
    lease.keep_alive(False)
    assert 9 < lease.extend(60) < 10  # it may come after that
    lease.extend(2)
    if is_kept_again:
        desk.keep(lease)
    until_ns = lease._valid_until_ns
    desk.end(kept, round)
    assert lease._valid_until_ns == until_ns
    if is_kept_again:
        desk.renew(desk.wait_for_renewals())
        assert lease.remaining() < 2  # by the ttl that was asked for last
    else:
        assert lease.extend(60) > 50


def test_extension_under_way_when_kept_then_counts_no_more_and_shortens_the_ttl(
    desk: Desk,
) -> None:
    lease = taken(desk.locks)
    round = lease._begin_extend(2, object())  # of another thread, that lasts
    lease.extend(60)
    kept = desk.keep(lease)
    until_ns = lease._valid_until_ns
    assert until_ns - desk.now < 2 * S
    round.open(desk.now)
    cast(round, WON, desk.now)
    kept.win(round)
    assert lease._valid_until_ns == until_ns
    desk.renew(desk.wait_for_renewals())
    assert lease._valid_until_ns - desk.now < 2 * S


@pytest.mark.parametrize("is_renewal", [True, False])
def test_kept_lease_when_asked_for_less_than_its_last_extension_then_is_shortened(
    desk: Desk, is_renewal: bool
) -> None:
    """Seen (simulator): its keys ended before the validity, and another took them."""
    lease = taken(desk.locks)
    lease.extend(2)  # the third master has not answered it
    assert lease.extend(60) > 50
    kept = desk.keep(lease)
    assert kept.terms.ttl_ms == 2000
    assert lease.remaining() > 50
    if is_renewal:
        desk.begin(kept)
    else:
        lease._begin_extend(1, object(), is_by_hand=False)
    assert lease.remaining() < 2


def test_renewal_when_masters_never_answered_then_bounds_a_longer_extension(
    desk: Desk,
) -> None:
    lease, other = desk.take(), desk.take()
    while lease._round.lease_state.awaited == 0:
        desk.renew(desk.wait()[0], "...")
    for each, answers in ((lease, "G.."), (other, "GGG")):
        desk.renew([validity_of(each)], answers)
        each.keep_alive(False)
    assert 9 < lease.extend(60) < 10
    assert lease.is_valid


def test_lease_when_kept_no_longer_and_shortened_by_hand_then_is_told_in_time(
    desk: Desk,
) -> None:
    lease = taken(desk.locks)
    validity_of(lease).on_lost = print
    desk.keep(lease)
    lease.keep_alive(False)
    lease.extend(1)
    end_ns = lease._valid_until_ns
    assert desk.wait_for_loss()[1] == [validity_of(lease)]
    assert end_ns - 100 * MS <= desk.now < end_ns


# ---- adopted


def adopt(desk: Desk) -> Lease:
    lease = desk.locks.adopt("orders:42", b"a token", ttl=10)
    validity_of(lease).unknown_until_ns = desk.now + VALIDITY_NS
    desk.keep(lease)
    return lease


# ---- the time that renewals may take


def test_renewals_end_before_any_loss_has_to_be_told(desk: Desk) -> None:
    first, second = desk.take(), desk.take()
    while desk.now < T0 + VALIDITY_NS - 200 * MS:
        renewals, lost = desk.wait()
        assert not lost
        left_ns = T0 + VALIDITY_NS - desk.now
        assert 2 * desk.time_ns < left_ns
        desk.renew(renewals, UNCONFIRMED)
    assert first.is_valid
    assert second.is_valid


def test_lease_that_is_not_renewed_any_more_hurries_the_renewals_of_others(
    desk: Desk,
) -> None:
    """Seen: its loss was told 31 ms late, behind a renewal that nobody answered."""
    over, kept = desk.take(until_ns=T0), desk.take()
    renewed = 0
    lost: list[Validity] = []
    while not lost:
        renewals, lost = desk.wait()
        left_ns = T0 + VALIDITY_NS - desk.now
        for _ in renewals:
            assert 2 * desk.time_ns < max(left_ns, 50 * MS)
            renewed += 1
        desk.renew(renewals)
    assert lost == [validity_of(over)]
    assert renewed > 1
    assert kept.is_valid


def test_short_lease_that_has_ended_does_not_hurry_others_for_long(desk: Desk) -> None:
    short, long = desk.take(ttl=0.1), desk.take(ttl=600)
    short.release()
    times: list[int] = []
    while desk.now < T0 + 900 * S:
        renewals, lost = desk.wait()
        assert not lost
        times.append(desk.time_ns)
        desk.renew(renewals)
    assert times[-1] >= 30 * S
    assert long.is_valid


def test_renewals_of_long_leases_end_while_a_short_one_has_time(desk: Desk) -> None:
    short, _long = desk.take(ttl=0.3), desk.take(ttl=300)
    late: list[int] = []
    while desk.now < T0 + 200 * S:
        renewals, lost = desk.wait()
        assert not lost
        if validity_of(short) not in renewals:
            due_ns = validity_of(short).due_ns
            late.append(desk.now + 2 * desk.time_ns - due_ns)
        desk.renew(renewals)
    assert late
    assert max(late) < 60 * MS  # of 200 ms that it then has


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
