"""The commands to a master, byte by byte, and what a reply becomes: a vote."""

from __future__ import annotations

from hashlib import sha1

import hiredis
import pytest
from hiredis import ReplyError
from hypothesis import example, given
from hypothesis import strategies as st

from fastredlock._core import Operation, Script, Scripts, Terms, Vote
from fastredlock._options import scripts
from tests.support.by_hand import commands_in, new_engine
from tests.support.core import encode_round, vote_of_reply
from tests.support.rounds import thorough

ENGINE = new_engine()
SHA1 = b"0123456789abcdef0123456789abcdef01234567"
WRONG_TYPE = b"-WRONGTYPE Operation against a key\r\n"
ROW = b"*2\r\n$2\r\nab\r\n:250\r\n"  # of INSPECT
SCRIPT = Script(b"return 1", SHA1)
KNOWN_SHA1 = {
    "RELEASE": b"79b954ef3863314d4ff2324b4a520053b6dcc018",
    "EXTEND": b"328e2b50475f2b5fdb12a528d975d38ab7549e86",
    "INSPECT": b"d97b5f381881a0b511e7793a4e928a7f7d837970",
    "ACQUIRE_ALL": b"2e2a8aca65df5faa1308f88f3a8b3300a8c9e63e",
    "ACQUIRE_AGAIN": b"9fda12318fdbf37ca1acecc8f66dfd05e75b4b82",
    "BREAK_LOCK": b"2f6ee987c024c3db67dc1aa21530a4b04c149e6b",
    "EXTEND_ALL": b"c4a46e8d14c4169c9d182c04c30b92d2e309bb37",
    "PROBE": b"9dc61fd101aadbfb6cca5077cbc8cd79428898a1",
    "MARKER": b"de7e7a77c89f01617fcf91e3af2630f0a5aef0b4",
    "NOTIFY_NEXT": b"39384d2beef005b360e2ab08c3a3e2dc07715f2b",
    "RELEASE_AND_NOTIFY": b"fbc8ee75c317c29740572fbe96d2fea937116123",
    "RELEASE_ALL": b"8ce2e1f0ea365f587b822c70ddf606d25ee20246",
    "ASK_TURN": b"eff8de34a9d615aa1a0c9bb9af5a781871a2c716",
    "TAKE_TURN": b"919d39dc05de8c43a42b01d73b53ba34449af676",
    "LOOK": b"ba6226a459432a58533acc745344d5813b7e276b",
    "LEAVE_QUEUE": b"2bf579e8993cf0cb30f85c7276eeced9e1a1a08e",
    "FENCED_ACQUIRE_ALL": b"f5eeb8e3786da98fe472a60c06df447916921fa9",
    "FENCED_ACQUIRE_AGAIN": b"92986d704b750e2dc90e05e72f44e0032f223021",
    "FENCED_TAKE_TURN": b"a6f26688477651293eefbbfffa039fbb8b29b629",
    "WRITE_FENCE": b"9b35f5a917399e50f84bb78014629579a1fc7960",
    "ACQUIRE_SHARED": b"8ab25a99c4a1fb7ab81434304e75cdda75773f86",
    "EXTEND_SHARED": b"0406aefda0820fe00562e704d6f6483124a093c2",
    "RELEASE_SHARED": b"ab2b5cedef25acc928a82cb48437ffa9a9814c6c",
    "TAKE_TURN_SHARED": b"8e22e546e221cf78f9a43c14c2b01d86462f7563",
    "RELEASE_SHARED_AND_NOTIFY": b"ff8be69de022895dadc40d07734a958d7902997a",
    "FENCED_PROBE": b"3bd632102c798823a34abe47db4b1451a065479a",
}


def encode(
    operation: Operation,
    keys: bytes | tuple[bytes, ...],
    token: bytes,
    ttl_ms: int,
    script: Script = SCRIPT,
    by_source: bool = False,
) -> bytes:
    """Encode a round whose scripts, if it needs one, are this one."""
    round = ENGINE.new_round(operation, keys, token, Terms(ttl_ms, 0, 0))
    named = dict.fromkeys(("extend", "extend_all"), script)
    return encode_round(round, Scripts(named), by_source)


def encode_acquire(key: bytes, token: bytes, ttl_ms: int) -> bytes:
    return encode(Operation.ACQUIRE, key, token, ttl_ms)


