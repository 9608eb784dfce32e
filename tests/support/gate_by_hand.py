"""A gate on paper, and an engine whose callers wait there, driven by hand."""

from __future__ import annotations

from fastredlock._core import (
    Engine,
    KeyOfKind,
    Operation,
    Round,
    Scripts,
    by_hand_connected,
    by_hand_engine,
    by_hand_finish,
    by_hand_lost,
    by_hand_open_due,
    by_hand_outgoing,
    by_hand_pass_time,
    by_hand_receive,
    by_hand_submit,
    by_hand_withdraw,
)
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint
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

KEY = b"key"
TIME = b"*2\r\n" + bulk(b"0") * 2
NAMED = scripts.scripts_of("locks") | scripts.scripts_of("queue")
del NAMED["marker"]
SCRIPTS = Scripts(NAMED, releases_natively=True)
LOADED = 10  # scripts, by the handshake


class ByHand:
    """An engine that is driven by hand; time goes by when a test lets it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now_ns = START_NS
        self._numbers = 0

    def pass_time(self, for_ns: int) -> None:
        """Let time go by; do all that is due."""
        self.now_ns += for_ns
        by_hand_pass_time(self.engine, self.now_ns)
        by_hand_finish(self.engine, self.now_ns)

    def new_round(self, key: bytes | KeyOfKind = KEY) -> Round:
        """Make a round that takes the lock, or a slot."""
        self._numbers += 1
        token = b"token-%d" % self._numbers
        return self.engine.new_round(int(Operation.ACQUIRE), key, token, TERMS)

    def release(self, taken: Round) -> Round:
        """Give a lock back; return the round that does."""
        release = self.engine.new_release(taken, TERMS)
        by_hand_submit(self.engine, release, self.now_ns)
        return release


class Gate(ByHand):
    """One master, and an engine that waits there."""

    def __init__(
        self, said_to_eval: bytes = ALLOWED, native: bytes = NO_NATIVE
    ) -> None:
        super().__init__(
            Engine([Endpoint("127.0.0.1", 7001)], SCRIPTS, S, (), jitter_seed=1)
        )
        self._probed = said_to_eval + ALLOWED
        self._native = native
        by_hand_engine(self.engine)
        by_hand_open_due(self.engine, True, self.now_ns)
        self.connect()
        self._tell_time()

    def connect(self) -> None:
        """Take the connection that is on its way, and answer the handshake."""
        by_hand_connected(self.engine, 0, self.now_ns)
        self.hear()
        loaded = bulk(b"0" * 40) * LOADED
        self.say(HELLO)
        self.hear()
        self.say(b"+OK\r\n" + info(run_id="r") + self._native + loaded + self._probed)

    def _tell_time(self) -> None:
        # It is asked with the first command, and then not for long.
        round = self.engine.new_round(int(Operation.INSPECT), b"-", b"-", TERMS)
        by_hand_submit(self.engine, round, self.now_ns)
        assert self.hear().endswith(b"$4\r\nTIME\r\n")
        self.say(b"*3\r\n_\r\n:-2\r\n:0\r\n" + TIME)

    def cut(self) -> None:
        """End the connection."""
        by_hand_lost(self.engine, 0, "cut", self.now_ns)

    def say(self, data: bytes) -> None:
        """Answer, or push."""
        by_hand_receive(self.engine, 0, data, self.now_ns)
        by_hand_finish(self.engine, self.now_ns)

    def hear(self) -> bytes:
        """Return what it was sent since it heard last."""
        return by_hand_outgoing(self.engine, 0)

    def tell(self, key: bytes = KEY) -> None:
        """Tell the engine that it is its turn."""
        self.say(b">3\r\n" + bulk(b"message") + bulk(b"channel") + bulk(key))

    def answer(self, whose: int, left_ms: int, place: int, count: int = 0) -> None:
        """Answer a question: whose turn it is, its ttl, how many come before."""
        assert scripts.ASK_TURN_SHA1 in self.hear()
        self.say(b"*4\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n" % (whose, left_ms, place, count))

    def wait(
        self, for_ns: int = -1, key: bytes | KeyOfKind = KEY, is_answered: bool = True
    ) -> Round:
        """Start a caller that waits, for so long; answer its question: it is held."""
        round = self.new_round(key)
        until_ns = -1 if for_ns < 0 else self.now_ns + for_ns
        round.wait_in_turn(self.now_ns, until_ns=until_ns)
        round.left_ns = for_ns
        by_hand_submit(self.engine, round, self.now_ns)
        if is_answered:
            self.answer_questions()
        return round

    def submit(self, step: Round | float) -> Round:
        """Run a round of an attempt; answer its question, if it asks one."""
        assert isinstance(step, Round)
        by_hand_submit(self.engine, step, self.now_ns)
        self.answer_questions()
        return step

    def answer_questions(self) -> None:
        """Answer recalls, SUBSCRIBE and ASK_TURN, where asked: 5 s are left."""
        asked = self.hear()
        if scripts.LEAVE_QUEUE_SHA1 in asked:  # behind a try that was refused
            self.say(b":1\r\n")
        if b"SUBSCRIBE" in asked:
            self.say(b">3\r\n" + bulk(b"subscribe") + bulk(b"channel") + b":1\r\n")
        if scripts.ASK_TURN_SHA1 in asked:
            self.say(b"*4\r\n:0\r\n:5000\r\n:0\r\n:0\r\n")

    def take(self, key: bytes | KeyOfKind = KEY) -> Round:
        """Let a caller take the lock at its first try."""
        round = self.new_round(key)
        by_hand_submit(self.engine, round, self.now_ns)
        is_asked_time = self.hear().endswith(b"$4\r\nTIME\r\n")
        self.say(b"+OK\r\n" + TIME * is_asked_time)
        return round

    def withdraw(self, round: Round) -> None:
        """Let the caller of a round give it up."""
        by_hand_withdraw(self.engine, round, self.now_ns)


__all__ = ["KEY", "MS", "Gate"]
