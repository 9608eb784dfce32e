"""Those who wait for a lock, event by event: the orders that are rare on servers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fastredlock import QuorumUnreachableError, Retry
from fastredlock._core import (
    DriverFields,
    LeaseFields,
    Operation,
    Round,
    Verdict,
    begin_releases,
)
from fastredlock._options import scripts
from tests.support import by_hand as hand
from tests.support import gate_by_hand as gates_by_hand
from tests.support.by_hand import MS, TERMS, bulk
from tests.support.gate_by_hand import (
    ASK,
    COUNT,
    GATE,
    HELD,
    KEY,
    LAST,
    NEXT,
    TIME,
    Gate,
    Gates,
    subscribed,
)
from tests.support.rounds import attempts_of
from tests.support.waiters import gate_of


def test_turn_when_an_older_waiter_is_undone_then_is_not_lost() -> None:
    """Seen: lock() that had timed out took the queue of those who came meanwhile."""
    gate = Gate()
    old = gate.wait(10 * MS)
    gate.pass_time(10 * MS)  # its last try
    gate.say(b":0\r\n")
    assert old.verdict is Verdict.TAKEN
    assert scripts.LEAVE_QUEUE in gate.hear()
    gate.say(b":1\r\n")
    new = gate.wait()
    gate.withdraw(old)  # what lock() does before it raises
    gate.tell()
    assert new.is_opened
    assert gate.engine.counters.turns_missed == 0


def test_next_waiter_when_it_gives_up_beside_an_open_turn_then_its_entry_goes() -> None:
    """Seen: the gate had its entry for a minute, and told nobody else meanwhile."""
    gate = Gate()
    first, second = gate.wait(), gate.wait()
    gate.tell()
    assert first.is_opened
    gate.withdraw(second)
    gate.hear()
    gate.say(b":3\r\n")  # set, and the second stands in the queue
    assert first.is_won
    assert scripts.LEAVE_QUEUE in gate.hear()


def test_waiter_when_the_one_before_it_gives_up_then_its_entry_is_its_own_at_once() -> (
    None
):
    gate = Gate()
    first, _ = gate.wait(), gate.wait()
    gate.hear()
    gate.withdraw(first)
    asked = gate.hear()
    assert scripts.ASK_TURN_SHA1 in asked
    assert asked.endswith(b"$1\r\n1\r\n")  # by its own ticket


def test_waiter_when_its_time_is_short_then_tries_at_the_end_of_it() -> None:
    """Seen: timeout=0.005 waited for 51 ms, and with slow masters for far longer."""
    gate = Gate()
    given = lambda: b"token", 0.005, None, gate.now_ns
    driven = attempts_of(gate.engine, KEY, *given)
    first = gate.submit(next(driven))
    gate.now_ns += MS
    gate.say(b"$-1\r\n")
    assert first.verdict is Verdict.TAKEN
    second = gate.submit(next(driven))
    gate.pass_time(4 * MS - 1)
    assert not second.is_opened
    gate.pass_time(1)
    assert second.is_opened


def test_caller_when_it_tries_again_and_again_then_counts_as_one_that_waits() -> None:
    """Seen: stats().waits grew by four per second for one caller."""
    gate = Gate()
    given = lambda: b"token", None, None, gate.now_ns
    driven = attempts_of(gate.engine, KEY, *given)
    gate.submit(next(driven))
    gate.say(b"$-1\r\n")
    for _ in range(3):
        round = gate.submit(next(driven))
        gate.pass_time(250 * MS)
        assert round.is_opened
        gate.say(b":0\r\n")
    assert gate.engine.counters.waits == 1


@pytest.mark.parametrize("is_cut", [False, True])
def test_waiter_when_its_gate_alone_is_silent_then_goes_on_until_that_is_given_up(
    is_cut: bool,
) -> None:
    """Seen: of 1,000 that waited with timeout=600, all raised after 25 s."""
    gate = Gate()
    given = lambda: b"token", None, Retry(unreachable_tries=1), gate.now_ns
    driven = attempts_of(gate.engine, KEY, *given)
    gate.submit(next(driven))
    gate.say(b"$-1\r\n")
    round = gate.submit(next(driven))
    gate.tell()
    for _ in range(2 if is_cut else 0):  # and the next connection as well
        gate.cut()
        gate.pass_time(MS)
    gate.pass_time(500 * MS)
    assert round.verdict is Verdict.UNREACHABLE
    assert round.lacks_its_gate != is_cut
    if is_cut:
        with pytest.raises(QuorumUnreachableError):
            next(driven)
    else:
        assert isinstance(next(driven), float)


@pytest.mark.parametrize("is_entered", [False, True])
def test_waiter_when_its_gate_is_silent_then_tries_on_all_masters(
    is_entered: bool,
) -> None:
    """Seen: all who waited stood still for 1 s and more, though a quorum was well.

    Entered: the gate has replied once that it is the fourth, which tries seldom.
    """
    gate = Gate()
    round = gate.wait(is_answered=False)
    if is_entered:
        gate.answer_questions(place=3)
        gate.pass_time(500 * MS)  # the time of its next question
        assert ASK in gate.hear()
    gate.pass_time(250 * MS - 1)
    assert not round.is_opened
    gate.pass_time(1)
    assert round.is_opened


# Of a question each: whose turn, the ttl left; and the time until the next one.
ANSWERS = {
    "nobody was notified, for a second": ([(0, -2, 10)] * 101, True),
    "each that is notified lets its turn pass": ([(3, -2, 52)] * 21, True),
    "less than a second": ([(0, -2, 10)] * 100, False),
    "others are notified, by their releases": ([(2, -2, 250)] * 8, False),
    "a key in between": ([(3, -2, 52)] * 18 + [(0, 5, 475)] + [(3, -2, 52)] * 9, False),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_waiter_when_a_free_key_is_left_alone_then_tries_out_of_turn(case: str) -> None:
    """Seen: behind 100,000 entries of nobody a free lock was out of reach for 11 s."""
    answers, is_tried = ANSWERS[case]
    gate = Gate()
    round = gate.wait(is_answered=False)
    gate.say(b">3\r\n" + bulk(b"subscribe") + bulk(b"channel") + b":1\r\n")
    for whose, left_ms, again_ms in answers:
        assert not round.is_opened
        gate.answer(whose, left_ms, 9)
        gate.pass_time(again_ms * MS)
    assert round.is_opened == is_tried
    said = gate.hear()
    assert (b"SET" in said) == is_tried
    assert scripts.TAKE_TURN_SHA1 not in said  # which would refuse
    if is_tried:
        gate.say(b"+OK\r\n")
        assert round.is_won
        assert scripts.LEAVE_QUEUE in gate.hear()


def test_release_when_nobody_waits_here_then_takes_the_entry_out() -> None:
    """Seen: behind the entry of a process that is idle one waited for 20 s."""
    gate = Gate()
    taken = gate.wait()
    gate.tell()
    gate.say(b":1\r\n")
    assert taken.is_won
    gate.hear()
    gate.release(taken)
    said = gate.hear()
    assert scripts.RELEASE_AND_NOTIFY_SHA1 in said
    assert said.endswith(bulk(b"0000000000000001"))  # the process


def test_release_when_its_gate_replies_last_then_is_known_whom_it_notified() -> None:
    """Seen: a holder that took the lock again at once overtook a waiter for ever."""
    gates = Gates()
    release = gates.release(gates.take())
    for each in (NEXT, LAST):
        gates.hear(each)
        gates.say(each, b":1\r\n")
    assert release.is_won
    assert not gates.engine.is_contended(KEY, gates.now_ns)
    gates.hear(GATE)
    gates.say(GATE, b":2\r\n")  # deleted, and another process was notified
    assert gates.engine.is_contended(KEY, gates.now_ns)


def test_turn_when_the_gate_refuses_it_then_is_taken_though_the_others_grant() -> None:
    gates = Gates()
    round = gates.wait()
    gates.heard(GATE, ASK)
    gates.say(GATE, b"*4\r\n:1\r\n:-2\r\n:0\r\n:1\r\n")  # nobody is before it
    assert round.is_opened
    gates.say(GATE, b":2\r\n")  # somebody waits longer
    gates.answer(NEXT)
    gates.answer(LAST)
    assert round.verdict is Verdict.TAKEN


@pytest.mark.parametrize(
    "key",
    [
        b"*1000000000",  # what stands behind its length begins a line
        b"a\n*1000000000",
        b"\r\n>9999999\r\n",
        b"$1000000000\r\n%1000000000\r\n",
        b"\n" * 30,
        b"k" * 1_048_576,
    ],
    ids=lambda key: repr(key[:12]),
)
@pytest.mark.parametrize("size", [1, 7, 1 << 30])
def test_turn_when_its_resource_reads_as_a_header_then_the_connection_lives(
    key: bytes, size: int
) -> None:
    """Seen: "announces a million elements", at each turn; of 1 MiB: too long."""
    if len(key) > 1000 and size == 1:
        size = 100_000
    gate = Gate()
    round = gate.wait(key=key)
    push = b">3\r\n" + bulk(b"message") + bulk(b"channel") + bulk(key)
    for at in range(0, len(push), size):
        gate.say(push[at : at + size])
        assert gate.engine.states[0][1] == ""
    assert round.is_opened


def test_turn_when_undone_and_eval_is_forbidden_then_the_gate_is_asked_by_hash() -> (
    None
):
    """Seen: NOPERM, a lost connection, and "its user may not release locks"."""
    gate = Gate(b"-NOPERM no permissions to run the 'eval' command\r\n")
    round = gate.wait()
    gate.tell()
    gate.hear()
    gate.withdraw(round)
    said = gate.hear()
    assert scripts.RELEASE_AND_NOTIFY_SHA1 in said
    assert b"EVAL\r\n" not in said


# ---- called: those before us may be frozen


def test_waiter_when_called_then_asks_at_once_and_again_when_their_time_is_over() -> (
    None
):
    """Seen: a lock stayed free for 5.9 s behind 40 processes that stood still."""
    gate = Gate()
    waiter = gate.wait()
    gate.tell(b"~" + KEY)
    gate.answer(0, 5000, 40)
    gate.tell(b"?" + KEY)
    assert not waiter.is_opened
    gate.pass_time(52 * MS - 1)
    assert gate.hear() == b""
    gate.pass_time(1)
    gate.answer(3, -2, 40)  # the first let its turn pass: all are called
    gate.pass_time(52 * MS)
    gate.answer(1, -2, 0)
    assert waiter.is_opened
    assert gate.engine.counters.turns_missed == 0


def test_first_when_called_again_and_again_then_has_one_question_under_way() -> None:
    gate = Gate()
    gate.wait()
    for _ in range(100):
        gate.tell(b"~" + KEY)
    assert gate.hear().count(scripts.ASK_TURN_SHA1) == 1


def test_turns_when_thousands_are_unknown_then_a_few_are_passed_on_at_a_time() -> None:
    """Seen: a gate that sent 2,000 before each reply doubled timeout=1."""
    gate = Gate()
    gate.wait()
    sent = []
    for _ in range(3):
        for i in range(1000):
            gate.tell(b"unknown%d" % i)
        sent.append(gate.hear().count(scripts.LEAVE_QUEUE))
        gate.pass_time(30 * MS)
    assert sent == [16, 0, 16]
    assert gate.engine.counters.turns_missed == 3000


def test_caller_when_it_comes_in_a_stay_then_the_release_that_ends_it_asks_before() -> (
    None
):
    """Seen by chance alone: it waited for its next question, and others came first."""
    gate = Gate()
    gate.engine.cohort_ns = 20 * MS
    first, second = gate.wait(), gate.wait()
    gate.tell()
    gate.hear()
    gate.say(b":1\r\n")  # set
    gate.hear()
    settings = SimpleNamespace(
        default_terms=first.terms, token_source=None, retry=Retry()
    )
    driver = DriverFields(settings, gate.engine)
    ((release,), _) = begin_releases(driver, [LeaseFields(driver, "key", first)])
    assert release is not None
    assert hand.hand_on(gate.engine, release, gate.now_ns) is second
    third = gate.wait(is_answered=False)
    assert scripts.ASK_TURN_SHA1 not in gate.hear()  # it may be handed on once more
    gate.release(second)
    asked = gate.hear()
    assert not third.is_opened
    assert 0 <= asked.find(scripts.ASK_TURN_SHA1) < asked.find(b"token-1")


# --- one process that waits for many resources: how often it asks, and about which


IS_HELD = b"*4\r\n:0\r\n:60000\r\n:0\r\n:1\r\n"
QUARTER = 250 * MS


class Many:
    """A gate, and a process that waits there for many resources, all held."""

    def __init__(self, count: int) -> None:
        self.names = [b"r%d" % i for i in range(count)]
        self.gate = Gate()
        self.rounds = {name: self.gate.wait(key=name) for name in self.names}
        self.tried: list[bytes] = []

    def pass_time(self, quarters: int = 1) -> list[bytes]:
        """Answer all that is sent meanwhile; return what was asked about, in order."""
        questions = []
        for _ in range(quarters):
            self.gate.pass_time(QUARTER)
            while commands := hand.commands_in(self.gate.hear()):
                asked = [resource_of(command) for command in commands]
                self.gate.say(b"".join(map(self.reply, commands, asked)))
                questions += [name for name in asked if name]
                self.come_back()
        return questions

    def reply(self, command: list[bytes], asked: bytes) -> bytes:
        if command == [b"TIME"]:
            return gates_by_hand.TIME
        return IS_HELD if asked else b":0\r\n"  # a try, a release, one that leaves

    def come_back(self) -> None:
        """Let the callers that have tried in vain wait again."""
        for name, round in self.rounds.items():
            if round.verdict is Verdict.TAKEN:
                self.tried.append(name)
                self.rounds[name] = self.gate.wait(key=name, is_answered=False)


def resource_of(command: list[bytes]) -> bytes:
    """Return what the gate is asked about; b"" by another command."""
    is_question = command[:2] == [b"EVALSHA", scripts.ASK_TURN_SHA1]
    return command[3] if is_question else b""


@pytest.mark.parametrize(
    ("count", "seconds", "least", "most"),
    [(2, 10, 3, 5), (50, 10, 1.5, 2.1), (1000, 6, 1.5, 2.1), (20_000, 8, 0.3, 0.6)],
)
def test_gate_when_any_number_waits_then_has_few_questions_about_each(
    count: int, seconds: int, least: float, most: float
) -> None:
    # Seen: 5,000 idle waiters took half a core, and 30,000 commands/s at each master.
    many = Many(count)
    many.pass_time(16)
    many.tried.clear()
    questions = many.pass_time(4 * seconds)
    assert least <= len(questions) / count / seconds <= most
    assert {*questions} == {*many.names}
    assert len(many.tried) <= seconds + 1


def test_queues_when_an_answer_is_lost_then_are_asked_about_again() -> None:
    many = Many(50)
    many.gate.pass_time(2 * QUARTER)
    many.gate.hear()
    many.gate.cut()
    many.gate.pass_time(1)
    many.gate.connect()
    asked = set()
    for _ in range(3):
        many.gate.pass_time(QUARTER)
        asked |= {*map(resource_of, hand.commands_in(many.gate.hear()))}
    assert len(asked & {*many.names}) >= 49  # one is at a try


def test_tries_when_many_wait_then_go_round_among_them() -> None:
    # Not one queue again and again, which is due first because it was tried last.
    many = Many(4)
    many.pass_time(48)  # 12 s
    assert 6 <= len(many.tried) <= 12
    assert {*many.tried} == {*many.names}


# --- a gate that is slow is passed over: who finds it so, who follows, when it ends


MARK, TAKEN = b"4", b"$-1\r\n"


def flag_of_question(gates: Gates) -> bytes:
    """Return how a caller that waits asks its gate, for the second time."""
    round = gates.wait()
    gates.heard(GATE, ASK)
    gates.say(GATE, HELD)
    hand.withdraw(gates.engine, round, gates.now_ns)
    gates.answer(GATE)
    gates.wait()
    (asked,) = gates.heard(GATE, ASK)
    return asked[-1]


def waiting_elsewhere() -> Gates:
    """Return masters whose gate has answered a caller that its queue has moved."""
    gates = Gates()
    gates.wait()
    assert gates.heard(GATE, ASK)
    gates.say(GATE, gates_by_hand.moved())
    return gates


# --- who is slow ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "late_ms", "pause_ms", "is_looked_for", "prompt", "is_marked"),
    [
        (40, 2, 60, True, 0, False),  # less than 3 ms
        (100, 5, 0, True, 0, False),  # all within a second
        (20, 5, 60, False, 0, False),  # they were only read late
        (0, 0, 0, True, 0, True),  # slow for a second
        (0, 0, 0, True, 12, True),
        (0, 0, 0, True, 16, False),  # prompt again
    ],
)
def test_gate_when_its_replies_are_late_for_a_second_then_is_marked(
    count: int,
    late_ms: int,
    pause_ms: int,
    is_looked_for: bool,
    prompt: int,
    is_marked: bool,
) -> None:
    gates = Gates()
    for _ in range(count):
        gates.take(late_ms * MS, is_looked_for=is_looked_for)
        gates.pass_time(pause_ms * MS)
    if not count:
        gates.be_slow()
    for _ in range(prompt):
        gates.take()
    assert (flag_of_question(gates) == MARK) is is_marked


def test_gate_when_its_callers_wait_for_many_resources_then_is_not_marked() -> None:
    gates = Gates()
    gates.be_slow()
    for i in range(17):
        gates.wait(b"other-%d" % i)
    for each in (GATE, NEXT, LAST):
        gates.heard(each, ASK)
    gates.wait()
    assert gates.heard(GATE, ASK)[0][-1] != MARK


# --- who follows ------------------------------------------------------------------


def test_caller_when_its_queue_has_moved_then_follows_it_or_polls_at_last() -> None:
    gates = waiting_elsewhere()
    (asked,) = gates.heard(NEXT, ASK)
    assert asked[0] == KEY
    assert not gates.hear(LAST)
    gates.say(NEXT, gates_by_hand.moved())
    assert gates.heard(LAST, ASK)
    gates.say(LAST, gates_by_hand.moved())
    assert [words[0] for words in gates.hear(GATE)][-1] == b"SET"  # a try
    assert not gates.engine.may_wait_in_turn(KEY, gates.now_ns)


@pytest.mark.parametrize("reply", [b":4", b":5"])
def test_turn_when_the_queue_has_moved_meanwhile_then_is_tried_all_the_same(
    reply: bytes,
) -> None:
    gates = Gates()
    taken = gates.wait()
    gates.heard(GATE, ASK)
    gates.say(GATE, b"*4\r\n:1\r\n:-2\r\n:0\r\n:1\r\n")
    assert gates.heard(GATE, gates_by_hand.TAKE)
    gates.say(GATE, reply + b"\r\n")
    gates.answer(NEXT)
    gates.answer(LAST)
    assert taken.verdict is Verdict.WON
    gates.wait()
    assert gates.heard(NEXT, ASK)


# --- who releases -----------------------------------------------------------------


def released(gates: Gates) -> bytes:
    """Release; the gate has deleted the key, and the queue is not there."""
    taken = gates.take()
    gates.release(taken)
    assert gates.heard(GATE, gates_by_hand.TELL)
    gates.say(GATE, b":5\r\n")
    return taken.token


def test_release_when_the_queue_has_moved_then_is_told_at_the_next_gate() -> None:
    gates = Gates()
    token = released(gates)
    commands = [words for words in gates.hear(NEXT) if token in words]
    assert [words[0] for words in commands] == [b"EVALSHA", b"EVAL"]
    assert b"notify()" in commands[1][1]


def test_release_when_its_token_may_be_used_again_then_is_sent_once() -> None:
    """It would come behind the next SET of this token, and delete that one's key."""
    gates = Gates(tokens_are_given=True)
    token = released(gates)
    assert len([words for words in gates.hear(NEXT) if token in words]) == 1


