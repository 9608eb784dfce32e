"""The errors: their classes, their texts, and the secrets that no text has."""

import copy
import pickle
import traceback
from hashlib import sha256
from typing import Any

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    ForeignKeyError,
    InternalError,
    LeaseLostError,
    MasterVote,
    NotExtendedError,
    QuorumUnreachableError,
    ResourceTakenError,
    ValidityExhaustedError,
    Vote,
)
from fastredlock._core import Operation, Round
from fastredlock._reports.votes import (
    NOT_AWAITED,
    broken_text,
    connection_votes,
    describe_votes,
    holders_of,
    printable,
    rows_of,
    votes_of,
)
from tests.support import by_hand
from tests.support.core import Handshake
from tests.support.rounds import (
    MS,
    T0,
    TERMS,
    ScriptedLocks,
    cast,
    new_engine,
    new_scripts,
)

VOTES = (
    MasterVote("a:6379", Vote.GRANTED, None, 0.4),
    MasterVote("b:6379", Vote.TAKEN, None, 1.25),
    MasterVote("c:6379", Vote.TAKEN, None, 2.0),
    MasterVote("d:6379", Vote.FAILED, "connection refused"),
    MasterVote("e:6379", Vote.SILENT, "no reply within 500 ms"),
)
SAID = (
    "1 of 5 granted, 2 taken, 1 failed, 1 silent [a:6379 GRANTED in 0.4 ms; "
    "b:6379 TAKEN in 1.2 ms; c:6379 TAKEN in 2.0 ms; "
    "d:6379 FAILED (connection refused); e:6379 SILENT (no reply within 500 ms)]"
)
ACQUIRE_ERRORS = [
    *(ResourceTakenError, QuorumUnreachableError),
    *(ValidityExhaustedError, ForeignKeyError),
]
SECRET = "hunter2"


# ---- what they say


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"!2500 ann@ops-1", "broken by ann@ops-1 2 s ago"),
        (b"!60000 " + b"x" * 90, f"broken by {'x' * 64} 60 s ago"),
        *((b"!" + age + b" ann", "broken") for age in (b"", b"-5", b"1e+99")),
        *((b"!" + b"9" * digits + b" ann", "broken") for digits in (400, 5000)),
        (b"!1 ann\nERROR", "broken"),
    ],
)
def test_trace_when_it_is_told_whatever_a_server_sends_then_is_one_short_line(
    reply: bytes, said: str
) -> None:
    assert broken_text(reply) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ResourceTakenError("orders:42", VOTES, 1, 0.002),
            f"'orders:42': held by others after 1 attempt in 2 ms: {SAID}",
        ),
        (
            QuorumUnreachableError("r", VOTES, 3, 0.0142, "give a larger ttl"),
            "'r': fewer than a quorum of masters could answer after 3 attempts in "
            f"14 ms (give a larger ttl): {SAID}",
        ),
        (
            ValidityExhaustedError("r", VOTES, 3, 0.1),
            "'r': granted by a quorum, but the round used the validity up after 3 "
            f"attempts in 100 ms: {SAID}",
        ),
        (LeaseLostError("r", "lost", VOTES, 0.5), f"'r': lost: {SAID}"),
        (LeaseLostError("r", "it was released"), "'r': it was released"),
        (
            NotExtendedError("r", "not confirmed", VOTES, 3.2041),
            f"'r': not confirmed, valid for 3.204 s more: {SAID}",
        ),
        (
            NotExtendedError("r", "not confirmed", VOTES, 0.0),
            f"'r': not confirmed, its validity is not known: {SAID}",
        ),
    ],
)
def test_error_says_what_is_known(error: FastRedlockError, said: str) -> None:
    assert str(error) == said


@pytest.mark.parametrize(
    ("resource", "shown"),
    [
        ("orders:42", "'orders:42'"),
        (b"orders:42", "'orders:42'"),
        ("a\nb", r"'a\nb'"),
        (b"\xff\x00", r"'\\xff\x00'"),
    ],
)
def test_resource_of_any_bytes_is_shown_on_one_line(
    resource: str | bytes, shown: str
) -> None:
    for error in (
        ResourceTakenError(resource, VOTES, 1, 0.0),
        LeaseLostError(resource, "lost"),
        NotExtendedError(resource, "not confirmed", VOTES, 0.5),
    ):
        assert str(error).startswith(f"{shown}: ")
        assert "\n" not in str(error)


