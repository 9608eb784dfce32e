"""Attempts, driven by hand: which rounds, which delays, and how they end."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from fastredlock import Retry
from fastredlock._core import Engine, Operation, Round, Terms
from fastredlock._locking.attempt import attempts, round_timeout_hint
from fastredlock.errors import QuorumUnreachableError, ValidityExhaustedError
from tests.support import rounds
from tests.support.rounds import MS, T0, TERMS, S, new_engine

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
        self._steps = attempts(
            self.engine,
            "orders:42",
            b"orders:42",
            TERMS,
            tokens().__next__,
            retry,
            timeout_ns,
            T0,
        )

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

    def end(self) -> None:
        """Expect that nothing more is asked for."""
        with pytest.raises(StopIteration):
            next(self._steps)


# ---- rounds


def test_attempt_asks_for_an_acquire_of_the_resource_under_its_terms() -> None:
    driven = Driven(None)
    step = driven.next_round()
    assert driven.delays == []
    assert (step.operation, step.resource) == (Operation.ACQUIRE, b"orders:42")
    assert step.terms is TERMS
    assert not step.is_opened


def test_every_round_has_a_token_and_a_number_of_its_own() -> None:
    driven = Driven(None)
    for votes in (TAKEN, UNREACHABLE, TAKEN, WON):
        driven.run(votes)
    driven.end()
    assert [r.token for r in driven.rounds] == [b"token %d" % i for i in (1, 2, 3, 4)]
    assert [r.attempt for r in driven.rounds] == [1, 2, 3, 4]


def test_taken_without_a_timeout_is_tried_again_without_end() -> None:
    driven = Driven(None)
    for _ in range(1000):
        driven.run(TAKEN)
    assert driven.delays == [0.1] * 999


# ---- the timeout


@pytest.mark.parametrize("votes", [TAKEN, UNREACHABLE])
def test_timeout_of_zero_is_one_try(votes: str) -> None:
    driven = Driven(0)
    driven.run(votes, took_ns=0)
    if votes == TAKEN:
        driven.end()
    else:
        with pytest.raises(QuorumUnreachableError) as caught:
            driven.next_round()
        assert caught.value.attempts == 1
    assert driven.delays == []


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


def test_timeout_that_ends_without_a_quorum_raises_before_the_tries_are_used_up() -> (
    None
):
    driven = Driven(50 * MS, Retry(delay=0.1, jitter=0, unreachable_tries=100))
    driven.run(UNREACHABLE)
    driven.run(UNREACHABLE)
    with pytest.raises(QuorumUnreachableError) as caught:
        driven.next_round()
    assert caught.value.attempts == 2
    assert caught.value.elapsed == pytest.approx(0.060)


# ---- too few masters


@pytest.mark.parametrize("tries", [1, 2, 3, 7])
def test_unreachable_masters_are_tried_so_often_in_a_row(tries: int) -> None:
    driven = Driven(None, Retry(delay=0.1, jitter=0, unreachable_tries=tries))
    for _ in range(tries):
        driven.run(UNREACHABLE)
    with pytest.raises(QuorumUnreachableError) as caught:
        driven.next_round()
    assert caught.value.attempts == tries
    assert "Retry(unreachable_tries=None) waits" in caught.value.hint
    assert len(driven.delays) == tries - 1


def test_unreachable_masters_are_tried_until_the_timeout_without_a_number() -> None:
    retry = Retry(delay=0.1, jitter=0, unreachable_tries=None)
    driven = Driven(5_000 * MS, retry)

    def forever() -> None:
        while True:
            driven.run(UNREACHABLE)

    with pytest.raises(QuorumUnreachableError) as caught:
        forever()
    assert caught.value.attempts > 40
    assert caught.value.hint == ""
    assert caught.value.elapsed >= 5


def test_taken_round_resets_the_count_of_unreachable_ones() -> None:
    driven = Driven(None)
    for votes in (UNREACHABLE, UNREACHABLE, TAKEN, UNREACHABLE, UNREACHABLE):
        driven.run(votes)
    driven.run(UNREACHABLE)
    with pytest.raises(QuorumUnreachableError):
        driven.next_round()


def test_unreachable_error_carries_the_votes_of_the_last_round() -> None:
    driven = Driven(0)
    driven.run("GE.")
    with pytest.raises(QuorumUnreachableError) as caught:
        driven.next_round()
    error = caught.value
    assert [str(vote) for vote in error.votes] == [
        "master0:6379 GRANTED in 10.0 ms",
        "master1:6379 FAILED in 10.0 ms (LOADING)",
        "master2:6379 SILENT (no reply within 500 ms)",
    ]
    assert (error.resource, error.elapsed, error.hint) == ("orders:42", 0.010, "")


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


def test_round_outside_an_attempt_has_no_time_left_for_connections() -> None:
    for operation in (Operation.ACQUIRE, Operation.EXTEND, Operation.RELEASE):
        assert new_engine().new_round(operation, b"r", b"t", TERMS).left_ns == 0


# What was left before the delay let the last try wait for connections past the end of
# the timeout. docs/design.md: "inside the caller's timeout".
@pytest.mark.parametrize(("delay", "took_ns"), [(0, 1200 * MS), (1, 200 * MS)])
def test_later_round_has_what_the_earlier_ones_and_the_delay_left_of_the_timeout(
    delay: float, took_ns: int
) -> None:
    driven = Driven(2 * S, Retry(delay=delay, jitter=0))
    driven.run(UNREACHABLE, took_ns=took_ns)
    assert driven.next_round().left_ns == 800 * MS


# ---- the delays


def test_delay_after_an_unreachable_round_outlasts_a_round_trip() -> None:
    driven = Driven(None, Retry(jitter=0))
    driven.run(UNREACHABLE)
    driven.next_round()
    assert driven.delays == [0.15]


def test_delays_of_the_default_retry_are_drawn_anew_each_time() -> None:
    driven = Driven(None, Retry())
    for _ in range(12):
        driven.run(TAKEN)
    rising = [Retry(jitter=0).after_taken(n, 0, 0) for n in range(1, 12)]
    drawn = {delay / mean for delay, mean in zip(driven.delays, rising, strict=True)}
    assert len(drawn) == 11
    assert min(drawn) >= 0.25
    assert max(drawn) <= 1.75


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
    engine = cast(Engine, SimpleNamespace(late_us=late_us, is_closed=is_closed))
    terms = TERMS if late_us != LATE_US else Terms(1000, 0, 50 * MS)
    assert round_timeout_hint(engine, terms) == hint