# --- several at once ------------------------------------------------------------------

BOTH = (KEY, b"other")
OTHERS_GATE = gate_of(COUNT, b"other")


def wait_for_both(gates: Gates, places: object = None, for_ns: int = -1) -> Round:
    round = gates.engine.new_round(int(Operation.ACQUIRE), BOTH, b"both", TERMS)
    until_ns = -1 if for_ns < 0 else gates.now_ns + for_ns
    round.wait_in_turn(gates.now_ns, until_ns=until_ns, places=places)
    hand.submit(gates.engine, round, gates.now_ns)
    return round


def asked_about(gates: Gates) -> dict[bytes, bytes]:
    """Return how the gates were asked, by key; answer that all are held."""
    asked: dict[bytes, bytes] = {}
    for master in range(COUNT):
        for words in gates.hear(master):
            if words[1:2] == [ASK]:
                keys = int(words[2])
                hows = words[3 + keys :][2::2]
                asked |= dict(zip(words[3 : 3 + keys], hows, strict=True))
                held = HELD.removeprefix(b"*4\r\n") * keys
                gates.say(master, b"*%d\r\n" % (4 * keys) + held)
            elif words[0] == b"SUBSCRIBE":
                gates.say(master, subscribed(words[1]))
            else:
                gates.say(master, TIME if words == [b"TIME"] else b":0\r\n")
    return asked


