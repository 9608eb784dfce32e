"""The model server against a real one, byte by byte, in what we send."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

from fastredlock._options import scripts
from fastredlock._options.fence_scripts import FENCED

from .judge import Judge
from .scenarios import Stage
from .server import Server
from .world import EPOCH_NS, Clock, S, World

KEY, OTHER, OURS, THEIRS = b"sim:model", b"sim:other", b"ours", b"theirs"
SET = (b"SET", KEY, OURS, b"NX", b"PX", b"60000")
UNKNOWN = (b"EVALSHA", b"0" * 40, b"1", KEY, OURS)


def script(sha1: bytes, token: bytes, *ttl: bytes) -> tuple[bytes, ...]:
    return (b"EVALSHA", sha1, b"1", KEY, token, *ttl)


def of_all(sha1: bytes, token: bytes, *ttl: bytes) -> tuple[bytes, ...]:
    return (b"EVALSHA", sha1, b"2", KEY, OTHER, token, *ttl)


MARKER, QUARANTINE = b"sim:voter", b"sim:quarantine"


def mark(name: bytes, ms: bytes) -> tuple[bytes, ...]:
    return (b"EVAL", scripts.MARKER, b"2", MARKER, QUARANTINE, name, ms, b"exact")


LIFE = b"90060000"
NUMBER = b"fastredlock:fence:" + KEY


def fenced(name: str, *arguments: bytes) -> tuple[bytes, ...]:
    return (b"EVAL", FENCED[name][0], b"1", KEY, *arguments)


SCRIPTS_OF_ALL = (scripts.ACQUIRE_ALL, scripts.EXTEND_ALL, scripts.RELEASE_ALL)
COMMANDS = (
    *(UNKNOWN, SET, SET, (b"SET", KEY, THEIRS, b"NX", b"PX", b"60000")),
    *((b"SCRIPT", b"LOAD", text) for text in (scripts.EXTEND, scripts.INSPECT)),
    (b"EVAL", scripts.RELEASE, b"1", KEY, THEIRS),
    script(scripts.EXTEND_SHA1, THEIRS, b"5000"),
    script(scripts.EXTEND_SHA1, OURS, b"5000"),
    script(scripts.RELEASE_SHA1, THEIRS),
    script(scripts.RELEASE_SHA1, OURS),
    script(scripts.RELEASE_SHA1, OURS),
    script(scripts.EXTEND_SHA1, OURS, b"5000"),
    script(scripts.INSPECT_SHA1, b"-"),
    *((b"SCRIPT", b"LOAD", text) for text in SCRIPTS_OF_ALL),
    of_all(scripts.RELEASE_ALL_SHA1, OURS),
    of_all(scripts.ACQUIRE_ALL_SHA1, OURS, b"60000"),
    of_all(scripts.ACQUIRE_ALL_SHA1, OURS, b"60000"),
    of_all(scripts.EXTEND_ALL_SHA1, THEIRS, b"5000"),
    of_all(scripts.EXTEND_ALL_SHA1, OURS, b"5000"),
    of_all(scripts.RELEASE_ALL_SHA1, THEIRS),
    script(scripts.RELEASE_SHA1, OURS),
    of_all(scripts.ACQUIRE_ALL_SHA1, THEIRS, b"60000"),
    of_all(scripts.EXTEND_ALL_SHA1, OURS, b"5000"),
    of_all(scripts.RELEASE_ALL_SHA1, OURS),
    script(scripts.INSPECT_SHA1, b"-"),
    of_all(scripts.ACQUIRE_ALL_SHA1, THEIRS, b"60000"),
    of_all(scripts.RELEASE_ALL_SHA1, THEIRS),
    (b"SELECT", b"0"),
    (b"CLIENT", b"SETNAME", b"model"),
    (b"EVAL", scripts.PROBE, b"0"),
    (b"EVALSHA", scripts.PROBE_SHA1, b"0"),
    (b"EVAL", FENCED["probe"][0], b"0"),
    mark(b"a", b"6000000"),
    mark(b"a", b"9000000"),
    mark(b"a", b"3000000"),
    mark(b"b", b"2000000"),
    mark(b"b", b"9600000"),
    fenced("acquire_all", OURS, b"60000", b"1000", LIFE),
    fenced("acquire_all", OURS, b"60000", b"2000", LIFE),
    fenced("acquire_again", THEIRS, b"60000", b"2000", LIFE),
    fenced("acquire_again", OURS, b"60000", b"900", LIFE),
    fenced("write_fence", THEIRS, b"5000", LIFE),
    fenced("write_fence", OURS, b"5000", LIFE),
    fenced("write_fence", OURS, b"4000", LIFE),
    fenced("take_turn", THEIRS, b"60000", b"p", b"0", b"-1", b"9000", LIFE),
    script(scripts.RELEASE_SHA1, OURS),
    fenced("acquire_all", OURS, b"60000", b"1000", LIFE),
    script(scripts.RELEASE_SHA1, OURS),
    fenced("take_turn", OURS, b"60000", b"p", b"0", b"-1", b"9000", LIFE),
    fenced("write_fence", OURS, b"9500", LIFE),
    script(scripts.RELEASE_SHA1, OURS),
    fenced("take_turn", OURS, b"60000", b"p", b"0", b"5", b"1000", LIFE),
    (b"EVAL", scripts.RELEASE, b"1", KEY, OURS),
    (b"EVAL", FENCED["acquire_all"][0], b"2", KEY, OTHER, OURS, b"60000", b"7", LIFE),
    *((b"ZADD", NUMBER, b"GT", b"CH", n, b"f") for n in (b"9999", b"99999", b"99999")),
    fenced("next_fence", THEIRS, b"1", LIFE),
    fenced("next_fence", OURS, b"1", LIFE),
    fenced("next_fence", OURS, b"1000000", LIFE),
    (b"PEXPIRE", NUMBER, LIFE),
    (b"PEXPIRE", b"sim:nothing", LIFE),
    (b"ZADD", b"sim:number", b"GT", b"CH", b"7", b"f"),
)


def rounded_up(found: re.Match[bytes]) -> bytes:
    """Return the time left in whole minutes."""
    return found[1] + b"%d" % (-(-int(found[2]) // 60_000) * 60_000)


def encoded(words: tuple[bytes, ...]) -> bytes:
    bulks = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    return b"*%d\r\n" % len(words) + bulks


def test_model_server_when_asked_what_we_ask_then_answers_as_a_real_one(
    urls: list[str],
) -> None:
    world = World(1)
    model = Server(world, 0, Clock(EPOCH_NS, 0), Judge(world))
    where = urlsplit(urls[0])
    with socket.create_connection((where.hostname, where.port), 5) as real:
        for words in COMMANDS:
            real.sendall(encoded(words))
            said = real.recv(65536)
            if words[1:2] == (scripts.MARKER,):  # the real server's time goes on
                said = re.sub(rb"^(\*2\r\n:)(\d+)", rounded_up, said)
            assert comparable(model.execute(list(words))) == comparable(said), words


def comparable(reply: bytes) -> bytes:
    """Keep of an error its code: Redis and Valkey word the rest differently."""
    return reply.split()[0] if reply.startswith(b"-") else reply


def test_server_when_it_comes_back_then_gets_nothing_of_an_old_connection() -> None:
    # Issue 11, F: seeds 5854, 6268 and 112764 fed the rest of a command to the parser.
    stage = Stage(1)
    a = stage.process()
    stage.take(a, "A")
    connection = a.process.connections[0]
    assert connection is not None
    connection.path.is_slicing = True
    connection.send(encoded((b"TIME",)))
    connection.cut(1 << 20, 0)  # reset, but all that is under way still arrives
    answered = connection.answered
    stage.restart(0)
    stage.world.run(stage.world.now_ns + S)
    assert connection.answered == answered
