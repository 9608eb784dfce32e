"""Gates on paper, and an engine whose callers wait there, driven by hand.

`Gate` is one master alone; `Gates` are three, of which the gate may be slow.
"""

from __future__ import annotations

from fastredlock._core import Engine, Operation, Permits, Round, Scripts
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint
from tests.support import by_hand as hand
from tests.support.by_hand import (
    ALLOWED,
    HELLO,
    MS,
    NO_NATIVE,
    START_NS,
    TERMS,
    S,
    bulk,
    info,
)
from tests.support.waiters import gate_of

KEY = b"key"
TIME = b"*2\r\n" + bulk(b"0") * 2
NAMED = scripts.scripts_of("locks") | scripts.scripts_of("queue")
del NAMED["marker"]
SCRIPTS = Scripts(NAMED, releases_natively=True)
LOADED = 10  # scripts, by the handshake

COUNT = 3  # masters of `Gates`
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
    return b">3\r\n" + bulk(b"subscribe") + bulk(channel) + b":1\r\n"


class ByHand:
    """An engine that is driven by hand; time goes by when a test lets it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now_ns = START_NS
        self._numbers = 0

    def pass_time(self, for_ns: int) -> None:
        self.now_ns += for_ns
        hand.pass_time(self.engine, self.now_ns)

    def new_round(self, key: bytes | Permits = KEY) -> Round:
        self._numbers += 1
        token = b"token-%d" % self._numbers
        return self.engine.new_round(int(Operation.ACQUIRE), key, token, TERMS)

    def release(self, taken: Round) -> Round:
        release = self.engine.new_release(taken, TERMS)
        hand.submit(self.engine, release, self.now_ns)
        return release


class Gate(ByHand):
    """One master, and an engine that waits there."""

    def __init__(
        self, said_to_eval: bytes = ALLOWED, native: bytes = NO_NATIVE
    ) -> None:
        super().__init__(
            Engine([Endpoint("127.0.0.1", 7001)], SCRIPTS, S, (), jitter_seed=1)
        )
        self._said = info(run_id="r"), native, LOADED, said_to_eval + ALLOWED
        hand.by_hand(self.engine)
        hand.open_due(self.engine, True, self.now_ns)
        self.connect()
        self._tell_time()

    def connect(self) -> None:
        """Take the connection that is on its way, and answer the handshake."""
        hand.connected(self.engine, 0, self.now_ns)
        self.hear()
        self.say(HELLO)
        self.hear()  # the rest of the handshake
        self.say(hand.handshake_replies(*self._said).removeprefix(HELLO))
        if self._said[3].startswith(b"-"):  # it may not EVAL: each is to be loaded
            assert b"LOAD" in self.hear()
            self.say(bulk(b"0" * 40) * LOADED)

    def _tell_time(self) -> None:
        # It is asked with the first command, and then not for long.
        round = self.engine.new_round(int(Operation.INSPECT), b"-", b"-", TERMS)
        hand.submit(self.engine, round, self.now_ns)
        assert self.hear().endswith(b"$4\r\nTIME\r\n")
        self.say(b"*1\r\n:0\r\n" + TIME)

    def cut(self) -> None:
        hand.lost(self.engine, 0, "cut", self.now_ns)

    def say(self, data: bytes) -> None:
        hand.receive(self.engine, 0, data, self.now_ns)
        hand.finish(self.engine, self.now_ns)

    def hear(self) -> bytes:
        return hand.outgoing(self.engine, 0)

    def tell(self, key: bytes = KEY) -> None:
        self.say(b">3\r\n" + bulk(b"message") + bulk(b"channel") + bulk(key))

    def answer(self, whose: int, left_ms: int, place: int, count: int = 0) -> None:
        """Answer a question: whose turn it is, its ttl, how many come before."""
        assert scripts.ASK_TURN_SHA1 in self.hear()
        self.say(b"*4\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n" % (whose, left_ms, place, count))

    def wait(
        self, for_ns: int = -1, key: bytes | Permits = KEY, is_answered: bool = True
    ) -> Round:
        round = self.new_round(key)
        until_ns = -1 if for_ns < 0 else self.now_ns + for_ns
        round.wait_in_turn(self.now_ns, until_ns=until_ns)
        round.left_ns = for_ns
        hand.submit(self.engine, round, self.now_ns)
        if is_answered:
            self.answer_questions()
        return round

    def submit(self, step: Round | float) -> Round:
        """Run a round of an attempt; answer its question, if it asks one."""
        assert isinstance(step, Round)
        hand.submit(self.engine, step, self.now_ns)
        self.answer_questions()
        return step

    def answer_questions(self, place: int = 0) -> None:
        """Answer recalls, SUBSCRIBE and ASK_TURN, where asked: 5 s are left."""
        asked = self.hear()
        if scripts.LEAVE_QUEUE_SHA1 in asked:  # behind a try that was refused
            self.say(b":1\r\n")
        if b"SUBSCRIBE" in asked:
            self.say(b">3\r\n" + bulk(b"subscribe") + bulk(b"channel") + b":1\r\n")
        if scripts.ASK_TURN_SHA1 in asked:
            self.say(b"*4\r\n:0\r\n:5000\r\n:%d\r\n:0\r\n" % place)

    def take(self, key: bytes | Permits = KEY) -> Round:
        """Let a caller take the lock at its first try."""
        round = self.new_round(key)
        hand.submit(self.engine, round, self.now_ns)
        is_asked_time = self.hear().endswith(b"$4\r\nTIME\r\n")
        self.say(b"+OK\r\n" + TIME * is_asked_time)
        return round

    def withdraw(self, round: Round) -> None:
        hand.withdraw(self.engine, round, self.now_ns)


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
        hand.by_hand(self.engine)
        hand.open_due(self.engine, True, self.now_ns)
        for i in range(COUNT):
            hand.shake_hands(self.engine, i, self.now_ns, answers={"COMMAND": native})
        self.take()  # asks for the time, for a while

    def say(self, master: int, data: bytes) -> None:
        hand.receive(self.engine, master, data, self.now_ns)
        hand.finish(self.engine, self.now_ns)

    def hear(self, master: int) -> list[Words]:
        return hand.commands_in(hand.outgoing(self.engine, master))

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
        hand.submit(self.engine, round, self.now_ns)
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
        round = self.new_round(key)
        round.wait_in_turn(self.now_ns)
        hand.submit(self.engine, round, self.now_ns)
        return round
