"""One use of a given token follows another; engine, masters and time by hand."""

from __future__ import annotations

import gc

import pytest

from fastredlock._core import Engine, Operation, Round, Terms, Verdict
from tests.support import by_hand as hand
from tests.support.rounds import MS, T0, TERMS, TOKEN, S

OK, DONE, REFUSED, NOSCRIPT = b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"-NOSCRIPT\r\n"
BRIEF = Terms(1000, 12 * MS, 50 * MS)


@pytest.fixture
def engine() -> Engine:
    return hand.asked_engine(T0, tokens_are_given=True)


def acquire(
    engine: Engine, at_ns: int, key: bytes = b"k", terms: Terms = TERMS
) -> Round:
    """Begin to acquire with the token that is always the same."""
    sent(engine)
    round = engine.new_round(int(Operation.ACQUIRE), key, TOKEN, terms)
    hand.submit(engine, round, at_ns)
    hand.finish(engine, at_ns)
    return round


def granted(engine: Engine, terms: Terms = TERMS) -> Round:
    lease = acquire(engine, T0 + MS, terms=terms)
    hand.say(engine, OK, T0 + MS)
    return lease


def release(engine: Engine, lease: Round, at_ns: int) -> Round:
    round = engine.new_release(lease, lease.terms)
    hand.submit(engine, round, at_ns)
    hand.finish(engine, at_ns)
    return round


def sent(engine: Engine, index: int = 0) -> list[bytes]:
    """Take what each master is sent; list the names of one of them's commands."""
    return [words[0] for words in [hand.sent(engine, i) for i in range(3)][index]]


def test_release_when_its_token_was_used_again_then_is_not_repeated_by_its_source(
    engine: Engine,
) -> None:
    # It would come behind the SET of the next use, and delete that.
    lease = granted(engine)
    release(engine, lease, T0 + 2 * MS)
    hand.say(engine, DONE, T0 + 3 * MS, (0, 1))
    again = acquire(engine, T0 + 4 * MS)
    sent(engine)
    hand.say(engine, NOSCRIPT + OK, T0 + 5 * MS, (2,))
    hand.say(engine, OK, T0 + 5 * MS, (0, 1))
    assert again.verdict is Verdict.WON
    assert sent(engine, 2) == []


def test_release_when_it_is_deferred_then_goes_before_the_next_use(
    engine: Engine,
) -> None:
    lease = granted(engine)
    hand.lost(engine, 2, "reset", T0 + 2 * MS)
    release(engine, lease, T0 + 2 * MS)
    hand.say(engine, DONE, T0 + 3 * MS, (0, 1))
    sent(engine)
    first = hand.shake_hands(engine, 2, T0 + 4 * MS)
    round = engine.new_round(int(Operation.ACQUIRE), b"k", TOKEN, TERMS)
    hand.submit(engine, round, T0 + 5 * MS)
    ours = [words[0] for words in first + hand.sent(engine, 2) if TOKEN in words]
    assert ours == [b"EVAL", b"SET"]


def test_acquire_when_a_release_was_lost_then_is_sent_10_s_after_the_reconnection(
    engine: Engine,
) -> None:
    lease = granted(engine, BRIEF)
    release(engine, lease, T0 + 2 * MS)
    for index in (0, 1):
        hand.lost(engine, index, "reset", T0 + 3 * MS)
    hand.say(engine, DONE, T0 + 3 * MS, (2,))
    # Both are opened again at once, for the release that waits for them.
    for index in (0, 1):
        hand.shake_hands(engine, index, T0 + S)
        hand.receive(engine, index, DONE, T0 + S)  # the release, sent again
    early = acquire(engine, T0 + 11 * S - 1)
    assert (early.is_withheld, early.verdict) == (True, Verdict.UNREACHABLE)
    assert sent(engine) == []
    assert not acquire(engine, T0 + 11 * S).is_withheld
    assert sent(engine) == [b"SET"]


def test_acquire_when_too_few_masters_are_connected_then_says_what_is_wrong_with_them(
    engine: Engine,
) -> None:
    lease = granted(engine)
    release(engine, lease, T0 + 2 * MS)
    for index in (0, 1):
        hand.lost(engine, index, "reset by peer", T0 + 3 * MS)
    sent(engine)
    round = engine.new_round(int(Operation.ACQUIRE), b"k", TOKEN, TERMS)
    hand.start(engine, round, T0 + 4 * MS)
    assert sent(engine, 2) == []
    assert (round.verdict, round.is_withheld) == (Verdict.UNREACHABLE, False)
    assert [said for _, said, _ in round.votes()[:2]] == ["reset by peer"] * 2


def test_acquire_when_another_of_the_token_is_under_way_then_is_taken(
    engine: Engine,
) -> None:
    first = acquire(engine, T0 + MS)
    second = acquire(engine, T0 + 2 * MS)
    assert (second.verdict, second.is_withheld) == (Verdict.TAKEN, True)
    assert sent(engine) == []
    hand.withdraw(engine, second, T0 + 3 * MS)
    assert sent(engine) == []
    hand.say(engine, REFUSED, T0 + 3 * MS)
    assert first.verdict is Verdict.TAKEN
    assert not acquire(engine, T0 + 4 * MS).is_withheld