def words_of(command: bytes) -> list[bytes]:
    """Read a command as a server would; it is one."""
    (words,) = commands_in(command)
    return words


# ---- binary safe, of any length


@thorough
@given(st.binary(max_size=1500), st.binary(max_size=1500), st.integers(0, 2**63 - 1))
def test_acquire_is_read_by_a_server_as_it_was_meant(
    key: bytes, token: bytes, ttl_ms: int
) -> None:
    expiry = [b"PX", b"%d" % ttl_ms] if ttl_ms else []  # 0: a key that stays
    meant = [b"SET", key, token, b"NX", *expiry]
    assert words_of(encode_acquire(key, token, ttl_ms)) == meant


@thorough
@given(
    st.binary(max_size=1500),
    st.lists(st.binary(max_size=700), min_size=1, max_size=12),
    st.binary(max_size=1500),
    st.booleans(),
    st.integers(0, 2**63 - 1),
)
def test_script_is_read_by_a_server_as_it_was_meant(
    source: bytes, keys: list[bytes], token: bytes, by_source: bool, ttl_ms: int
) -> None:
    head = [b"EVAL", source] if by_source else [b"EVALSHA", SHA1]
    ttl = [b"%d" % ttl_ms] if ttl_ms else []
    script = Script(source, SHA1)
    both: list[bytes | tuple[bytes, ...]] = [tuple(keys)]
    for asked in both + keys * (len(keys) == 1):
        command = encode(Operation.EXTEND, asked, token, ttl_ms, script, by_source)
        assert words_of(command) == [*head, b"%d" % len(keys), *keys, token, *ttl]


# ---- the scripts themselves


@pytest.mark.parametrize("name", KNOWN_SHA1)
def test_script_is_letter_by_letter_that_of_earlier_releases(name: str) -> None:
    """A server that has it loaded needs no other copy, nor has it a second one."""
    known = KNOWN_SHA1[name]
    assert getattr(scripts, f"{name}_SHA1") == known
    assert sha1(getattr(scripts, name)).hexdigest().encode() == known


def test_every_script_has_a_known_sha1() -> None:
    named = [scripts.scripts_of(file) for file in ("locks", "queue", "fences")]
    found = {script.sha1 for each in named for script in each.values()}
    assert found == set(KNOWN_SHA1.values()) - {scripts.NOTIFY_NEXT_SHA1}


