"""An engine with fencing, driven by hand: no socket, no clock."""

from __future__ import annotations

import hiredis

from fastredlock._core import (
    Engine,
    MasterState,
    Operation,
    Round,
    by_hand_connected,
    by_hand_engine,
    by_hand_finish,
    by_hand_open_due,
    by_hand_outgoing,
    by_hand_receive,
    by_hand_submit,
)
from fastredlock._locking.driver import new_scripts
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint
from tests.support.by_hand import ALLOWED, HELLO, NO_NATIVE, TERMS, S, bulk, info, mark

LOADS = 11  # scripts of a handshake
WALL_US = 1_800_000_000_000_000  # of the clock on the wall, at the start of a test
START_NS = 1_000 * S
T0 = START_NS + S
FREE = b"*3\r\n_\r\n:-2\r\n:0\r\n"
TIME_REPLY = b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n"  # TIME rides with the first round
RAISED = b":1\r\n"
KEPT_MS = 86_400_000 + 3_600_000  # of a number, beyond its ttl
TAKEN = NOT_OURS = b":0\r\n"  # by another


def number(fence: int) -> bytes:
    """Encode what the script of a master says that has this number now."""
    return b":%d\r\n" % fence


def sent(engine: Engine, master: int = 0) -> list[list[bytes]]:
    """Return the commands that were queued for a master, without TIME."""
    reader = hiredis.Reader(notEnoughData=None)
    reader.feed(by_hand_outgoing(engine, master))
    return [words for words in iter(reader.gets, None) if words != [b"TIME"]]


def ready_engine(
    count: int = 3,
    wall_us: int = WALL_US,
    max_ttl_ns: int = 0,
    tokens_are_given: bool = False,
) -> Engine:
    """Make an engine whose masters are ready; its clock on the wall says this at T0.

    With a `max_ttl_ns` the last of them is young.
    """
    endpoints = [Endpoint("127.0.0.1", 7001 + i) for i in range(count)]
    engine = Engine(
        endpoints, new_scripts(None, True), S, (), max_ttl_ns, jitter_seed=1,
        tokens_are_given=tokens_are_given,
    )  # fmt: skip
    by_hand_engine(engine)
    engine.wall_offset_ns = wall_us * 1000 - T0
    for i in by_hand_open_due(engine, True, START_NS):
        connect(engine, i, START_NS, 1 if max_ttl_ns and i == count - 1 else 99)
    inspection = engine.new_round(int(Operation.INSPECT), b"key", b"-", TERMS)
    by_hand_submit(engine, inspection, START_NS)
    for i in range(count):
        by_hand_receive(engine, i, FREE + TIME_REPLY, START_NS)
        by_hand_outgoing(engine, i)
    by_hand_finish(engine, START_NS)
    return engine


def connect(engine: Engine, master: int, now_ns: int, uptime: int = 99) -> None:
    """Open the connection of a master that is CONNECTING, and answer its handshake."""
    by_hand_connected(engine, master, now_ns)
    by_hand_outgoing(engine, master)
    said = info(run_id=f"id{master}", uptime_in_seconds=uptime)
    loaded = bulk(b"0" * 40) * LOADS
    by_hand_receive(
        engine,
        master,
        HELLO + b"+OK\r\n" + said + NO_NATIVE + loaded + ALLOWED * 2,
        now_ns,
    )
    if engine.states[master][0] is MasterState.HANDSHAKE:
        by_hand_receive(engine, master, mark(), now_ns)


def begin(engine: Engine, now_ns: int = T0, *keys: bytes) -> Round:
    """Submit an acquire of one key or several; its commands stand to be read."""
    asked = keys if len(keys) > 1 else (keys[0] if keys else b"key")
    round = engine.new_round(int(Operation.ACQUIRE), asked, b"token-%d" % now_ns, TERMS)
    by_hand_submit(engine, round, now_ns)
    return round


def hear(engine: Engine, now_ns: int, *said: bytes) -> None:
    """Let masters 0, 1, ... say this (b"": nothing), then end the step."""
    for master, reply in enumerate(said):
        if reply:
            by_hand_receive(engine, master, reply, now_ns)
    by_hand_finish(engine, now_ns)


def is_write(words: list[bytes]) -> bool:
    """Whether a command is the second write."""
    return words[1] in (scripts.WRITE_FENCE, scripts.WRITE_FENCE_SHA1)