def tell(gates: Gates, key: bytes = KEY) -> None:
    gate = GATE if key == KEY else OTHERS_GATE
    gates.say(gate, b">3\r\n" + bulk(b"message") + bulk(b"channel") + bulk(key))


def test_waiter_for_both_when_it_is_taken_at_its_turn_then_keeps_that_key_alone() -> (
    None
):
    gates = Gates()
    both = wait_for_both(gates)
    assert asked_about(gates).keys() == {*BOTH}
    tell(gates)
    assert both.is_opened
    assert asked_about(gates) == {}  # it was the round of both, once at each master
    assert both.verdict is Verdict.TAKEN
    again = wait_for_both(gates, both.places)
    assert asked_about(gates) == {KEY: b"3", b"other": b"1"}
    assert not again.is_opened
    tell(gates, b"other")
    assert again.is_opened


def test_waiter_for_both_when_it_has_kept_a_key_for_long_then_lets_it_go() -> None:
    gates = Gates()
    both = wait_for_both(gates)
    asked_about(gates)
    tell(gates)
    asked_about(gates)  # the other one is taken
    for asked in ({KEY: b"3", b"other": b"1"}, {b"other": b"1"}):
        assert both.verdict is Verdict.TAKEN
        both = wait_for_both(gates, both.places)
        assert asked_about(gates) == asked
        for _ in range(9):  # of two queues one tries each second
            gates.pass_time(QUARTER)
            asked_about(gates)


def test_waiter_for_both_when_it_has_left_then_no_time_opens_a_place_of_its() -> None:
    """Seen: the queue took a place for a round under way, and stood still for ever."""
    gates = Gates()
    both, one = wait_for_both(gates, for_ns=100 * MS), gates.wait()
    asked_about(gates)
    hand.withdraw(gates.engine, both, gates.now_ns)
    gates.pass_time(100 * MS)
    asked_about(gates)
    assert not one.is_opened
    tell(gates)
    assert one.is_opened