def test_scripts_are_read_with_their_module_and_never_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: no first client where no descriptor was free, nor after a chroot."""
    monkeypatch.setattr(scripts, "FOLDER", "/there is no such folder")
    for cached in (scripts._functions, scripts.source_of, scripts.scripts_of):
        cached.cache_clear()
    assert scripts.scripts_of("queue")


def test_scripts_of_many_prefixes_are_not_all_kept() -> None:
    """Seen: 22 KB of each, in a program that has a prefix for each tenant."""
    for i in range(100):
        scripts.scripts_of("locks", b"tenant%d:" % i)
    assert scripts.scripts_of.cache_info().currsize < 50


ACQUIRE, EXTEND = Operation.ACQUIRE, Operation.EXTEND
ASK_TURN, LEAVE_QUEUE = Operation.ASK_TURN, Operation.LEAVE_QUEUE
PING, BREAK = Operation.PING, Operation.BREAK
RELEASE, INSPECT = Operation.RELEASE, Operation.INSPECT
EACH = list(Operation)


def reply_of(wire: bytes) -> object:
    """Parse one reply as the core does."""
    reader = hiredis.Reader(notEnoughData=...)
    reader.feed(wire)
    reply: object = reader.gets()
    assert reply is not ...
    return reply


# ---- the table


OF_ALL, AT_GATE = {"is_of_all": True}, {"is_at_gate": True}


@pytest.mark.parametrize(
    ("operation", "wire", "vote"),
    [
        (ACQUIRE, b"+OK\r\n", Vote.GRANTED),
        (ACQUIRE, b"$-1\r\n", Vote.TAKEN),  # RESP2
        (ACQUIRE, b"_\r\n", Vote.TAKEN),  # RESP3
        (EXTEND, b":1\r\n", Vote.GRANTED),
        (EXTEND, b":0\r\n", Vote.TAKEN),
        (EXTEND, b":2\r\n", Vote.GONE),  # counts as taken
        (RELEASE, b":1\r\n", Vote.GRANTED),
        (RELEASE, b":0\r\n", Vote.TAKEN),
        (RELEASE, WRONG_TYPE, Vote.TAKEN),
        (EXTEND, WRONG_TYPE, Vote.TAKEN),
        (EXTEND, b"-ERR Error running script: @a: 1: " + WRONG_TYPE[1:], Vote.TAKEN),
        (INSPECT, b"*1\r\n:-1\r\n", Vote.GRANTED),
        (INSPECT, b"*2\r\n" + ROW + b":4\r\n", Vote.TAKEN),
        (INSPECT, b"*2\r\n*2\r\n$0\r\n\r\n:-1\r\n:0\r\n", Vote.TAKEN),
        (INSPECT, b"*3\r\n" + ROW + ROW + b":4\r\n", Vote.TAKEN),
    ],
)
def test_reply_in_the_table_is_its_vote(
    operation: Operation, wire: bytes, vote: Vote
) -> None:
    assert vote_of_reply(operation, reply_of(wire)) == (vote, None)


@pytest.mark.parametrize(
    ("how", "operation", "wire", "vote"),
    [
        # Of several keys the acquire is a script, too.
        *(
            (OF_ALL, each, b":1\r\n", Vote.GRANTED)
            for each in (ACQUIRE, EXTEND, RELEASE)
        ),
        *((OF_ALL, each, b":0\r\n", Vote.TAKEN) for each in (ACQUIRE, EXTEND, RELEASE)),
        *(
            (OF_ALL, ACQUIRE, b"%b\r\n" % other, Vote.FAILED)
            for other in (b"+OK", b"$-1", b"_", b":2", b":-1", b"#t", b",1")
        ),
        (AT_GATE, ACQUIRE, b":0\r\n", Vote.TAKEN),  # the key exists
        (AT_GATE, ACQUIRE, b":1\r\n", Vote.GRANTED),
        (AT_GATE, ACQUIRE, b":2\r\n", Vote.TAKEN),  # somebody waits longer
        (AT_GATE, ACQUIRE, b":3\r\n", Vote.GRANTED),  # and our next caller is next
        (AT_GATE, ACQUIRE, b":4\r\n", Vote.TAKEN),  # and the queue has moved
        (AT_GATE, ACQUIRE, b":5\r\n", Vote.GRANTED),  # as well
        (AT_GATE, ACQUIRE, b":6\r\n", Vote.FAILED),
        (AT_GATE, ACQUIRE, b"+OK\r\n", Vote.FAILED),
        (AT_GATE, RELEASE, b":0\r\n", Vote.TAKEN),
        (AT_GATE, RELEASE, b":1\r\n", Vote.GRANTED),
        (AT_GATE, RELEASE, b":2\r\n", Vote.GRANTED),  # and somebody was told
        (AT_GATE, RELEASE, b":3\r\n", Vote.TAKEN),  # and somebody was told
        (AT_GATE, RELEASE, b":4\r\n", Vote.TAKEN),  # and the queue has moved
        (AT_GATE, RELEASE, b":5\r\n", Vote.GRANTED),  # as well
        (AT_GATE, RELEASE, b":6\r\n", Vote.FAILED),
    ],
)
def test_reply_of_a_script_of_all_or_of_a_gate_is_a_vote_by_its_own_table(
    how: dict[str, bool], operation: Operation, wire: bytes, vote: Vote
) -> None:
    found, text = vote_of_reply(operation, reply_of(wire), **how)
    assert (found, text is None) == (vote, vote is not Vote.FAILED)


# ---- errors


@thorough
@given(
    st.sampled_from(EACH),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])),
    st.booleans(),
)
@example(ACQUIRE, "OK", False)
@example(EXTEND, "1", True)
@example(ACQUIRE, "x" * 500, False)
@example(ACQUIRE, "WRONGTYPE", True)  # of the number's key
@example(RELEASE, "NOPERM WRONGTYPE", False)
def test_error_reply_of_any_text_is_never_a_grant_and_never_taken(
    operation: Operation, text: str, is_of_all: bool
) -> None:
    is_of_all &= operation in (ACQUIRE, EXTEND, RELEASE)
    for reply in (ReplyError(text), reply_of(b"-%b\r\n" % text.encode())):
        vote = vote_of_reply(operation, reply, is_of_all)
        assert vote == (Vote.FAILED, text[:200])


# A server without SET (rename-command SET "") quotes the arguments, and with them
# the token: "ERR unknown command `SET`, with args beginning with: `r`, `<token>`, ...".
# Seen with redis 6.2.14. docs/design.md: tokens are in no message.
def test_error_reply_that_quotes_our_arguments_does_not_show_the_token() -> None:
    token = "3f2a9c0b7d1e4f5a6b8c"
    quoted = f"ERR unknown command `SET`, with args beginning with: `r`, `{token}`, "
    assert token[:8] not in (vote_of_reply(ACQUIRE, ReplyError(quoted))[1] or "")


# ---- everything else


@pytest.mark.parametrize(
    "wire",
    [
        *(b"#t\r\n", b"#f\r\n", b",1\r\n", b",0\r\n", b",1.5\r\n", b"(1\r\n"),
        *(b":3\r\n", b":-1\r\n", b"$1\r\n1\r\n", b"$1\r\n0\r\n", b"+ok\r\n"),
        *(b"+QUEUED\r\n", b"$3\r\nOK \r\n", b"*0\r\n", b"*1\r\n+OK\r\n"),
        *(b"*1\r\n#t\r\n", b"*1\r\n$-1\r\n", b"*2\r\n:1\r\n:1\r\n"),
        b"*2\r\n$-1\r\n$1\r\nx\r\n",  # a nil alone does not make [nil, ms]
        *(b"*2\r\n-ERR no\r\n:1\r\n", b"*4\r\n$-1\r\n:1\r\n:1\r\n:1\r\n"),
        *(b"*2\r\n$1\r\na\r\n#t\r\n", b"*2\r\n$1\r\na\r\n$1\r\n1\r\n"),
        *(b"*2\r\n*1\r\n$1\r\na\r\n:1\r\n", b"~2\r\n:0\r\n:1\r\n"),
        *(b"*2\r\n" + ROW + b"#t\r\n", b"*2\r\n" + ROW + ROW),
        *(b"*2\r\n*2\r\n:1\r\n:1\r\n:1\r\n", b"*2\r\n$1\r\na\r\n:250\r\n"),
        *(b"*2\r\n*2\r\n$1\r\na\r\n#t\r\n:1\r\n", b"*3\r\n" + ROW + b":1\r\n:1\r\n"),
        b"%1\r\n:0\r\n:1\r\n",
    ],
)
@pytest.mark.parametrize("operation", EACH)
def test_reply_that_is_not_in_the_table_is_a_failed_vote(
    operation: Operation, wire: bytes
) -> None:
    reply = reply_of(wire)
    vote = vote_of_reply(operation, reply)
    assert vote == (Vote.FAILED, f"unexpected reply of type {type(reply).__name__}")


@pytest.mark.parametrize("operation", EACH)
def test_answer_to_another_operation_is_a_failed_vote(operation: Operation) -> None:
    answers = {
        b"+OK\r\n": {ACQUIRE, PING},
        b"$-1\r\n": {ACQUIRE, PING},
        b":1\r\n": {EXTEND, RELEASE, BREAK, LEAVE_QUEUE},
        b":0\r\n": {EXTEND, RELEASE, BREAK, LEAVE_QUEUE},
        b":2\r\n": {EXTEND},
        b"$6\r\n!1 ann\r\n": {EXTEND},
        b"*4\r\n:0\r\n:250\r\n:0\r\n:1\r\n": {ASK_TURN},
        b"*1\r\n:0\r\n": {INSPECT},
        b"*2\r\n" + ROW + b":0\r\n": {INSPECT},
    }
    for wire, operations in answers.items():
        vote, _ = vote_of_reply(operation, reply_of(wire))
        assert (vote is Vote.FAILED) == (operation not in operations)


# ---- what is shown

MARKER = "hunter2"
holders = st.sampled_from([MARKER, MARKER.encode()])
nested = st.recursive(
    holders,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.integers(), inner, min_size=1, max_size=3)
    ),
    max_leaves=5,
)


@thorough
@given(st.sampled_from(EACH), nested)
def test_text_of_an_unexpected_reply_never_shows_what_it_holds(
    operation: Operation, reply: object
) -> None:
    vote, text = vote_of_reply(operation, reply)
    assert vote is Vote.FAILED
    assert text == f"unexpected reply of type {type(reply).__name__}"
