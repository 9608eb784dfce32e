"""How long an acquire waits between two attempts."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastredlock import ConfigurationError, Retry
from tests.support.rounds import thorough

fractions = st.floats(0, 1)
round_trips = st.floats(0, 3600)
attempts = st.integers(1, 10**9)


# ---- bounds


@thorough
@given(attempts, round_trips, fractions, fractions)
def test_delay_is_never_negative_and_never_over_a_quarter_of_a_second(
    attempts: int, round_trip: float, jitter: float, draw: float
) -> None:
    retry = Retry(jitter=jitter)
    assert 0 <= retry.after_taken(attempts, round_trip, draw) <= 0.25
    assert 0 <= retry.after_unreachable(draw) <= 0.25


@thorough
@given(st.floats(0, 3600), attempts, fractions, fractions)
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


@thorough
@given(attempts, round_trips, fractions)
def test_delay_does_not_shrink_from_attempt_to_attempt(
    attempts: int, round_trip: float, draw: float
) -> None:
    retry = Retry()
    earlier = retry.after_taken(attempts, round_trip, draw)
    assert earlier <= retry.after_taken(attempts + 1, round_trip, draw)


# ---- the default


def test_first_delay_is_three_round_trips_in_the_mean() -> None:
    assert Retry().after_taken(1, 0.002, 0.5) == pytest.approx(0.006)


def test_next_delay_is_half_as_long_again() -> None:
    first, second = (Retry().after_taken(n, 0.002, 0.5) for n in (1, 2))
    assert second == pytest.approx(1.5 * first)


def test_delay_before_any_round_trip_is_known_is_short_and_not_zero() -> None:
    assert 0 < Retry().after_taken(1, 0.0, 0.5) <= 0.001


def test_delay_is_spread_by_three_quarters_to_both_sides() -> None:
    mean = Retry().after_taken(1, 0.002, 0.5)
    assert Retry().after_taken(1, 0.002, 0.0) == pytest.approx(mean * 0.25)
    assert Retry().after_taken(1, 0.002, 1.0) == pytest.approx(mean * 1.75)


def test_delay_without_jitter_does_not_depend_on_the_draw() -> None:
    retry = Retry(jitter=0)
    assert {retry.after_taken(3, 0.002, draw) for draw in (0, 0.5, 1)} == {
        retry.after_taken(3, 0.002, 0.25)
    }


def test_delay_at_the_cap_is_still_spread() -> None:
    delays = {Retry().after_taken(50, 0.002, draw / 10) for draw in range(11)}
    assert len(delays) == 11


# ---- a value, not a policy with a memory


@pytest.mark.parametrize("name", ["delay", "jitter", "unreachable_tries", "other"])
def test_retry_is_frozen(name: str) -> None:
    retry = Retry()
    with pytest.raises(AttributeError, match="frozen"):
        setattr(retry, name, 1)
    with pytest.raises(AttributeError, match="frozen"):
        delattr(retry, name)
    assert retry == Retry()


@pytest.mark.parametrize("retry", [Retry(), Retry(0.5, 0.1, 7)])
def test_retry_survives_pickling_and_copying(retry: Retry) -> None:
    for again in (pickle.loads(pickle.dumps(retry)), copy.deepcopy(retry)):
        assert again == retry
        assert hash(again) == hash(retry)
        assert eval(repr(retry)) == retry


def test_retries_of_different_values_differ() -> None:
    values = {Retry(), Retry(0.1), Retry(jitter=0.1), Retry(unreachable_tries=1)}
    assert len(values) == 4
    assert Retry() != "Retry()"


# ---- what is refused

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("options", "named", "allowed"),
    [
        ({"delay": -0.1}, "delay=-0.1", "0 to 3600 s"),
        ({"delay": 3601}, "delay=3601", "0 to 3600 s"),
        ({"delay": NAN}, "delay=nan", "0 to 3600 s"),
        ({"delay": INF}, "delay=inf", "0 to 3600 s"),
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


@pytest.mark.parametrize(
    "options", [{"delay": 0}, {"delay": 3600}, {"jitter": 1}, {"unreachable_tries": 1}]
)
def test_retry_at_the_end_of_its_range_is_taken(options: dict[str, Any]) -> None:
    assert all(getattr(Retry(**options), name) == options[name] for name in options)


# Not a TypeError of the comparison, which would not name the option.
@pytest.mark.parametrize("name", ["delay", "jitter", "unreachable_tries"])
def test_retry_of_something_else_than_a_number_is_refused(name: str) -> None:
    options: dict[str, Any] = {name: "1"}
    with pytest.raises(ConfigurationError, match=f"{name}='1'"):
        Retry(**options)
