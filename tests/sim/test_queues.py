"""The queues of the model server against those of a real one: replies, order, pushes.

Random sequences of the four scripts.
"""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from fastredlock._options import scripts

from .judge import Judge
from .queues import CHANNEL, MOVED, QUEUE, TURN, message_of
from .server import Server
from .test_model import encoded
from .world import EPOCH_NS, MS, Clock, World

KEY = b"sim:queued"
PROCESSES = tuple(b"sim:%d" % index for index in range(4))
LISTENING = PROCESSES[:3]  # the last one is gone, or never subscribed
YOUNG, OLD = b"10000", b"9000"  # ms left of a turn: by the 50 ms rule
STEPS = 250
REAL, MODEL = 0, 1


class Listener:
    """In the place of a connection: keeps what it is sent."""

    def __init__(self) -> None:
        self.pushes: list[bytes] = []

    def answer(self, question: object, reply: bytes) -> None:
        """Take a push."""
        self.pushes.append(reply)


class Pair:
    """A real server and a model, asked the same."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        where = urlsplit(url)
        address = where.hostname, where.port
        self.world = World(1)
        self.model = Server(self.world, 0, Clock(EPOCH_NS, 0), Judge(self.world))
        self.real = stack.enter_context(socket.create_connection(address, 5))
        self.listeners: list[Any] = [Listener() for _ in LISTENING]
        self.sockets = []
        for process, listener in zip(LISTENING, self.listeners, strict=True):
            self.model.queues.subscribe(listener, CHANNEL + process)
            heard = stack.enter_context(socket.create_connection(address, 5))
            heard.sendall(encoded((b"HELLO", b"3")))
            heard.recv(65536)
            heard.sendall(encoded((b"SUBSCRIBE", CHANNEL + process)))
            assert b"subscribe" in heard.recv(65536)
            self.sockets.append(heard)

    def ask_real(self, *words: bytes) -> bytes:
        self.real.sendall(encoded(words))
        return self.real.recv(65536)

    def run(self, source: bytes, *arguments: bytes) -> tuple[bytes, bytes]:
        """Run a script on both; return what they say, times in whole hours."""
        words = (b"EVAL", source, b"1", KEY, *arguments)
        self.world.now_ns += MS
        return in_hours(self.ask_real(*words)), in_hours(self.model.execute([*words]))

    def lose(self) -> None:
        """Delete the queue, on both; and with it the mark that it has moved."""
        self.ask_real(b"DEL", QUEUE + KEY)
        self.model.queues.lose(KEY)

    def set_age(self, left_ms: bytes) -> None:
        """Make the note of who was told young or old, on both."""
        self.ask_real(b"PEXPIRE", TURN + KEY, left_ms)
        self.model.queues.set_left(KEY, int(left_ms))

    def contents(self) -> tuple[bytes, bytes]:
        """Return both queues, as ZRANGE gives them, without their times."""
        names = [MOVED] * self.model.queues.is_moved(KEY)
        names += [process for process, _ in self.model.queues.content(KEY)]
        bulks = b"".join(b"$%d\r\n%b\r\n" % (len(name), name) for name in names)
        there = self.ask_real(b"ZRANGE", QUEUE + KEY, b"0", b"-1")
        return there, b"*%d\r\n" % len(names) + bulks

    def check_pushes(self) -> None:
        """Compare what every process has been told."""
        for heard, listener in zip(self.sockets, self.listeners, strict=True):
            expected, said = b"".join(listener.pushes), b""
            while len(said) < len(expected):
                said += heard.recv(65536)
            heard.setblocking(False)
            with pytest.raises(BlockingIOError):
                heard.recv(1)
            assert said == expected


def in_hours(reply: bytes) -> bytes:
    """Return a reply with the times in it in whole hours."""

    def rounded(found: re.Match[bytes]) -> bytes:
        return b"\r\n:%d\r\n" % -(-int(found[1]) // 3_600_000)

    return re.sub(rb"\r\n:(\d{4,})\r\n", rounded, reply)


def drawn(draw: random.Random) -> Iterator[tuple[bytes, ...]]:
    """Draw scripts with their arguments, without end."""
    while True:
        process, token = draw.choice(PROCESSES), draw.choice((b"t1", b"t2"))
        waited, later = (b"%d" % (10**8 * draw.randrange(9)) for _ in range(2))
        ttl = draw.choice((b"3600000", b"7200000", b"0"))
        yield draw.choice((
            (scripts.ASK_TURN, process, waited, draw.choice((b"0", b"1", b"2"))),
            (scripts.ASK_TURN, process, waited, b"3"),
            (scripts.ASK_TURN, process, waited, draw.choice((b"0", b"0", b"4"))),
            (scripts.TAKE_TURN, token, ttl, process, waited, b"-1"),
            (scripts.TAKE_TURN, token, ttl, process, waited, later),
            (scripts.RELEASE_AND_TELL, token),
            (scripts.RELEASE_AND_TELL, token, draw.choice((b"", process))),
            (scripts.RELEASE_ALL, token),
            (scripts.LEAVE_QUEUE, process),
        ))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_model_queue_when_scripts_come_in_any_order_then_is_that_of_a_real_server(
    urls: list[str], seed: int
) -> None:
    draw = random.Random(seed)
    with ExitStack() as stack:
        pair = Pair(urls[0], stack)
        for _, (source, *arguments) in zip(range(STEPS), drawn(draw), strict=False):
            pair.set_age(draw.choice((YOUNG, YOUNG, OLD)))
            if pair.model.queues.is_moved(KEY) and draw.random() < 0.2:
                pair.lose()
            real, model = pair.run(source, *arguments)
            assert real == model, (arguments, real, model)
            real, model = pair.contents()
            assert real == model, arguments
        pair.check_pushes()


def test_model_queue_when_its_key_is_of_another_type_then_says_what_a_real_one_says(
    urls: list[str],
) -> None:
    with ExitStack() as stack:
        pair = Pair(urls[0], stack)
        pair.ask_real(b"SET", QUEUE + KEY, b"of another")
        pair.model.keys[QUEUE + KEY] = (b"of another", 1 << 62)
        said = pair.run(scripts.ASK_TURN, PROCESSES[0], b"0", b"1")
        assert all(each.startswith(b"-") and b"WRONGTYPE" in each for each in said)
        for source, *arguments in (
            (scripts.TAKE_TURN, b"t1", b"3600000", PROCESSES[0], b"0", b"5"),
            (scripts.TAKE_TURN, b"t1", b"3600000", PROCESSES[0], b"0", b"-1"),
            (scripts.RELEASE_AND_TELL, b"t1"),
            (scripts.RELEASE_AND_TELL, b"t1", b""),
            (scripts.LEAVE_QUEUE, PROCESSES[0]),
        ):
            real, model = pair.run(source, *arguments)
            assert real == model, arguments


def test_model_queue_when_many_are_asked_about_then_says_what_a_real_one_says(
    urls: list[str],
) -> None:
    # One is of another type: the others are answered all the same.
    with ExitStack() as stack:
        pair = Pair(urls[0], stack)
        pair.ask_real(b"SET", QUEUE + b"other", b"of another")
        pair.model.keys[QUEUE + b"other"] = (b"of another", 1 << 62)
        told = (PROCESSES[0], b"0", b"1", b"0", b"1", b"0", b"1")
        words = (b"EVAL", scripts.ASK_TURN, b"3", KEY, b"other", b"free", *told)
        pair.world.now_ns += MS
        real, model = pair.ask_real(*words), pair.model.execute([*words])
        assert real == model
        refused, first = b":-1\r\n:-2\r\n:0\r\n:0\r\n", b":1\r\n:-2\r\n:0\r\n:1\r\n"
        assert real == b"*12\r\n" + first + refused + first


def test_message_when_encoded_then_is_what_a_real_server_pushes(
    urls: list[str],
) -> None:
    with ExitStack() as stack:
        pair = Pair(urls[0], stack)
        pair.ask_real(b"PUBLISH", CHANNEL + LISTENING[0], b"r")
        assert pair.sockets[0].recv(65536) == message_of(CHANNEL + LISTENING[0], b"r")