# ---- pickling, for process pools


@pytest.mark.parametrize(
    "before",
    [
        *(error(b"\xff", VOTES, 3, 0.25, "a hint") for error in ACQUIRE_ERRORS),
        *(
            error("r", "lost", VOTES, 0.5)
            for error in (LeaseLostError, NotExtendedError)
        ),
        LeaseLostError("r", "lost", body_ended=True),
        *(error("ttl=0: more") for error in (ConfigurationError, InternalError)),
        FastRedlockError("ttl=0: allowed is more"),
    ],
    ids=repr,
)
def test_error_survives_pickling_and_copying(before: FastRedlockError) -> None:
    for after in (pickle.loads(pickle.dumps(before)), copy.copy(before)):
        assert type(after) is type(before)
        assert vars(after) == vars(before)
        assert str(after) == str(before)


# ---- what they never say


def shown_of(error: BaseException) -> str:
    """Return all that a log may show of an error, its causes and locals' reprs."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(told.format()) + repr(error) + str(vars(error))


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (["TT."], ResourceTakenError),
        (["FFF"], QuorumUnreachableError),
        (["EEE"], QuorumUnreachableError),
        (["GG.", "TT."], LeaseLostError),
        (["GG.", "TT.", "GG."], LeaseLostError),  # in an extension
        (["GG.", "FF.", "GG."], NotExtendedError),
    ],
)
def test_error_shows_no_token_and_no_password(
    answers: list[str], error: type[Exception]
) -> None:
    locks = ScriptedLocks(*answers, new_token=lambda: SECRET)
    with pytest.raises(error) as caught, locks.lock("orders:42", timeout=0) as lease:
        assert not answers[2:] or lease.extend()
    assert SECRET not in shown_of(caught.value)


def test_repr_of_what_knows_a_password_does_not_show_it() -> None:
    locks = FastRedlock([f"redis://user:{SECRET}@a", f"redis://:{SECRET}@b"])
    settings, engine = locks._driver.settings, locks._driver.engine
    known = [locks, settings, settings.endpoints, engine, engine.states]
    assert SECRET not in repr([*known, engine.master_names])
    assert repr(locks) == "<FastRedlock a:6379, b:6379>"


def test_repr_of_what_knows_a_token_does_not_show_it() -> None:
    round = Round(Operation.ACQUIRE, b"r", SECRET.encode(), TERMS, 3)
    handshake = Handshake(None, SECRET.encode(), 0, b"name", new_scripts())
    assert SECRET not in repr([round, handshake, round.votes()])


# --- the vote of one master, as text for people and as values for programs


HOLDER = b"hunter2"
TOLD = b"=hunter2"  # as the script tells it
TOLD_ROW = [TOLD, 250]


def opened(operation: Operation, votes: str = "", **made: Any) -> Round:
    """Make an opened round of an engine of three masters, with these votes."""
    round = new_engine().new_round(operation, b"r", b"t", TERMS)
    round.open(T0)
    return cast(round, votes, T0 + 1_250_000)


def inspected(*replies: object) -> Round:
    """Make a closed INSPECT round; a reply is rows of tokens in lines and ms."""
    round = opened(Operation.INSPECT)
    for master, reply in enumerate(replies):
        if isinstance(reply, list):
            vote = Vote.TAKEN if reply[:-1] else Vote.GRANTED
            round.on_vote(master, vote, reply, True, T0 + MS)
    round.on_deadline(T0 + 500 * MS)
    return round


def test_votes_of_a_round_are_one_per_master_in_configured_order() -> None:
    votes = votes_of(new_engine(), opened(Operation.ACQUIRE, "GFE"))
    assert votes == (
        MasterVote("master0:6379", Vote.GRANTED, None, 1.25),
        MasterVote("master1:6379", Vote.FAILED, "connection lost", None),
        MasterVote("master2:6379", Vote.FAILED, "LOADING", 1.25),
    )
    votes = votes_of(new_engine(), opened(Operation.ACQUIRE, "G"))
    assert [vote.vote.name for vote in votes] == ["GRANTED", "PENDING", "PENDING"]
    round = opened(Operation.ACQUIRE, "G")
    round.on_deadline(T0 + 500 * MS)
    assert votes_of(new_engine(), round)[1].text == "no reply within 500 ms"
    assert connection_votes(new_engine(1)) == (
        MasterVote("master0:6379", Vote.FAILED, "not connected yet"),
    )


# Issue 42: the master that was well was shown as the third broken one.
@pytest.mark.parametrize(
    ("connected", "text", "counts"),
    [
        (True, NOT_AWAITED, "0 of 3 granted, 2 failed, 1 not waited for ["),
        (False, "not connected yet", "0 of 3 granted, 2 failed, 1 pending ["),
    ],
)
def test_master_that_is_well_in_an_outage_is_told_apart_from_the_failed(
    connected: bool, text: str, counts: str
) -> None:
    engine = by_hand.new_engine(3) if connected else new_engine()
    if connected:
        by_hand.make_ready(engine, [by_hand.info(run_id=str(i)) for i in range(3)])
    votes = votes_of(engine, opened(Operation.ACQUIRE, "FF"))
    assert (votes[2].vote, votes[2].text) == (Vote.PENDING, text)
    assert describe_votes(votes).startswith(counts)


# Issue 53: of three wrong passwords one was "pending", with its reason beside it.
@pytest.mark.parametrize("tries_again", [False, True])
def test_master_that_has_failed_outside_of_the_round_is_shown_as_failed(
    tries_again: bool,
) -> None:
    engine = by_hand.new_engine(3)
    for master in by_hand.open_due(engine, True, by_hand.START_NS):
        by_hand.lost(engine, master, "WRONGPASS", by_hand.START_NS)
    if tries_again:
        assert by_hand.open_due(engine, True, by_hand.START_NS + 10_000 * MS) == [
            0,
            1,
            2,
        ]
    votes = votes_of(engine, opened(Operation.ACQUIRE, "FF"))
    assert (votes[2].vote, votes[2].text) == (Vote.FAILED, "WRONGPASS")
    assert describe_votes(votes).startswith("0 of 3 granted, 3 failed [")


# ---- resources


@pytest.mark.parametrize(
    ("resource", "shown"),
    [
        ("a", "'a'"),
        (b"a\xff", r"'a\\xff'"),
        (("a",), "'a'"),
        (("a", b"b"), "'a', 'b'"),
        (tuple("abcde"), "'a', 'b', 'c', 'd', 'e'"),
        (tuple("abcdefg"), "'a', 'b', 'c', 'd', 'e' and 2 more"),
    ],
)
def test_resources_are_shown_one_by_one_and_of_many_the_first(
    resource: Any, shown: str
) -> None:
    assert printable(resource) == shown


# ---- holders


def test_holder_is_told_by_a_hash_of_its_token_and_what_is_left() -> None:
    votes = holders_of(new_engine(), inspected([[TOLD, 250], 0], [[TOLD, -1], 0], None))
    expected = sha256(HOLDER).hexdigest()[:16]
    assert [(vote.token_hash, vote.remaining_ms) for vote in votes] == [
        (expected, 250),
        (expected, -1),
        (None, None),
    ]
    assert [vote.vote.name for vote in votes] == ["TAKEN", "TAKEN", "SILENT"]
    assert "hunter2" not in f"{votes} {describe_votes(votes)}"
    assert votes[0].text is None
    (nobody, *_) = holders_of(new_engine(), inspected([3]))
    assert (nobody.vote, nobody.token_hash) == (Vote.GRANTED, None)
    assert (nobody.remaining_ms, nobody.waiting) == (-2, 3)


def test_readers_of_a_lock_are_a_row_each_beside_one_another() -> None:
    rows = [[b"&first", 250], [b"&line\n=two", 900], 1]
    votes = holders_of(new_engine(), inspected(rows, [TOLD_ROW, 0]))
    assert [vote.master[6] for vote in votes] == ["0", "0", "1", "2"]
    assert [vote.remaining_ms for vote in votes] == [250, 900, 250, None]
    assert [vote.is_shared for vote in votes] == [True, True, False, False]
    hashes = [sha256(token).hexdigest()[:16] for token in (b"first", b"line\ntwo")]
    assert [vote.token_hash for vote in votes[:2]] == hashes
    assert [vote.waiting for vote in votes] == [1, 1, 0, None]


def test_row_of_inspect_when_nobody_holds_then_has_no_text() -> None:
    """Seen: `holders()` of a free lock had the reply itself, [0], for its text."""
    asked = MasterVote("m", Vote.GRANTED, text=[0])  # type: ignore[arg-type]
    (free,) = rows_of(asked, [0])
    assert (free.text, free.waiting, free.token_hash) == (None, 0, None)