def test_roll_back_when_it_is_not_confirmed_then_its_token_is_withheld(
    engine: Engine,
) -> None:
    first = acquire(engine, T0 + MS)
    hand.withdraw(engine, first, T0 + 2 * MS)
    again = acquire(engine, T0 + 3 * MS)
    assert (again.verdict, again.is_withheld) == (Verdict.UNREACHABLE, True)
    hand.say(engine, OK + DONE, T0 + 4 * MS, (0, 1))
    assert not acquire(engine, T0 + 5 * MS).is_withheld


def test_keys_when_one_of_several_is_held_under_the_token_then_all_are_taken(
    engine: Engine,
) -> None:
    acquire(engine, T0 + MS, b"b")
    both = engine.new_round(int(Operation.ACQUIRE), (b"a", b"b"), TOKEN, TERMS)
    hand.submit(engine, both, T0 + 2 * MS)
    assert (both.verdict, both.is_withheld) == (Verdict.TAKEN, True)
    assert not acquire(engine, T0 + 3 * MS, b"a").is_withheld


def test_acquire_when_a_lease_has_its_token_then_no_roll_back_meets_its_keys(
    engine: Engine,
) -> None:
    granted(engine)
    again = acquire(engine, T0 + 2 * MS)
    assert sent(engine) == [b"SET"]
    hand.say(engine, REFUSED, T0 + 3 * MS, (0,))
    hand.say(engine, OK, T0 + 3 * MS, (1,))
    again.on_deadline(T0 + S)
    hand.conclude(engine, again, T0 + S)
    # One has refused, one is silent: both may have the key of the lease.
    assert [[words[0] for words in hand.sent(engine, i)] for i in range(3)] == [
        *([], [b"EVAL"], [])
    ]


@pytest.mark.parametrize("is_extended", [False, True])
def test_acquire_when_the_keys_are_deleted_by_hand_then_ends_the_lease_of_before(
    engine: Engine, is_extended: bool
) -> None:
    # jumpserver, ragflow: whoever frees a stuck lock has a fixed id.
    lease = granted(engine)
    if is_extended:
        hand.submit(engine, engine.new_extension(lease, TERMS), T0 + 2 * MS)
        hand.say(engine, DONE, T0 + 2 * MS)
    again = acquire(engine, T0 + 3 * MS)
    hand.say(engine, OK, T0 + 4 * MS)
    assert again.is_won
    sent(engine)
    late = engine.new_extension(lease, TERMS)
    hand.submit(engine, late, T0 + 5 * MS)
    assert release(engine, lease, T0 + 5 * MS).verdict is Verdict.TAKEN
    assert (late.verdict, sent(engine)) == (Verdict.TAKEN, [])
    assert release(engine, again, T0 + 6 * MS).verdict is Verdict.OPEN
    assert sent(engine) == [b"EVALSHA"]


@pytest.mark.parametrize("is_extended", [False, True])
def test_acquire_when_the_lease_of_before_is_extended_or_released_then_is_taken(
    engine: Engine, is_extended: bool
) -> None:
    # Behind its SET either would change what it were granted.
    lease = granted(engine)
    again = acquire(engine, T0 + 2 * MS)
    if is_extended:
        work = engine.new_extension(lease, TERMS)
        hand.submit(engine, work, T0 + 3 * MS)
    else:
        work = release(engine, lease, T0 + 3 * MS)
    assert (again.verdict, work.verdict) == (Verdict.TAKEN, Verdict.OPEN)
    hand.finish(engine, T0 + 3 * MS)
    assert sent(engine) == [b"SET", b"EVALSHA"]  # and no roll-back of the first
    hand.say(engine, OK + DONE, T0 + 4 * MS)  # it is granted late: it is the lease's
    assert (again.verdict, work.verdict) == (Verdict.TAKEN, Verdict.WON)
    assert sent(engine) == []


@pytest.mark.parametrize("is_extended", [False, True])
def test_command_when_its_script_is_lost_then_is_not_repeated_behind_an_open_acquire(
    engine: Engine, is_extended: bool
) -> None:
    lease = granted(engine)
    if is_extended:
        hand.submit(engine, engine.new_extension(lease, TERMS), T0 + 2 * MS)
        hand.say(engine, DONE, T0 + 3 * MS, (0, 1))
    else:
        release(engine, lease, T0 + 2 * MS)
        hand.say(engine, DONE, T0 + 3 * MS, (0, 1))
    acquire(engine, T0 + 4 * MS)
    assert sent(engine, 2) == [b"SET"]
    hand.say(engine, NOSCRIPT, T0 + 5 * MS, (2,))
    assert sent(engine, 2) == []


def test_adopted_lease_when_its_token_is_granted_then_is_over(engine: Engine) -> None:
    first, second = (
        engine.new_adopted(b"k", TOKEN, TERMS, now_ns=T0 + MS) for _ in range(2)
    )
    again = acquire(engine, T0 + 2 * MS)
    hand.say(engine, OK, T0 + 2 * MS)
    assert again.is_won
    sent(engine)
    for lease in (first, second):
        assert release(engine, lease, T0 + 3 * MS).verdict is Verdict.TAKEN
    assert sent(engine) == []


def test_uses_when_thousands_are_settled_then_are_forgotten(engine: Engine) -> None:
    for i in range(2000):
        lease = acquire(engine, T0 + MS, b"k%d" % i)
        hand.say(engine, OK, T0 + MS)
        release(engine, lease, T0 + MS)
        hand.say(engine, DONE, T0 + MS)
    gc.collect()
    uses = [each for each in gc.get_objects() if type(each).__name__ == "TokenUse"]
    assert len(uses) < 600
