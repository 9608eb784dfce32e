"""One process that waits for many resources: how often it asks, and about which."""

from __future__ import annotations

import pytest
from hiredis import Reader

from fastredlock._core import Permits, Round, Verdict
from fastredlock._options import scripts
from tests.support.by_hand import MS
from tests.support.gate_by_hand import TIME, Gate, Gates

HELD, REFUSED = b":0\r\n:60000\r\n:0\r\n:1\r\n", b":-1\r\n:-2\r\n:0\r\n:0\r\n"
OURS = b":1\r\n:-2\r\n:0\r\n:1\r\n"
QUARTER = 250 * MS


class Many:
    """A gate, and a process that waits there for many resources, all held."""

    def __init__(self, count: int, permits: int = 0) -> None:
        self.names = [b"r%d" % i for i in range(count)]
        self.permits = permits
        self.gate = Gate()
        self.rounds = {name: self.wait(name) for name in self.names}
        self.answers: dict[bytes, bytes] = {}  # to questions about these
        self.refuses = b""  # all questions about several
        self.tried: list[bytes] = []

    def wait(self, name: bytes, is_answered: bool = True) -> Round:
        """Start a caller that waits for the lock, or for the semaphore."""
        key = Permits(name, self.permits) if self.permits else name
        return self.gate.wait(key=key, is_answered=is_answered)

    def pass_time(self, quarters: int = 1) -> list[list[bytes]]:
        """Answer all that is sent meanwhile; return what was asked about together."""
        questions = []
        for _ in range(quarters):
            self.gate.pass_time(QUARTER)
            while commands := self.commands():
                replies = [self.reply(command) for command in commands]
                questions += [resources_of(command) for command in commands]
                self.gate.say(b"".join(replies))
                self.come_back()
        return [question for question in questions if question]

    def commands(self) -> list[list[bytes]]:
        reader = Reader()
        reader.feed(self.gate.hear())
        commands: list[list[bytes]] = []
        while isinstance(words := reader.gets(), list):
            commands.append(words)
        return commands

    def reply(self, command: list[bytes]) -> bytes:
        asked = resources_of(command)
        if command == [b"TIME"]:
            return TIME
        if not asked:
            return b":0\r\n"  # a try, a release, one that leaves
        if self.refuses and len(asked) > 1:
            return self.refuses
        said = [self.answers.get(name, HELD) for name in asked]
        return b"*%d\r\n" % (4 * len(asked)) + b"".join(said)

    def come_back(self) -> None:
        """Let the callers that have tried in vain wait again."""
        for name, round in self.rounds.items():
            if round.verdict is Verdict.TAKEN:
                self.tried.append(name)
                self.rounds[name] = self.wait(name, is_answered=False)


def resources_of(command: list[bytes]) -> list[bytes]:
    """Return those that the gate is asked about; none by another command."""
    if command[:2] != [b"EVALSHA", scripts.ASK_TURN_SHA1]:
        return []
    return command[3 : 3 + int(command[2])]


def test_gate_when_many_wait_then_is_asked_about_all_of_them_together() -> None:
    # Seen: 5,000 idle waiters took half a core, and 30,000 commands/s at each master.
    many = Many(100)
    many.pass_time(4)
    (question, *alone) = sorted(many.pass_time(), key=len, reverse=True)
    assert len(question) > 90
    assert len(set(question)) == len(question)
    assert [len(each) for each in alone] in ([], [1])  # the one that has tried


@pytest.mark.parametrize("count", [2, 50, 1000, 20_000])
def test_gate_when_any_number_waits_then_has_few_questions_per_second(
    count: int,
) -> None:
    many = Many(count)
    many.pass_time(8)
    many.tried.clear()
    questions = many.pass_time(40)  # 10 s
    assert len(many.tried) <= 11
    assert len(questions) <= 41 + len(many.tried)  # each that has tried comes back
    assert max(map(len, questions)) <= 512


