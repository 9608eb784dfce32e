"""The master in memory against a real one, over random sequences of what we send."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import redis

from fastredlock._options import fence_scripts, scripts
from fastredlock.testing._server import Server, digest_of, without_prefix

KEYS = [b"memory:a", b"memory:b"]
TOKENS = [b"ours", b"theirs"]
NAME = b"fastredlock:fence:"
PROCESSES = [b"p1", b"p2", b"p3"]
Words = tuple[bytes, ...]


QUEUE = b"fastredlock:queue:"
QUESTIONS = [b"0", b"1", b"3"] * 4 + [b"4"]  # the last one marks the queue as moved


def commands(draw: random.Random) -> Words:
    """Return one command of those that a client sends."""
    key, token = draw.choice(KEYS), draw.choice(TOKENS)
    process, both = draw.choice(PROCESSES), tuple(KEYS)
    number = (draw.choice([b"5", b"50", b"150"]), b"90000000")
    waited = b"%d" % draw.randrange(0, 5_000_000, 1_000_000)
    taken = (key, token, b"60000", process, waited, draw.choice([b"-1", b"7000000"]))
    return draw.choice(
        [
            (b"SET", key, token, b"NX", b"PX", b"60000"),
            (b"SET", key, token, b"NX"),
            (b"DEL", key),
            (b"DEL", QUEUE + key),
            script(scripts.EXTEND, (key,), token, b"50000"),
            script(scripts.RELEASE, (key,), token),
            script(scripts.INSPECT, (key,), b"-"),
            script(scripts.ACQUIRE_ALL, both, token, b"60000"),
            script(scripts.ACQUIRE_AGAIN, both, token, b"60000"),
            script(scripts.ACQUIRE_AGAIN, (key,), token),
            script(scripts.EXTEND_ALL, both, token, b"50000"),
            script(scripts.RELEASE_ALL, both, token),
            script(scripts.ASK_TURN, (key,), process, waited, draw.choice(QUESTIONS)),
            script(
                scripts.ASK_TURN, both, process, *(waited, draw.choice(QUESTIONS)) * 2
            ),
            script(scripts.TAKE_TURN, taken[:1], *taken[1:]),
            script(scripts.RELEASE_AND_TELL, (key,), token),
            script(scripts.RELEASE_AND_TELL, (key,), token, process),
            script(scripts.LEAVE_QUEUE, (key,), process),
            script(scripts.PROBE, ()),
            script(fence_scripts.PROBE, ()),
            script(fence_scripts.ACQUIRE_ALL, (key,), token, b"60000", *number),
            script(fence_scripts.ACQUIRE_ALL, both, token, b"60000", *number),
            script(fence_scripts.ACQUIRE_ALL, (key,), token, b"0", *number),
            script(fence_scripts.ACQUIRE_AGAIN, (key,), token, b"60000", *number),
            script(fence_scripts.TAKE_TURN, taken[:1], *taken[1:], *number),
            script(fence_scripts.WRITE_FENCE, (key,), token, b"300", number[1]),
            script(fence_scripts.NEXT_FENCE, (key,), token, *number),
            (b"ZADD", NAME + key, b"GT", b"CH", number[0], b"f"),
            (b"PEXPIRE", NAME + key, number[1]),
        ]
    )


def script(source: bytes, keys: Words, *arguments: bytes) -> Words:
    return (b"EVAL", source, b"%d" % len(keys), *keys, *arguments)


class Memory:
    """A master in memory with the test's own DEL, and nobody who listens."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000_000_000_000
        self._server = Server(0, lambda: self.now_ns)

    def execute(self, words: Words) -> bytes:
        self.now_ns += 2000
        if words[0] == b"DEL":
            was = self._server.token_at(words[1]) is not None
            self._server.keys.pop(words[1], None)
            if words[1].startswith(QUEUE):
                queues = self._server.queue._tickets
                was = bool(queues.pop(words[1].removeprefix(QUEUE), None))
            return b":%d" % was
        return self._server.execute(list(words)).strip()


def rounded(reply: Any) -> Any:
    """Return a reply whose times left (ms) are in whole minutes."""
    if isinstance(reply, list):
        return [rounded(each) for each in reply]
    if isinstance(reply, int) and reply > 1000:
        return -(-reply // 60_000)
    return reply


def parsed(reply: bytes) -> Any:
    import hiredis

    reader = hiredis.Reader()
    reader.feed(reply + b"\r\n")
    return reader.gets()


@pytest.mark.parametrize("seed", range(4))
def test_master_in_memory_when_asked_what_we_ask_then_answers_as_a_real_one(
    seed: int, servers: list[redis.Redis]
) -> None:
    draw, memory, real = random.Random(seed), Memory(), servers[0]
    for number in range(400):
        words = commands(draw)
        answer = rounded(real.execute_command(*words))
        if words[0] == b"PEXPIRE":  # a bool, by redis-py
            answer = int(answer)
        told = rounded(parsed(memory.execute(words)))
        assert told == (b"OK" if answer is True else answer), (seed, number, words)


def test_script_when_its_names_have_a_prefix_then_is_known() -> None:
    quoted = b"".join(b"\\%03d" % byte for byte in b'a"b:')
    for source in (scripts.ASK_TURN, scripts.RELEASE_ALL, scripts.INSPECT):
        named = source.replace(b'"fastredlock:', b'"' + quoted + b"fastredlock:")
        assert without_prefix(named) == (digest_of(source), b'a"b:')
    assert without_prefix(scripts.RELEASE) == (scripts.RELEASE_SHA1, b"")


def test_master_in_memory_when_a_script_is_unknown_then_says_so() -> None:
    memory = Memory()
    assert memory.execute((b"EVALSHA", b"0" * 40, b"0")).startswith(b"-NOSCRIPT")
    assert re.match(rb"-ERR.*alone", memory.execute((b"EVAL", b"return 1 + 1", b"0")))
    assert memory.execute((b"GET", b"k")).startswith(b"-ERR unknown command")
