"""The engine driven by hand: bytes and `now_ns` in, no socket and no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from hiredis import Reader

from fastredlock._core import (
    Engine,
    MasterState,
    Operation,
    Round,
    Scripts,
    Terms,
    Vote,
)
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint
from tests.support import core

# What is done to an engine: `hand.lost(engine, 0, "cut", now_ns)`.
outgoing = core.by_hand_outgoing
start, submit = core.by_hand_start, core.by_hand_submit
hand_on = core.by_hand_hand_on
conclude, withdraw = core.by_hand_conclude, core.by_hand_withdraw
returned = core.by_hand_return
begin_close, awaits_replies = core.by_hand_begin_close, core.by_hand_awaits_replies
take_events = core.by_hand_take_events

MS = 1_000_000
S = 1_000_000_000
START_NS = 1_000 * S
SCRIPTS = Scripts(scripts.scripts_of("locks"), releases_natively=True)
TERMS = Terms(ttl_ms=10_000, drift_ns=102 * MS, timeout_ns=500 * MS)
HELLO = b"%1\r\n+server\r\n+redis\r\n"
NO_NATIVE = b"*2\r\n_\r\n_\r\n"  # to COMMAND INFO
TIME_REPLY = b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n"  # TIME rides with the first round
ALLOWED = b"*0\r\n"  # what the probe says where nothing is forbidden


OPENED: WeakKeyDictionary[Engine, list[int]] = WeakKeyDictionary()


def by_hand(engine: Engine) -> list[int]:
    """Let the engine open no sockets; return the masters that it wants to connect."""
    OPENED[engine] = core.by_hand_engine(engine)
    return OPENED[engine]


def open_due(engine: Engine, is_urgent: bool, now_ns: int) -> list[int]:
    """Let every master connect whose time has come; list those that do."""
    due = core.by_hand_open_due(engine, is_urgent, now_ns)
    wanted = OPENED.get(engine, [])
    due, wanted[:] = sorted({*wanted, *due}), []
    return due


def connected(engine: Engine, index: int, now_ns: int) -> None:
    take_events(engine, [(index, True, b"", "")], 0, now_ns)


def receive(engine: Engine, index: int, data: bytes, now_ns: int) -> None:
    take_events(engine, [(index, False, data, "")], 0, now_ns)


def lost(engine: Engine, index: int, reason: str, now_ns: int) -> None:
    take_events(engine, [(index, False, b"", reason)], 0, now_ns)


def finish(engine: Engine, now_ns: int) -> None:
    """Open rounds whose wait is over, finish those that are closed."""
    take_events(engine, [], 0, now_ns)


def pass_time(engine: Engine, now_ns: int, quiet: int = (1 << 64) - 1) -> None:
    """Do all that is due: no master has an event, or those alone that are not quiet."""
    take_events(engine, [], quiet, now_ns)


def new_engine(
    count: int = 1,
    max_ttl_ns: int = 0,
    tokens_are_given: bool = False,
    jitter_seed: int = 1,
) -> Engine:
    """Make an engine of `count` masters that exist on paper alone."""
    endpoints = [Endpoint("127.0.0.1", 7001 + i) for i in range(count)]
    given = endpoints, SCRIPTS, S, (), max_ttl_ns
    more = {"jitter_seed": jitter_seed, "tokens_are_given": tokens_are_given}
    engine = Engine(*given, **more)  # type: ignore[arg-type]
    by_hand(engine)
    return engine


def info(**said: object) -> bytes:
    """Encode the reply to INFO; every server of a test has its own run_id."""
    lines = "".join(f"{name}:{value}\r\n" for name, value in said.items())
    return bulk(lines.encode())


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def handshake_replies(
    info_reply: bytes,
    native: bytes = NO_NATIVE,
    loads: int = 6,
    probed: bytes = ALLOWED * 2,
) -> bytes:
    """Encode what a server answers to a whole handshake: it has so many scripts."""
    loaded = b"*%d\r\n" % loads + b":1\r\n" * loads
    return HELLO + b"+OK\r\n" + info_reply + native + loaded + probed


def mark(left_ms: int = -2, holder: bytes = b"x") -> bytes:
    """Encode what a server answers to the marker script; by default: all is well."""
    return b"*2\r\n:%d\r\n" % left_ms + bulk(holder)


Reply = bytes | Callable[[list[bytes]], bytes]


def settings_told(words: list[bytes]) -> bytes:
    """Encode the answer to CONFIG GET of a server without replicas."""
    if words[2] != b"repl-backlog-ttl":
        return b"%0\r\n"
    return b"%1\r\n" + bulk(words[2]) + bulk(b"3600")


def scripts_known(words: list[bytes]) -> bytes:
    """Encode the answer to SCRIPT EXISTS of a server that has all, or to LOAD."""
    if words[1] == b"LOAD":
        return bulk(b"0" * 40)
    return b"*%d\r\n" % len(words[2:]) + b":1\r\n" * len(words[2:])


ANSWERS: dict[str, Reply] = {
    **dict.fromkeys(("EVAL", "EVALSHA"), ALLOWED),  # of the probe
    **{"HELLO": HELLO, "CLIENT": b"+OK\r\n", "COMMAND": NO_NATIVE},
    **{"CONFIG": settings_told, "SCRIPT": scripts_known},
}


def shake_hands(
    engine: Engine,
    i: int,
    now_ns: int,
    told: bytes = b"",
    marked: bytes | None = None,
    answers: Mapping[str, Reply] = ANSWERS,
) -> list[list[bytes]]:
    """Take a connection that was begun, and answer its handshake; list what follows.

    `told`: to INFO; `marked`: to the marker, which follows, too, if that is None;
    `answers`: to what else is asked, by the first word of each command.
    """
    said = {**ANSWERS, "INFO": told or info(run_id=f"id{i}"), **answers}
    connected(engine, i, now_ns)
    while asked := commands_in(outgoing(engine, i)):
        replies = []
        for words in asked:
            is_call = words[2:3] > [b"0"] and words[0].startswith(b"EVAL")
            answer = None if is_call else said.get(words[0].decode())
            if scripts.MARKER in words:
                answer = marked
            if answer is None or words[1:2] == [b"KILL"]:
                return [words for words in asked if words != [b"TIME"]]
            replies.append(answer if isinstance(answer, bytes) else answer(words))
        receive(engine, i, b"".join(replies), now_ns)
    return []


def make_ready(
    engine: Engine,
    infos: Sequence[bytes],
    now_ns: int = START_NS,
    marked: bytes = mark(),
    native: Sequence[bytes] = (),
) -> Engine:
    """Connect every master that is due; each answers INFO with its entry.

    `native`: what each answers to COMMAND INFO; by default none has such commands.
    """
    for i in open_due(engine, True, now_ns):
        told = native[i] if native else NO_NATIVE
        shake_hands(engine, i, now_ns, infos[i], marked, {"COMMAND": told})
    return engine


def reconnect(
    engine: Engine,
    at_ns: int,
    answers: Mapping[str, Reply] = ANSWERS,
    client_id: int = 2,
    told: bytes = b"",
) -> list[list[bytes]]:
    """Open the connection to master 0, which began before; list what it is sent."""
    assert engine.states[0][0] is MasterState.CONNECTING
    hello = b"%%2\r\n+server\r\n+redis\r\n+id\r\n:%d\r\n" % client_id
    return shake_hands(engine, 0, at_ns, told, None, {**answers, "HELLO": hello})


def ready_engine(count: int = 1, max_ttl_ns: int = 0, jitter_seed: int = 1) -> Engine:
    told = [info(run_id=f"id{i}", uptime_in_seconds=99999) for i in range(count)]
    engine = new_engine(count, max_ttl_ns, jitter_seed=jitter_seed)
    return make_ready(engine, told)


def asked_engine(now_ns: int, tokens_are_given: bool = False) -> Engine:
    """Make an engine of three masters that are ready, and were asked for the time."""
    engine = new_engine(3, tokens_are_given=tokens_are_given)
    by_hand(engine)
    make_ready(engine, [info(run_id=f"id{i}") for i in range(3)], now_ns)
    begin(engine, now_ns)
    say(engine, b"+OK\r\n" + TIME_REPLY, now_ns)
    for i in range(3):
        outgoing(engine, i)
    return engine


def say(
    engine: Engine, reply: bytes, at_ns: int, masters: Sequence[int] = (0, 1, 2)
) -> None:
    """Let some masters say this, then finish what is closed."""
    for master in masters:
        receive(engine, master, reply, at_ns)
    finish(engine, at_ns)


def commands_in(data: bytes) -> list[list[bytes]]:
    """Read commands as a server would."""
    reader = Reader(notEnoughData=None)
    reader.feed(data)
    return list(iter(reader.gets, None))


def sent(engine: Engine, master: int = 0) -> list[list[bytes]]:
    """Take what a master is sent, command by command, without TIME."""
    commands = commands_in(outgoing(engine, master))
    return [words for words in commands if words != [b"TIME"]]


def begin(
    engine: Engine, now_ns: int, operation: Operation = Operation.ACQUIRE
) -> Round:
    """Start a round; its commands stand in the outgoing buffers."""
    round = engine.new_round(int(operation), b"key", b"token-%d" % now_ns, TERMS)
    start(engine, round, now_ns)
    return round


def release_adopted(engine: Engine, now_ns: int) -> Round:
    """Release what another process took; the engine finishes it once it is closed."""
    lease = engine.new_adopted(b"key", b"token-%d" % now_ns, TERMS)
    release = engine.new_release(lease, TERMS)
    submit(engine, release, now_ns)
    return release


def begin_all(
    engine: Engine, now_ns: int, operation: Operation = Operation.ACQUIRE
) -> Round:
    token = b"token-%d" % now_ns
    round = engine.new_round(int(operation), (b"a", b"b"), token, TERMS)
    start(engine, round, now_ns)
    return round


def said_of(round: Round, master: int = 0) -> tuple[Vote, str | None]:
    vote, text, _ = round.votes()[master]
    return vote, text
