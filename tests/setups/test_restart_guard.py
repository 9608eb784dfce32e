"""The delayed restart of the Redlock page, by the client: no other client has it."""

from __future__ import annotations

import pytest

from fastredlock import Vote
from fastredlock._core import Engine, Operation, Verdict
from fastredlock._options import scripts
from fastredlock.testing._model import Model
from tests.support import by_hand as hand
from tests.support.by_hand import (
    MS,
    START_NS,
    S,
    begin,
    handshake_replies,
    info,
    make_ready,
    mark,
    new_engine,
    said_of,
)

# --- the rule, in virtual time --------------------------------------------------------


def test_guard_when_a_master_is_young_then_its_vote_says_since_and_until_when() -> None:
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [info(uptime_in_seconds=3)])
    round = begin(engine, START_NS + S // 5)
    assert said_of(round) == (Vote.FAILED, "restarted 3.2 s ago, votes again in 7.8 s")
    assert round.verdict is Verdict.UNREACHABLE
    assert round.may_hold == 0


@pytest.mark.parametrize(
    ("uptime", "after_ns", "votes"),
    [
        (0, 11 * S - 1, False),
        (0, 11 * S, True),
        (10, S - 1, False),
        (10, S, True),
        (11, 0, True),
        (10**15, 0, True),
    ],
)
def test_guard_when_uptime_passes_max_ttl_and_a_second_then_the_master_votes(
    uptime: int, after_ns: int, votes: bool
) -> None:
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [info(uptime_in_seconds=uptime)])
    round = begin(engine, START_NS + after_ns)
    assert said_of(round)[0] is (Vote.PENDING if votes else Vote.FAILED)


def test_guard_when_info_tells_no_uptime_then_it_waits_from_the_connect_on() -> None:
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [b"-NOPERM no INFO\r\n"])
    assert said_of(begin(engine, START_NS + S)) == (
        Vote.FAILED,
        "may be restarted (INFO tells no uptime), votes in 10.0 s",
    )
    assert said_of(begin(engine, START_NS + 11 * S))[0] is Vote.PENDING


@pytest.mark.parametrize(("uptime", "vote"), [(101, Vote.PENDING), (0, Vote.FAILED)])
def test_guard_when_a_master_reconnects_then_it_votes_unless_it_was_restarted(
    uptime: int, vote: Vote
) -> None:
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [info(uptime_in_seconds=99)])
    hand.lost(engine, 0, "cut", START_NS + S)
    make_ready(engine, [info(uptime_in_seconds=uptime)], START_NS + 2 * S)
    assert said_of(begin(engine, START_NS + 2 * S))[0] is vote


@pytest.mark.parametrize("operation", [Operation.EXTEND, Operation.RELEASE])
def test_guard_when_a_lease_is_extended_or_released_then_the_master_is_asked(
    operation: Operation,
) -> None:
    # Neither can create a key: a restarted master answers 0 by itself.
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [info(uptime_in_seconds=0)])
    round = begin(engine, START_NS, operation)
    hand.receive(engine, 0, b":0\r\n", START_NS)
    assert said_of(round)[0] is Vote.TAKEN


# --- the limits of uptime -------------------------------------------------------------

OLD = info(run_id="a", uptime_in_seconds=10**6)
OTHER = info(run_id="b", uptime_in_seconds=10**6)
NAMELESS = info(uptime_in_seconds=10**6)
YOUNG, YOUNGER = (info(run_id=each, uptime_in_seconds=1) for each in ("a", "b"))


def reconnected(
    engine: Engine, said: bytes, now_ns: int, marked: bytes = mark()
) -> Engine:
    hand.lost(engine, 0, "cut", now_ns - S // 10)
    return make_ready(engine, [said], now_ns, marked)


@pytest.mark.parametrize(
    ("first", "second"), [(OLD, OTHER), (OLD, NAMELESS), (NAMELESS, OTHER)]
)
def test_guard_when_another_run_id_answers_then_it_waits_whatever_the_uptime(
    first: bytes, second: bytes
) -> None:
    """The memory of this client; a further connection must not shorten the wait."""
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [first], marked=mark())
    assert said_of(begin(engine, START_NS))[0] is Vote.PENDING
    reconnected(engine, second, START_NS + S)
    assert said_of(begin(engine, START_NS + 2 * S)) == (
        Vote.FAILED,
        "restarted or replaced: its run id is new, votes in 10.0 s",
    )
    if second is not NAMELESS:
        reconnected(engine, second, START_NS + 2 * S)
    assert said_of(begin(engine, START_NS + 12 * S - 1))[0] is Vote.FAILED
    assert said_of(begin(engine, START_NS + 12 * S))[0] is Vote.PENDING


