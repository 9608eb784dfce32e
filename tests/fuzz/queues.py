"""Lead wait queues at random: python -m tests.fuzz.queues [--events N] [--seed S].

Each seed is a queue to which 1,000 things happen; fails where an event comes that the
table rules out, and prints the cells of the table that none came by.

What gate and turns do with an action is done here in a line each; replies come late, in
order, or never. So an event comes only where they give it, too, and a cell of the table
that rules one out is a mistake of theirs, or of it.
"""

from __future__ import annotations

import argparse
import sys
from random import Random

from fastredlock._core import Round, Verdict
from tests.support.core import QueueByHand
from tests.support.queue_table import (
    ACTIONS,
    EVENTS,
    KNOWN,
    STATES,
    TRYING,
    counts,
    drawn,
    queue_mistakes,
)

HAPPENINGS = 1_000  # of a queue
SILENT, TAKEN, SET = -1, 0, 1


class QueueWalk:
    """One queue; `step` lets something happen, and checks what it is then."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.queue = QueueByHand()
        self.now = 0
        self.asked: list[Round] = []  # questions that are under way
        self.open: list[tuple[Round, Round | None]] = []  # and the next of each
        self.entered: Round | None = None  # the caller whose entry the gate has
        self.in_stay = False
        self.is_beside = False  # rounds were tried beside each other, since the asking
        self.happenings = [
            *(self.come, self.come, self.leave, self.answer, self.answer, self.lose),
            *(self.push, self.call, self.due, self.time_ends, self.close, self.close),
            *(self.set_first, self.hand_on, self.end_stay, self.moved, self.other_gate),
            *(self.give_up, self.stop, self.end),
        ]
        # Others are rare, or hardly anything would be reached.
        self.weights = [20] * 15 + [2] * 3 + [1] * 2

    @property
    def state(self) -> str:
        return STATES[self.queue.state]

    @property
    def first(self) -> Round | None:
        waiting = self.queue.waiting
        return waiting[0] if waiting else None

    def step(self) -> None:
        self.now += 1
        (happening,) = self.random.choices(self.happenings, self.weights)
        happening()
        opened = [round for round, _ in self.open]
        assert (self.queue.trying in opened) == (self.state in TRYING)
        if self.state in (*KNOWN, "+NEXT", "+FIRST"):
            assert self.first is not None
            assert self.entered is self.first
        if self.state == "AWAY" and not self.is_beside:
            assert self.entered is None

    def on(self, event: str) -> None:
        if event in ("elsewhere", "moved", "no-gate", "empty"):
            is_kept = event == "empty" and self.state in TRYING
            self.entered = self.entered if is_kept else None
        self.do(self.queue.on(EVENTS.index(event)))

    def do(self, action: int) -> None:
        name = ACTIONS[action]
        if name == "enter" and not self.queue.waiting:
            self.on("empty")
        elif name == "ask" or (name == "enter" and not self.in_stay):
            self.ask()
        elif name in ("open", "try") and self.first is not None:
            self.try_out(self.first)

    def ask(self) -> None:
        if self.first is None:
            return self.on("empty")
        self.asked.append(self.first)
        if self.random.random() < 0.02:  # another was first by the time it is sent
            self.entered = self.asked[-1]
            return self.on("strayed")
        self.entered = self.first
        self.is_beside = len(self.open) > 1
        return self.on("asked")

    def try_out(self, round: Round) -> None:
        if self.random.random() < 0.02:
            self.on("elsewhere")
        gate = -1 if self.random.random() < 0.05 else 0
        self.queue.open(round, gate)
        self.open.append((round, self.first))
        self.is_beside = self.is_beside or len(self.open) > 1
        if gate == 0:
            self.entered = self.first or round

    def leaves(self, round: Round) -> None:
        action = self.queue.leave(round)
        if self.first is None and self.state not in TRYING:
            self.entered = None
        self.do(action)

    # What happens.

    def come(self) -> None:
        if len(self.queue.waiting) > 4:
            return
        older = self.random.random() < 0.2
        round = self.queue.come(self.random.randrange(self.now) if older else self.now)
        if older and self.random.random() < 0.5:  # it comes back from a lost round
            if self.first is round:
                self.entered = round
                self.on("back")
                if self.random.random() < 0.3:  # it pauses
                    self.ask()
        else:
            self.on("waiting")

    def leave(self) -> None:
        if self.queue.waiting:
            self.leaves(self.random.choice(self.queue.waiting))

    def answer(self) -> None:
        if not self.asked:
            return
        asked = self.asked.pop(0)
        if self.state in KNOWN and asked is self.first:
            self.on(self.random.choice(["others", "nobody", "ours"]))

    def lose(self) -> None:
        self.asked.clear()

    def push(self) -> None:
        self.on("turn")

    def call(self) -> None:
        if self.queue.waiting:
            self.on("called")

    def due(self) -> None:
        if not self.queue.waiting:
            self.on("empty")
        elif self.state in KNOWN and self.random.random() < 0.5:
            self.on("try-due")
        else:
            self.on("due")

    def time_ends(self) -> None:
        if self.queue.waiting:
            self.try_out(self.random.choice(self.queue.waiting))

    def close(self) -> None:
        if not self.open:
            return
        round, next = self.open.pop(self.random.randrange(len(self.open)))
        verdict = self.random.choice([Verdict.WON, Verdict.TAKEN, Verdict.UNREACHABLE])
        reply = self.random.choice([SILENT, TAKEN, SET, SET])
        self.in_stay = self.in_stay or verdict is Verdict.WON
        is_alone = next is None and self.state == "TRYING"
        if verdict is Verdict.WON and reply != TAKEN and is_alone:
            self.entered = None  # its script took it out
        self.do(self.queue.close(round, verdict, reply))

    def set_first(self) -> None:
        next = self.open[-1][1] if self.open else None
        if next is not None and next is self.first:
            self.on("next-first")

    def hand_on(self) -> None:
        if self.first is not None and self.state not in TRYING:
            assert self.queue.hand_on(self.first)

    def end_stay(self) -> None:
        self.in_stay = False
        if self.queue.waiting:
            self.on("waiting")

    def moved(self) -> None:
        self.on("moved")

    def other_gate(self) -> None:
        self.on("elsewhere")
        if self.queue.waiting and self.state not in TRYING:
            self.ask()

    def give_up(self) -> None:
        tried = [pair for pair in self.open if pair[0] is self.queue.trying]
        if tried:
            self.open.remove(tried[0])
            self.leaves(tried[0][0])

    def stop(self) -> None:
        self.on("no-gate")
        self._leave_all()

    def end(self) -> None:
        self.on("empty")
        self._leave_all()

    def _leave_all(self) -> None:
        for round in self.queue.waiting:
            self.queue.hand_on(round)


def lead(seed: int) -> None:
    """Lead one queue through all that may happen."""
    walk, before = QueueWalk(seed), queue_mistakes()
    for _ in range(HAPPENINGS):
        walk.step()
    found = queue_mistakes()
    assert found == before, f"seed {seed}: {found}"


def unseen() -> list[str]:
    """List the cells that are there, and that nothing came by."""
    return [
        f"{event} in {state}"
        for (event, state), count in counts().items()
        if not count and drawn(event, state) != "x"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seed = options.seed
    while sum(counts().values()) < options.events:
        lead(seed)
        seed += 1
    print(f"{sum(counts().values())} events; never: {', '.join(unseen()) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
