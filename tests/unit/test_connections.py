"""Masters that are not connected: rounds wait for them, and the log has a line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import thread_time_ns

import pytest

from fastredlock._core import Engine, Operation, Round, Verdict, Vote
from fastredlock._reports.votes import votes_of
from tests.support import by_hand as hand
from tests.support.by_hand import MS, START_NS, TERMS, S, info, make_ready, ready_engine

FEW, MANY = 500, 8_000  # a quadratic cost is 256 times as much, a linear one 16


def cold_engine() -> Engine:
    engine = hand.new_engine(5)
    hand.by_hand(engine)
    return engine


def submit(engine: Engine, count: int, now_ns: int = START_NS) -> list[Round]:
    """Begin acquires with a timeout of 1 s."""
    rounds = []
    for i in range(count):
        acquire = int(Operation.ACQUIRE)
        round = engine.new_round(acquire, b"%d" % i, b"t", TERMS, left_ns=1000 * MS)
        hand.submit(engine, round, now_ns)
        rounds.append(round)
    return rounds


def cost_of(work: Callable[[int], object], count: int) -> int:
    """Return the least CPU time of three runs (ns)."""
    times = []
    for _ in range(3):
        began = thread_time_ns()
        work(count)
        times.append(thread_time_ns() - began)
    return min(times)


@pytest.mark.parametrize("leaves", [False, True])
def test_acquire_when_many_wait_for_connections_then_each_costs_the_same(
    leaves: bool,
) -> None:
    # Each that came looked at all that waited: 20,000 took 2.8 s of CPU, beyond their
    # timeout of 1 s, and 13,052 were unreachable on five healthy masters (issue 27, D).
    # The last ones leave first: a search from the front passes all the others.
    def wait(count: int) -> None:
        engine = cold_engine()
        for round in reversed(submit(engine, count)):
            if leaves:
                hand.withdraw(engine, round, START_NS)

    assert cost_of(wait, MANY) < 64 * cost_of(wait, FEW)


def test_acquire_when_a_quorum_is_connected_then_all_that_waited_are_opened() -> None:
    engine = cold_engine()
    rounds = submit(engine, 3)
    for index in range(3):
        hand.shake_hands(engine, index, START_NS + MS)
    hand.finish(engine, START_NS + MS)
    assert not any(round.is_opened for round in rounds)  # the others get as long
    hand.pass_time(engine, START_NS + 12 * MS)
    assert all(round.is_opened for round in rounds)
    assert [round.opened_ns for round in rounds] == [START_NS + 12 * MS] * 3


def test_acquire_when_one_of_several_that_wait_is_withdrawn_then_it_is_not_sent() -> (
    None
):
    engine = cold_engine()
    first, second, third = submit(engine, 3)
    hand.withdraw(engine, second, START_NS)
    for index in range(5):
        hand.shake_hands(engine, index, START_NS + MS)
    hand.finish(engine, START_NS + MS)
    assert [each.is_opened for each in (first, second, third)] == [True, False, True]


# Issue 42: 20,000 tasks on a cold client called masters silent that were well.
def test_votes_when_most_of_the_timeout_went_on_connecting_then_say_so() -> None:
    engine = cold_engine()
    (round,) = submit(engine, 1)
    for i in range(3):
        hand.shake_hands(engine, i, START_NS + 900 * MS)
    hand.connected(engine, 3, START_NS + 999 * MS)
    hand.pass_time(engine, START_NS + 1100 * MS)
    assert [text for _, text, _ in round.votes()[:4]] == [
        *["not connected in time: 10 ms were left for this"] * 3,
        "not connected in time: no answer to the handshake yet",
    ]


@pytest.mark.parametrize("first", [0, 2])
def test_votes_when_three_are_refused_then_none_on_its_way_has_failed(
    first: int,
) -> None:
    # By the order of the masters the two voted FAILED, or did not.
    engine = cold_engine()
    (round,) = submit(engine, 1)
    refused = range(first, first + 3)
    for i in range(5):
        if i in refused:
            hand.lost(engine, i, "connection refused", START_NS + MS)
        else:
            hand.connected(engine, i, START_NS + MS)
    hand.pass_time(engine, START_NS + 12 * MS)
    assert round.verdict is Verdict.UNREACHABLE
    assert [(vote.vote, vote.text) for vote in votes_of(engine, round)] == [
        (Vote.FAILED, "connection refused")
        if i in refused
        else (Vote.PENDING, "no answer to the handshake yet")
        for i in range(5)
    ]


NAME = "127.0.0.1:7001"
AWAY = (logging.WARNING, NAME, "not connected for 11 s: refused")


def lose(engine: Engine, *seconds: int) -> list[tuple[int, str, str]]:
    """Have a connection, or an attempt, fail at these times; return the lines."""
    for at in seconds:
        hand.open_due(engine, True, START_NS + at * S)
        hand.lost(engine, 0, "refused", START_NS + at * S)
    return engine.take_unlogged()


@pytest.mark.parametrize(
    ("lost_at", "lines"),
    [((1,), []), ((1, 2, 10), []), ((1, 2, 12), [AWAY]), ((1, 12, 13, 60), [AWAY])],
)
def test_master_when_away_for_longer_than_10_s_then_is_one_line(
    lost_at: tuple[int, ...], lines: list[tuple[int, str, str]]
) -> None:
    assert lose(ready_engine(), *lost_at) == lines


def test_master_when_back_after_a_line_then_is_one_more_each_time() -> None:
    engine = ready_engine()
    for i in range(2):
        assert lose(engine, 100 * i + 1, 100 * i + 12) == [AWAY]
        make_ready(engine, [info(run_id="a")], START_NS + (100 * i + 31) * S)
        assert engine.take_unlogged() == [
            (logging.INFO, NAME, "connected again after 30 s")
        ]


OOM = "OOM command not allowed"
FULL, OK = f"-{OOM}\r\n".encode(), b"+OK\r\n"


def ask(engine: Engine, *at_s: int, reply: bytes = FULL) -> list[tuple[int, str, str]]:
    """Have an ACQUIRE answered so at each of these times; return what is logged."""
    for at in at_s:
        now_ns = START_NS + at * S
        hand.begin(engine, now_ns)
        asked = hand.commands_in(hand.outgoing(engine, 0))
        said = [b"-ERR\r\n" if words == [b"TIME"] else reply for words in asked]
        hand.say(engine, b"".join(said), now_ns, (0,))
    return engine.take_unlogged()


@pytest.mark.parametrize(
    ("at_s", "away_s"), [((1,), 0), ((1, 5, 10), 0), ((1, 6, 12, 13), 11), ((1, 60), 0)]
)
def test_master_when_it_is_full_for_longer_than_10_s_then_is_one_line(
    at_s: tuple[int, ...], away_s: int
) -> None:
    # Connected and refusing: every lock failed, and nothing was logged at any level.
    engine = ready_engine()
    lost = logging.WARNING, "quorum", f"lost; {NAME}: {OOM}"
    line = logging.WARNING, NAME, f"takes no locks for {away_s} s: {OOM}"
    assert ask(engine, *at_s) == ([lost, line] if away_s else [lost])


def test_master_when_it_takes_locks_again_then_is_one_more_line_of_both() -> None:
    engine = ready_engine()
    assert len(ask(engine, 1, 9, 12)) == 2
    assert ask(engine, 13, 14, reply=OK) == [
        (logging.INFO, NAME, "takes locks again after 12 s"),
        (logging.INFO, "quorum", "there again after 12.0 s"),
    ]
    assert engine.warnings == []


def test_quorum_when_it_is_withheld_by_the_restart_guard_then_is_one_line_each() -> (
    None
):
    engine = make_ready(
        hand.new_engine(1, 60 * S), [info(run_id="a", uptime_in_seconds=9)]
    )
    lost, line = ask(engine, 1, 8, 12)
    why = "restarted 10.0 s ago, votes again in 51.0 s"
    assert lost == (logging.WARNING, "quorum", f"lost; {NAME}: {why}")
    assert line[2].startswith("takes no locks for 11 s: restarted 21.0 s ago, votes")


def test_warning_when_a_later_handshake_does_not_find_it_then_ends() -> None:
    engine = ready_engine(2)
    hand.lost(engine, 0, "cut", START_NS + S)
    roles = [("slave", 1), ("slave", 1), ("master", 0), ("slave", 1)]
    for at_s, (role, count) in enumerate(roles, 2):
        said = info(run_id="id0", role=role, uptime_in_seconds=9)
        make_ready(engine, [said, info(run_id="id1")], START_NS + at_s * S)
        assert [text[:12] for _, text in engine.warnings] == ["is a replica"] * count
        hand.lost(engine, 0, "cut", START_NS + at_s * S + MS)
    told = [text for *_, text in engine.take_unlogged() if "replica" in text]
    assert len(told) == 2  # once each time that it became one


def test_late_reply_when_a_later_one_is_in_time_then_is_not_told_any_more() -> None:
    # One freeze of 3 s was in every error a minute and 1,200 locks later.
    engine = ready_engine()
    round = hand.begin(engine, START_NS)
    hand.receive(engine, 0, b"", START_NS)
    round.on_deadline(START_NS + S)
    hand.conclude(engine, round, START_NS + S)
    hand.receive(engine, 0, OK + hand.TIME_REPLY, START_NS + 3 * S)
    assert engine.faults[0][0] == 3_000_000
    again = hand.begin(engine, START_NS + 4 * S)
    hand.receive(engine, 0, b":1\r\n" + OK, START_NS + 4 * S + MS)
    assert again.is_won
    assert engine.faults[0][0] == 0


def test_losses_when_attempts_are_refused_then_count_connections_only() -> None:
    engine = ready_engine()
    lose(engine, 1, 2, 3, 12)
    assert (engine.counters.connects, engine.counters.losses) == (1, 1)


def test_master_when_a_refused_server_is_in_its_place_then_is_not_back() -> None:
    engine = ready_engine()
    lose(engine, 1, 12)
    refused = info(run_id="b", role="active-replica")
    make_ready(engine, [refused], START_NS + 13 * S)
    assert [level for level, *_ in engine.take_unlogged()] == [logging.WARNING]