@pytest.mark.parametrize(("count", "quarters"), [(1000, 12), (20_000, 44)])
def test_gate_when_many_thousands_wait_then_is_asked_about_each_in_some_seconds(
    count: int, quarters: int
) -> None:
    many = Many(count)
    many.pass_time(4)
    questions = many.pass_time(quarters)
    assert {name for question in questions for name in question} == {*many.names}


def test_gate_when_large_semaphores_are_waited_for_then_is_asked_about_few() -> None:
    """Seen: a question about nine of 1,024 permits took a server 10 ms and more."""
    many = Many(40, permits=1024)
    many.pass_time(4)
    questions = many.pass_time(24)  # 6 s
    assert max(map(len, questions)) == 4
    asked = {name for question in questions for name in question}
    assert asked == {name + b"#" for name in many.names}


def test_gate_when_one_waits_alone_then_is_asked_as_ever() -> None:
    many = Many(1)
    many.pass_time(8)
    assert len(many.tried) == 8  # the first of all tries on all masters


def test_turn_when_the_answer_about_many_gives_one_then_is_taken() -> None:
    many = Many(5)
    many.pass_time(5)
    many.answers[b"r3"] = OURS
    many.gate.pass_time(QUARTER)
    (command,) = [each for each in many.commands() if len(resources_of(each)) > 1]
    many.gate.say(many.reply(command))
    assert many.rounds[b"r3"].is_opened


def test_queue_when_refused_among_many_then_is_asked_about_by_itself() -> None:
    many = Many(5)
    many.pass_time(4)
    many.answers[b"r3"] = REFUSED
    assert [b"r3"] in many.pass_time()


def test_queues_when_the_whole_question_is_refused_then_each_is_asked_about() -> None:
    many = Many(5)
    many.pass_time(4)
    many.refuses = b"-OOM command not allowed\r\n"
    questions = many.pass_time()
    (together,) = [question for question in questions if len(question) > 1]
    assert all([name] in questions for name in together)


def test_queues_when_an_answer_has_another_length_then_are_asked_about_again() -> None:
    many = Many(5)
    many.pass_time(4)
    many.refuses = b"*4\r\n" + HELD
    many.pass_time()
    many.refuses = b""
    questions = many.pass_time(2)
    assert {name for question in questions for name in question} == {*many.names}


def test_queues_when_an_answer_is_lost_then_are_asked_about_again() -> None:
    many = Many(50)
    many.gate.pass_time(QUARTER)
    many.gate.hear()
    many.gate.cut()
    many.gate.pass_time(1)
    many.gate.connect()
    asked = set()
    for _ in range(3):
        many.gate.pass_time(QUARTER)
        for command in many.commands():
            asked.update(resources_of(command))
    assert len(asked) >= 49  # one is at a try


def test_queue_when_its_caller_has_left_then_is_not_asked_about() -> None:
    many = Many(5)
    many.pass_time(4)
    many.gate.withdraw(many.rounds.pop(b"r3"))
    questions = many.pass_time(4)
    assert not any(b"r3" in question for question in questions)
    assert any(b"r2" in question for question in questions)


def test_tries_when_many_wait_then_go_round_among_them() -> None:
    # Not one queue again and again, which is due first because it was tried last.
    many = Many(4)
    many.pass_time(24)  # 6 s
    assert 4 <= len(many.tried) <= 7
    assert {*many.tried} == {*many.names}


def test_tries_when_there_are_several_gates_then_begin_one_after_the_other() -> None:
    """Seen: in the first second each gate had its try, and more commands than ten."""
    gates = Gates()
    rounds = [gates.wait(b"r%d" % i) for i in range(12)]
    gates.answer_all()
    opened = []
    for _ in range(8):
        gates.pass_time(QUARTER)
        gates.answer_all(b"$-1\r\n")
        opened.append(sum(round.is_opened for round in rounds))
    assert opened[:3] == [1, 1, 1]
    assert opened[-1] == 3