def test_guard_when_the_handshake_with_another_fails_then_it_is_not_known_later() -> (
    None
):
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [OLD])
    for end in (handshake_replies(OTHER), handshake_replies(OTHER)[:-2]):
        hand.lost(engine, 0, "cut", START_NS)
        hand.open_due(engine, True, START_NS + S)
        hand.connected(engine, 0, START_NS + S)
        hand.receive(engine, 0, end, START_NS + S)
        hand.outgoing(engine, 0)
    reconnected(engine, OTHER, START_NS + 2 * S)
    assert said_of(begin(engine, START_NS + 13 * S - 1))[0] is Vote.FAILED


def test_guard_when_a_quarantine_stands_then_it_waits_on_our_clock_from_the_reply() -> (
    None
):
    """The memory of the others."""
    engine = new_engine(max_ttl_ns=10 * S)
    make_ready(engine, [OLD], marked=mark(left_ms=4000))
    assert said_of(begin(engine, START_NS)) == (
        Vote.FAILED,
        "restarted, replaced, emptied or new: in quarantine (fastredlock quarantine), "
        "votes in 4.0 s",
    )
    assert said_of(begin(engine, START_NS + 4 * S))[0] is Vote.FAILED
    assert said_of(begin(engine, START_NS + 4 * S + MS))[0] is Vote.PENDING


@pytest.mark.parametrize(("left_ms", "votes"), [(-3, True), (-2, False), (-1, False)])
def test_guard_when_an_operator_has_lifted_it_then_uptime_counts_for_nothing(
    left_ms: int, votes: bool
) -> None:
    engine = new_engine(max_ttl_ns=10 * S)
    make_ready(engine, [info(uptime_in_seconds=1)], marked=mark(left_ms))
    assert said_of(begin(engine, START_NS))[0] is (
        Vote.PENDING if votes else Vote.FAILED
    )


def test_guard_when_it_was_lifted_then_the_same_server_stays_so_and_another_waits() -> (
    None
):
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [YOUNG], marked=mark(-3))
    reconnected(engine, YOUNG, START_NS + S, mark(-2))  # the key has gone
    assert said_of(begin(engine, START_NS + S))[0] is Vote.PENDING
    reconnected(engine, YOUNGER, START_NS + 2 * S, mark(-2))
    assert said_of(begin(engine, START_NS + 12 * S))[0] is Vote.FAILED


@pytest.mark.parametrize("form", ["plain", "lineage"])
@pytest.mark.parametrize(
    ("run_id", "quarantine", "left_ms"),
    [(b"a", b"", -3), (b"ab", b"", -2), (b"", b"", -2), (b"a", b"1000", 1000)],
)
def test_marker_when_lifted_then_says_so_of_the_same_run_id_without_a_quarantine(
    form: str, run_id: bytes, quarantine: bytes, left_ms: int
) -> None:
    name, how = {"plain": (b"a", b"exact"), "lineage": (b"a:0:", b"0")}[form]
    model = Model()
    model.execute([b"SET", b"m", name, b"NX"], None, 1)
    if run_id:
        model.execute([b"SET", b"q{0}:lifted", run_id, b"NX"], None, 1)
    if quarantine:
        words = [b"SET", b"q{0}", quarantine, b"NX", b"PX", quarantine]
        model.execute(words, None, 1)
    words = [b"EVAL", scripts.MARKER, b"2", b"m", b"q{0}", name, b"1000", how]
    reply = model.execute(words, None, 1)
    assert reply.startswith(b"*2\r\n:%d\r\n" % left_ms)


@pytest.mark.parametrize(
    ("marked", "wait_ns"),
    [
        (b"-OOM command not allowed\r\n", 11 * S),  # it may take SETs again soon
        (b"-MISCONF Redis cannot persist\r\n", 11 * S),
        (b"$2\r\nOK\r\n", 11 * S),
        (mark(left_ms=10**30), 10**9 * S),
        (b"-NOPERM No permissions to access a key\r\n", 0),  # told; uptime counts
    ],
)
def test_guard_when_the_marker_is_refused_then_it_waits_unless_the_acl_forbids_it(
    marked: bytes, wait_ns: int
) -> None:
    engine = make_ready(new_engine(max_ttl_ns=10 * S), [OLD], marked=marked)
    if wait_ns:
        assert said_of(begin(engine, START_NS + wait_ns - 1))[0] is Vote.FAILED
    if wait_ns < 10**9:
        assert said_of(begin(engine, START_NS + wait_ns))[0] is Vote.PENDING


def test_guard_when_not_set_then_no_marker_is_asked_for_and_a_young_master_votes() -> (
    None
):
    engine = new_engine()
    hand.open_due(engine, True, START_NS)
    hand.connected(engine, 0, START_NS)
    young = info(uptime_in_seconds=0)
    hand.receive(engine, 0, handshake_replies(young), START_NS)
    assert scripts.MARKER not in hand.outgoing(engine, 0)
    assert said_of(begin(engine, START_NS))[0] is Vote.PENDING
