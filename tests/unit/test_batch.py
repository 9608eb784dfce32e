"""A batch keeps a window of rounds under way; engine, masters and time by hand."""

from __future__ import annotations

import pytest

from fastredlock._core import (
    Batch,
    Engine,
    Operation,
    Round,
    Terms,
    TokenSource,
    Verdict,
    Vote,
    new_acquires,
)
from tests.support import by_hand as hand
from tests.support.rounds import MS, T0, TERMS

SHORT = Terms(100, 3 * MS, 5 * MS)  # what a ttl of 0.1 s comes to


@pytest.fixture
def engine() -> Engine:
    return hand.asked_engine(T0)


def keys(count: int) -> list[bytes]:
    return [b"k%d" % i for i in range(count)]


def tokens(count: int) -> list[bytes]:
    return [TokenSource(b"").draw() for _ in range(count)]


def sent(engine: Engine, index: int = 0) -> list[tuple[bytes, bytes]]:
    """Take what each master is sent; list the commands and keys of one of them."""
    commands = [hand.sent(engine, i) for i in range(3)][index]
    return [(w[0], w[1] if w[0] == b"SET" else w[-2]) for w in commands if len(w) > 3]


def answer(engine: Engine, reply: bytes, at_ns: int = T0 + MS) -> None:
    """Let a quorum say this."""
    hand.say(engine, reply, at_ns, (0, 1))


def taken_in(engine: Engine, count: int, terms: Terms = TERMS) -> Batch:
    batch = new_acquires(engine, keys(count), terms, tokens(count))
    hand.submit(engine, batch, T0)
    return batch


@pytest.mark.parametrize(("terms", "window"), [(TERMS, 1024), (SHORT, 250)])
def test_window_when_it_is_full_then_the_rest_waits_until_half_of_it_is_done(
    engine: Engine, terms: Terms, window: int
) -> None:
    batch = taken_in(engine, 3000, terms)
    assert len(sent(engine)) == window
    answer(engine, b"+OK\r\n" * (window // 2 - 1))
    assert sent(engine) == []
    answer(engine, b"+OK\r\n")
    assert len(sent(engine)) == window // 2
    assert batch.rounds[window].opened_ns == T0 + MS


def test_window_when_keys_are_big_then_counts_their_bytes(engine: Engine) -> None:
    big = [b"%d" % i + bytes(300_000) for i in range(9)]
    hand.submit(engine, new_acquires(engine, big, TERMS, tokens(len(big))), T0)
    assert len(sent(engine)) == 4
    answer(engine, b"+OK\r\n")
    assert len(sent(engine)) == 1


def test_acquires_when_none_is_answered_then_the_rest_is_never_sent(
    engine: Engine,
) -> None:
    batch = taken_in(engine, 3000)
    sent(engine)
    answer(engine, b"-OOM no\r\n" * 1023)
    assert not batch.is_finished
    answer(engine, b"-OOM no\r\n")
    assert batch.is_finished
    assert batch.failure is batch.rounds[0]
    hand.returned(engine, batch, T0 + MS)
    assert batch.is_withdrawn
    assert sent(engine) == []
    assert not batch.rounds[1024].is_opened


def test_acquires_when_one_is_unreachable_then_the_others_go_on(engine: Engine) -> None:
    """A shard of a cluster, or a slot that is moved, fails by itself."""
    batch = taken_in(engine, 3000)
    sent(engine)
    answer(engine, b"-ASK 1 h:1\r\n" + b"+OK\r\n" * 1023)
    assert len(sent(engine)) >= 512
    answer(engine, b"+OK\r\n" * 3000)
    hand.returned(engine, batch, T0 + MS)
    assert (batch.is_finished, batch.is_withdrawn) == (True, False)
    assert [round.is_won for round in batch.rounds[:2]] == [False, True]


def test_acquires_when_withdrawn_then_what_was_sent_is_undone_once(
    engine: Engine,
) -> None:
    batch = taken_in(engine, 2000)
    sent(engine)
    for _ in range(2):
        hand.withdraw(engine, batch, T0 + MS)
    assert sent(engine) == [(b"EVAL", key) for key in keys(1024)]
    answer(engine, b"+OK\r\n" * 1024, T0 + 2 * MS)
    assert sent(engine) == []


def following(engine: Engine, count: int, is_release: bool) -> Batch:
    """Begin to release, or to extend, so many locks that were taken."""
    acquire = int(Operation.ACQUIRE)
    leases = [Round(acquire, key, b"token", TERMS, 3) for key in keys(count)]
    new = engine.new_release if is_release else engine.new_extension
    batch = Batch([new(lease, TERMS) for lease in leases])
    hand.submit(engine, batch, T0)
    return batch


def test_releases_when_withdrawn_then_go_out_all_the_same_and_once(
    engine: Engine,
) -> None:
    batch = following(engine, 3000, is_release=True)
    for _ in range(2):
        hand.withdraw(engine, batch, T0)
    # The rest goes with the source: nobody will read what comes of it.
    names = [b"EVALSHA"] * 1024 + [b"EVAL"] * (3000 - 1024)
    assert sent(engine) == list(zip(names, keys(3000), strict=True))


# Acquires are one call; of extensions each counts, and another may have more masters.
@pytest.mark.parametrize("is_release", [True, False])
def test_releases_and_extensions_when_one_is_unreachable_then_the_others_go_on(
    engine: Engine, is_release: bool
) -> None:
    batch = following(engine, 2000, is_release)
    answer(engine, b"-OOM no\r\n" + b":1\r\n" * 1023)
    assert not batch.is_finished
    answer(engine, b":1\r\n" * 976)
    assert batch.is_finished
    assert batch.failure is (batch.rounds[0] if is_release else batch.failure)
    assert [round.is_won for round in batch.rounds] == [False] + [True] * 1999


def test_extensions_when_the_engine_is_closed_then_the_rest_ends_unreachable(
    engine: Engine,
) -> None:
    batch = following(engine, 3000, is_release=False)
    assert len(sent(engine)) == 1024
    hand.begin_close(engine, T0)
    answer(engine, b":1\r\n" * 1024)
    assert batch.is_finished
    assert sent(engine) == []
    rest = batch.rounds[1024:]
    assert {round.verdict for round in rest} == {Verdict.UNREACHABLE}
    assert rest[0].votes()[0][:2] == (Vote.FAILED, "closed")
