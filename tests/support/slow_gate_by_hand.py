"""Several masters on paper, one of them slow, and an engine driven by hand."""

from __future__ import annotations

from hiredis import Reader

from fastredlock._core import (
    Engine,
    Permits,
    Round,
    by_hand_connected,
    by_hand_engine,
    by_hand_finish,
    by_hand_open_due,
    by_hand_outgoing,
    by_hand_receive,
    by_hand_submit,
)
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint
from tests.support.by_hand import (
    ALLOWED,
    HELLO,
    MS,
    NO_NATIVE,
    S,
    bulk,
    info,
)
from tests.support.gate_by_hand import KEY, LOADED, SCRIPTS, TIME, ByHand
from tests.support.waiters import gate_of

COUNT = 3
GATE = gate_of(COUNT, KEY)
NEXT, LAST = (GATE + 1) % COUNT, (GATE + 2) % COUNT
ASK, TAKE, TELL = (
    scripts.ASK_TURN_SHA1, scripts.TAKE_TURN_SHA1, scripts.RELEASE_AND_NOTIFY_SHA1,
)  # fmt: skip
HELD = b"*4\r\n:0\r\n:5000\r\n:0\r\n:1\r\n"
Words = list[bytes]


def moved(left_ms: int = 10_000) -> bytes:
    """Encode the answer of a gate whose queue is at the next master."""
    return b"*4\r\n:4\r\n:%d\r\n:0\r\n:0\r\n" % left_ms


def subscribed(channel: bytes) -> bytes:
    """Encode the push that answers SUBSCRIBE."""
    return b">3\r\n" + bulk(b"subscribe") + bulk(channel) + b":1\r\n"


class Gates(ByHand):
    """Three masters; their time, and what they answer, is the test's."""

    def __init__(
        self, tokens_are_given: bool = False, native: bytes = NO_NATIVE
    ) -> None:
        endpoints = [Endpoint("127.0.0.1", 7001 + i) for i in range(COUNT)]
        super().__init__(
            Engine(
                *(endpoints, SCRIPTS, S, ()),
                jitter_seed=1,
                tokens_are_given=tokens_are_given,
            )
        )
        by_hand_engine(self.engine)
        by_hand_open_due(self.engine, True, self.now_ns)
        loaded = bulk(b"0" * 40) * LOADED
        for i in range(COUNT):
            by_hand_connected(self.engine, i, self.now_ns)
            self.say(i, HELLO)
            self.say(i, b"+OK\r\n" + info(run_id=f"{i}") + native + loaded)
            self.say(i, ALLOWED * 2)
            self.hear(i)
        self.take()  # asks for the time, for a while

    def say(self, master: int, data: bytes) -> None:
        """Answer, or push."""
        by_hand_receive(self.engine, master, data, self.now_ns)
        by_hand_finish(self.engine, self.now_ns)

    def hear(self, master: int) -> list[Words]:
        """Return the commands that a master was sent since it heard last."""
        reader = Reader()
        reader.feed(by_hand_outgoing(self.engine, master))
        heard = []
        while isinstance(words := reader.gets(), list):
            heard.append(words)
        return heard

    def heard(self, master: int, sha1: bytes) -> list[Words]:
        """Return the arguments of one script; answer SUBSCRIBE."""
        commands = self.hear(master)
        for words in commands:
            if words[0] == b"SUBSCRIBE":
                self.say(master, subscribed(words[1]))
        return [words[3:] for words in commands if words[1:2] == [sha1]]

    def take(self, late_ns: int = 0, *, is_looked_for: bool = True) -> Round:
        """Take the lock; the gate answers later than the others by so much."""
        round = self.new_round()
        by_hand_submit(self.engine, round, self.now_ns)
        for each in (NEXT, LAST):
            self.answer(each)
        if is_looked_for:
            self.pass_time(late_ns)
        else:
            self.now_ns += late_ns
        self.answer(GATE)
        return round

    def answer(
        self, master: int, to_set: bytes = b"+OK\r\n", to_ask: bytes = HELD
    ) -> None:
        """Answer all that a master was sent: to questions, that the lock is held."""
        replies = {b"SET": to_set, b"TIME": TIME}
        for words in self.hear(master):
            if words[0] == b"SUBSCRIBE":
                replies[b"SUBSCRIBE"] = subscribed(words[1])
            other = b":0\r\n"
            if words[1:2] == [ASK]:
                count = int(words[2])
                other = b"*%d\r\n" % (4 * count) + to_ask[4:] * count
            self.say(master, replies.get(words[0], other))

    def answer_all(self, to_set: bytes = b"+OK\r\n") -> None:
        """Answer all that the masters were sent, SUBSCRIBE too."""
        for each in range(COUNT):
            self.answer(each, to_set)

    def be_slow(self) -> None:
        """Let the gate answer 5 ms late for as long as it takes to be noticed."""
        for _ in range(20):
            self.take(5 * MS)
            self.pass_time(60 * MS)

    def wait(self, key: bytes | Permits = KEY) -> Round:
        """Start a caller that waits."""
        round = self.new_round(key)
        round.wait_in_turn(self.now_ns)
        by_hand_submit(self.engine, round, self.now_ns)
        return round
