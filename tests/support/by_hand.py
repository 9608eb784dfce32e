"""The engine driven by hand: bytes and `now_ns` in, no socket and no clock."""

from __future__ import annotations

from collections.abc import Sequence

from fastredlock._core import (
    Engine,
    Operation,
    Round,
    Script,
    Scripts,
    Terms,
    Vote,
    by_hand_connected,
    by_hand_open_due,
    by_hand_outgoing,
    by_hand_receive,
    by_hand_start,
    by_hand_submit,
)
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint

MS = 1_000_000
S = 1_000_000_000
START_NS = 1_000 * S
SCRIPTS = Scripts(
    {name: Script(*text) for name, text in scripts.OF_LOCKS.items()},
    releases_natively=True,
)
TERMS = Terms(ttl_ms=10_000, drift_ns=102 * MS, timeout_ns=500 * MS)
HELLO = b"%1\r\n+server\r\n+redis\r\n"
NO_NATIVE = b"*2\r\n_\r\n_\r\n"  # to COMMAND INFO
ALLOWED = b"*0\r\n"  # what the probe says where nothing is forbidden


def new_engine(count: int = 1, max_ttl_ns: int = 0) -> Engine:
    """Make an engine of `count` masters that exist on paper alone."""
    endpoints = [Endpoint("127.0.0.1", 7001 + i) for i in range(count)]
    return Engine(endpoints, SCRIPTS, S, (), max_ttl_ns, jitter_seed=1)


def info(**said: object) -> bytes:
    """Encode the reply to INFO; every server of a test has its own run_id."""
    lines = "".join(f"{name}:{value}\r\n" for name, value in said.items())
    return bulk(lines.encode())


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def handshake_replies(info_reply: bytes, native: bytes = NO_NATIVE) -> bytes:
    """Encode what a server answers to a whole handshake."""
    loaded = bulk(b"0" * 40) * 6
    return HELLO + b"+OK\r\n" + info_reply + native + loaded + ALLOWED * 2


def mark(left_ms: int = -2, holder: bytes = b"x") -> bytes:
    """Encode what a server answers to the marker script; by default: all is well."""
    return b"*2\r\n:%d\r\n" % left_ms + bulk(holder)


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
    for i in by_hand_open_due(engine, True, now_ns):
        by_hand_connected(engine, i, now_ns)
        by_hand_outgoing(engine, i)
        told = native[i] if native else NO_NATIVE
        by_hand_receive(engine, i, handshake_replies(infos[i], told), now_ns)
        if scripts.MARKER in by_hand_outgoing(engine, i):
            by_hand_receive(engine, i, marked, now_ns)
        by_hand_outgoing(engine, i)
    return engine


def begin(
    engine: Engine, now_ns: int, operation: Operation = Operation.ACQUIRE
) -> Round:
    """Start a round; its commands stand in the outgoing buffers."""
    round = engine.new_round(int(operation), b"key", b"token-%d" % now_ns, TERMS)
    by_hand_start(engine, round, now_ns)
    return round


def release_adopted(engine: Engine, now_ns: int) -> Round:
    """Release what another process took; the engine finishes it once it is closed."""
    lease = engine.new_adopted(b"key", b"token-%d" % now_ns, TERMS)
    release = engine.new_release(lease, TERMS)
    by_hand_submit(engine, release, now_ns)
    return release


def begin_all(
    engine: Engine, now_ns: int, operation: Operation = Operation.ACQUIRE
) -> Round:
    """Start a round of two keys."""
    token = b"token-%d" % now_ns
    round = engine.new_round(int(operation), (b"a", b"b"), token, TERMS)
    by_hand_start(engine, round, now_ns)
    return round


def said_of(round: Round, master: int = 0) -> tuple[Vote, str | None]:
    """Return one master's vote and what it says about it."""
    vote, text, _ = round.votes()[master]
    return vote, text
