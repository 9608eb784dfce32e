"""Attempts, driven by hand: which rounds, which delays, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastredlock import ConfigurationError, Retry
from fastredlock._core import Engine, Operation, Round, Terms
from fastredlock._locking.attempt import (
    REMEMBERED,
    ForeignKeys,
    round_timeout_hint,
)
from fastredlock.errors import QuorumUnreachableError, ValidityExhaustedError
from tests.support import rounds
from tests.support.rounds import MS, T0, TERMS, S, attempts_of, new_engine, thorough

STEADY = Retry(delay=0.1, jitter=0)  # delays that can be reckoned with
TAKEN, UNREACHABLE, WON = "TT", "FF", "GG"


def tokens() -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        yield b"token %d" % number


class Driven:
    """The generator, with what a driver does to its steps, and the time it takes."""

    def __init__(self, timeout_ns: int | None, retry: Retry = STEADY) -> None:
        self.engine = new_engine()
        self.now_ns = T0
        self.rounds: list[Round] = []
        self.delays: list[float] = []
        timeout = None if timeout_ns is None else timeout_ns / S
        draw = tokens().__next__
        self._steps = attempts_of(self.engine, b"orders:42", draw, timeout, retry)

    def next_round(self) -> Round:
        """Sleep as long as asked, then return the round to be run."""
        step = next(self._steps)
        while not isinstance(step, Round):
            self.delays.append(step)
            self.now_ns += round(step * S)
            step = next(self._steps)
        self.rounds.append(step)
        return step

    def run(self, votes: str, took_ns: int = 10 * MS) -> Round:
        """Run the next round to these votes."""
        step = self.next_round()
        step.open(self.now_ns)
        self.now_ns += took_ns
        rounds.cast(step, votes, self.now_ns)
        step.on_deadline(self.now_ns)
        return step

    def fail(self) -> QuorumUnreachableError:
        """Expect that it fails for too few masters; return the error."""
        with pytest.raises(QuorumUnreachableError) as caught:
            self.next_round()
        return caught.value

    def end(self) -> None:
        """Expect that nothing more is asked for."""
        with pytest.raises(StopIteration):
            next(self._steps)


# ---- rounds


def test_every_round_has_a_token_and_a_number_of_its_own() -> None:
    driven = Driven(None)
    for votes in (TAKEN, UNREACHABLE, TAKEN, WON):
        driven.run(votes)
    driven.end()
    for step in driven.rounds:
        assert (step.operation, step.resource) == (Operation.ACQUIRE, b"orders:42")
        assert step.terms is TERMS
    assert [r.token for r in driven.rounds] == [b"token %d" % i for i in (1, 2, 3, 4)]
    assert [r.attempt for r in driven.rounds] == [1, 2, 3, 4]


# ---- the timeout


def test_last_try_is_made_at_the_end_of_the_timeout_and_not_before() -> None:
    driven = Driven(250 * MS)
    for _ in range(4):
        driven.run(TAKEN)
    driven.end()
    # 10 ms a round: the third delay would end at 330 ms, and ends at 250 ms.
    assert driven.delays == [0.1, 0.1, 0.02]
    assert driven.rounds[-1].opened_ns == T0 + 250 * MS


def test_timeout_is_over_at_its_last_nanosecond_and_not_before() -> None:
    driven = Driven(10 * MS)
    driven.run(TAKEN, took_ns=10 * MS)
    driven.end()
    driven = Driven(10 * MS + 1)
    driven.run(TAKEN, took_ns=10 * MS)
    driven.run(TAKEN, took_ns=1)
    assert driven.delays == [1e-9]
    driven.end()


@pytest.mark.parametrize("tries", [100, None])
@pytest.mark.parametrize(("timeout_ms", "attempts"), [(50, 2), (5_000, 47)])
def test_timeout_that_ends_without_a_quorum_raises_before_the_tries_are_used_up(
    tries: int | None, timeout_ms: int, attempts: int
) -> None:
    retry = Retry(delay=0.1, jitter=0, unreachable_tries=tries)
    driven = Driven(timeout_ms * MS, retry)
    for _ in range(attempts):
        driven.run(UNREACHABLE)
    error = driven.fail()
    assert (error.attempts, error.hint) == (attempts, "")
    assert error.elapsed == pytest.approx(timeout_ms / 1000 + 0.010)


# ---- too few masters


@pytest.mark.parametrize("tries", [1, 2, 3, 7])
def test_unreachable_masters_are_tried_so_often_in_a_row(tries: int) -> None:
    driven = Driven(None, Retry(delay=0.1, jitter=0, unreachable_tries=tries))
    for _ in range(tries):
        driven.run(UNREACHABLE)
    error = driven.fail()
    assert error.attempts == tries
    assert "Retry(unreachable_tries=None) waits" in error.hint
    assert len(driven.delays) == tries - 1


def test_taken_round_resets_the_count_of_unreachable_ones() -> None:
    driven = Driven(None)
    for votes in (UNREACHABLE, UNREACHABLE, TAKEN, UNREACHABLE, UNREACHABLE):
        driven.run(votes)
    driven.run(UNREACHABLE)
    driven.fail()


# ---- too late


@pytest.mark.parametrize("timeout_ns", [None, 0, 60 * S])
def test_quorum_without_validity_raises_at_once(timeout_ns: int | None) -> None:
    driven = Driven(timeout_ns)
    driven.run(WON, took_ns=10 * S)
    with pytest.raises(ValidityExhaustedError) as caught:
        driven.next_round()
    assert caught.value.attempts == 1
    assert driven.delays == []


# ---- what is left of the timeout, which bounds the wait for connections


@pytest.mark.parametrize(
    ("timeout_ns", "left_ns"),
    [(0, 0), (700 * MS, 700 * MS), (10 * S, 10 * S), (1, 50 * MS), (None, -1)],
)
def test_first_round_has_the_whole_timeout_left_and_time_to_be_answered(
    timeout_ns: int | None, left_ns: int
) -> None:
    assert Driven(timeout_ns).next_round().left_ns == left_ns


# What was left before the delay let the last try wait for connections past the end of
# the timeout. docs/design.md: "inside the caller's timeout".
@pytest.mark.parametrize(("delay", "took_ns"), [(0, 1200 * MS), (1, 200 * MS)])
def test_later_round_has_what_the_earlier_ones_and_the_delay_left_of_the_timeout(
    delay: float, took_ns: int
) -> None:
    driven = Driven(2 * S, Retry(delay=delay, jitter=0))
    driven.run(UNREACHABLE, took_ns=took_ns)
    assert driven.next_round().left_ns == 800 * MS


# ---- the hint

LATE_US = (0, 80_400, 12_000)


@pytest.mark.parametrize(
    ("late_us", "is_closed", "hint"),
    [
        ((0, 0, 0), False, ""),
        ((500_000, 0, 1), False, ""),
        # the votes alone said "3 of 3 granted", for they came in after the end
        (LATE_US, True, "this FastRedlock was closed meanwhile"),
        (
            LATE_US,
            False,
            "replies took up to 80 ms, a round waits 50 ms: "
            "give a larger round_timeout or ttl",
        ),
    ],
)
def test_hint_names_the_slowest_reply_that_missed_its_deadline_and_what_to_change(
    late_us: tuple[int, ...], is_closed: bool, hint: str
) -> None:
    engine = cast(
        Engine,
        SimpleNamespace(faults=[(us, "") for us in late_us], is_closed=is_closed),
    )
    terms = TERMS if late_us != LATE_US else Terms(1000, 0, 50 * MS)
    assert round_timeout_hint(engine, terms) == hint


# --- when a resource that is taken is looked at


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


# --- how long an acquire waits between two attempts


fractions = st.floats(0, 1)
round_trips = st.floats(0, 3600)
tries = st.integers(1, 10**9)


# ---- bounds


@thorough
@given(tries, round_trips, fractions, fractions)
def test_delay_is_never_negative_and_never_over_a_quarter_of_a_second(
    attempts: int, round_trip: float, jitter: float, draw: float
) -> None:
    retry = Retry(jitter=jitter)
    assert 0 <= retry.after_taken(attempts, round_trip, draw) <= 0.25
    assert 0 <= retry.after_unreachable(draw) <= 0.25


@thorough
@given(st.floats(0, 3600), tries, fractions, fractions)
def test_delay_that_is_given_is_the_middle_of_its_range(
    delay: float, attempts: int, jitter: float, draw: float
) -> None:
    retry = Retry(delay, jitter)
    least, most = delay * (1 - jitter), delay * (1 + jitter)
    for drawn in (
        retry.after_taken(attempts, 1.0, draw),
        retry.after_unreachable(draw),
    ):
        assert least * 0.999999 <= drawn <= most * 1.000001
    assert retry.after_taken(attempts, 1.0, 0.5) == delay
    assert retry.after_unreachable(0) == pytest.approx(least)
    assert retry.after_taken(attempts, 1.0, 1) == pytest.approx(most)


# ---- the default


@pytest.mark.parametrize(
    ("retry", "attempt", "draw", "delay"),
    [
        (Retry(), 1, 0.5, 0.006),  # three round trips in the mean
        (Retry(), 2, 0.5, 0.009),  # half as long again
        *((Retry(), 1, draw, 0.006 * (0.25 + 1.5 * draw)) for draw in (0, 1)),
        *((Retry(jitter=0), 3, draw, 0.0135) for draw in (0, 0.25, 0.5, 1)),
    ],
)
def test_delay_grows_with_each_attempt_and_is_spread_by_three_quarters(
    retry: Retry, attempt: int, draw: float, delay: float
) -> None:
    assert retry.after_taken(attempt, 0.002, draw) == pytest.approx(delay)


# ---- what is refused

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("options", "named", "allowed"),
    [
        ({"delay": -0.1}, "delay=-0.1", "0 to 3600 s"),
        ({"delay": 3601}, "delay=3601", "0 to 3600 s"),
        ({"delay": NAN}, "delay=nan", "0 to 3600 s"),
        ({"delay": INF}, "delay=inf", "0 to 3600 s"),
        # Not a TypeError of the comparison, which would not name the option.
        ({"delay": "1"}, "delay='1'", "0 to 3600 s"),
        ({"jitter": "1"}, "jitter='1'", "0 to 1"),
        ({"unreachable_tries": "1"}, "unreachable_tries='1'", "1 or more"),
        ({"jitter": -0.1}, "jitter=-0.1", "0 to 1"),
        ({"jitter": 1.1}, "jitter=1.1", "0 to 1"),
        ({"jitter": NAN}, "jitter=nan", "0 to 1"),
        ({"unreachable_tries": 0}, "unreachable_tries=0", "1 or more"),
        ({"unreachable_tries": -3}, "unreachable_tries=-3", "1 or more"),
        ({"unreachable_tries": 2.0}, "unreachable_tries=2.0", "1 or more"),
    ],
)
def test_retry_outside_its_range_is_refused_with_value_and_range(
    options: dict[str, Any], named: str, allowed: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Retry(**options)
    assert named in str(caught.value)
    assert allowed in str(caught.value)
