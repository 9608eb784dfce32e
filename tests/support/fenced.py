"""An engine with fencing, driven by hand: no socket, no clock."""

from __future__ import annotations

from fastredlock._core import Engine, Operation, Round
from fastredlock._locking.driver import new_scripts
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint
from tests.support import by_hand as hand
from tests.support.by_hand import START_NS, TERMS, TIME_REPLY, S, info, mark

WALL_US = 1_800_000_000_000_000  # of the clock on the wall, at the start of a test
T0 = START_NS + S
FREE = b"*1\r\n:0\r\n"
RAISED = b":1\r\n"
KEPT_MS = 86_400_000 + 3_600_000  # of a number, beyond its ttl
TAKEN = NOT_OURS = b":0\r\n"  # by another


def number(fence: int) -> bytes:
    """Encode what the script of a master says that has this number now."""
    return b":%d\r\n" % fence


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
    hand.by_hand(engine)
    engine.wall_offset_ns = wall_us * 1000 - T0
    for i in hand.open_due(engine, True, START_NS):
        connect(engine, i, START_NS, 1 if max_ttl_ns and i == count - 1 else 99)
    inspection = engine.new_round(int(Operation.INSPECT), b"key", b"-", TERMS)
    hand.submit(engine, inspection, START_NS)
    for i in range(count):
        hand.receive(engine, i, FREE + TIME_REPLY, START_NS)
        hand.outgoing(engine, i)
    hand.finish(engine, START_NS)
    return engine


def connect(engine: Engine, master: int, now_ns: int, uptime: int = 99) -> None:
    """Open the connection of a master that is CONNECTING, and answer its handshake."""
    told = info(run_id=f"id{master}", uptime_in_seconds=uptime)
    hand.shake_hands(engine, master, now_ns, told, mark())


def begin(engine: Engine, now_ns: int = T0, *keys: bytes) -> Round:
    """Submit an acquire of one key or several; its commands stand to be read."""
    asked = keys if len(keys) > 1 else (keys[0] if keys else b"key")
    round = engine.new_round(int(Operation.ACQUIRE), asked, b"token-%d" % now_ns, TERMS)
    hand.submit(engine, round, now_ns)
    return round


def hear(engine: Engine, now_ns: int, *said: bytes) -> None:
    """Let masters 0, 1, ... say this (b"": nothing), then end the step."""
    for master, reply in enumerate(said):
        if reply:
            hand.receive(engine, master, reply, now_ns)
    hand.finish(engine, now_ns)


def is_write(words: list[bytes]) -> bool:
    return words[1] in (scripts.WRITE_FENCE, scripts.WRITE_FENCE_SHA1)
