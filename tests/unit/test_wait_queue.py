"""The machine of a wait queue, without an engine: its table, step by step."""

from __future__ import annotations

import pytest

from fastredlock._core import Verdict
from tests.support.core import QueueByHand
from tests.support.queue_table import (
    ACTIONS,
    EVENTS,
    KNOWN,
    ROWS,
    STATES,
    TRYING,
    drawn,
    queue_mistakes,
)

SILENT, SET = -1, 1  # what the gate replied to the command of a turn

# How each state is reached: "come", "leave" and "hand-on" are callers, "open", "win",
# "lose" and "give-up" the round of the first; all else are events.
WAYS = {
    "AWAY": "",
    "ASKED": "come asked",
    "BEHIND": "come asked others",
    "FIRST": "come asked nobody",
    "STALE": "come come asked nobody hand-on",
    "TRYING": "come asked open",
    "+NEXT": "come come asked open",
    "+FIRST": "come come asked open next-first",
}


class Walk:
    """A queue, and the way it is led by words."""

    def __init__(self, way: str) -> None:
        self.queue = QueueByHand()
        self.came = 0
        self.action = ""
        for word in way.split():
            self.action = ACTIONS[self.go(word) or 0]

    def go(self, word: str) -> int | None:
        queue = self.queue
        if word == "come":
            self.came += 1
            queue.come(self.came)
        elif word == "come-older":
            queue.come(0)
        elif word == "leave":
            return queue.leave(queue.waiting[0])
        elif word == "give-up":
            assert queue.trying is not None
            return queue.leave(queue.trying)
        elif word == "hand-on":
            assert queue.hand_on(queue.waiting[0])
        elif word in ("open", "open-without-gate"):
            queue.open(queue.waiting[0], 0 if word == "open" else -1)
        elif word in ("win", "win-beside", "lose"):
            assert queue.trying is not None
            verdict = Verdict.TAKEN if word == "lose" else Verdict.WON
            return queue.close(queue.trying, verdict, SET if word == "win" else 0)
        else:
            return queue.on(EVENTS.index(word))
        return None

    @property
    def state(self) -> str:
        return STATES[self.queue.state]


@pytest.mark.usefixtures("may_make_mistakes")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_cell_when_its_event_comes_then_is_what_happens(event: str, state: str) -> None:
    cell, before = drawn(event, state), queue_mistakes()
    walk = Walk(f"{WAYS[state]} {event}")
    name = cell.strip("*")
    assert walk.state == (name if name in STATES else state)
    action = ROWS[EVENTS.index(event)][1] if "*" in cell else cell
    assert walk.action == (action if action in ACTIONS else ".")
    assert (queue_mistakes() != before) == (cell == "x")
    assert (walk.queue.trying is not None) == (walk.state in TRYING) or (
        event.startswith("opened")  # by itself, without the round that is opened
    )


def test_table_has_no_state_without_a_way_out_and_none_that_is_not_reached() -> None:
    ways = {
        (state, cell.strip("*"))
        for row in ROWS
        for state, cell in zip(STATES, row[2:], strict=True)
        if cell.strip("*") in STATES
    }
    assert {state for state, _ in ways} == {next for _, next in ways} == {*STATES}


# What happens: the way, the state behind it, and what is to be done.
STEPS = {
    "the first comes": ("come waiting", "AWAY", "enter"),
    "one comes behind it": ("come asked come waiting", "ASKED", "."),
    "an older one comes": ("come asked nobody come-older waiting", "STALE", "enter"),
    "the first leaves": ("come come asked leave", "STALE", "enter"),
    "all leave": ("come asked leave", "AWAY", "leave"),
    "a try is given up, others wait": ("come come asked open give-up", "STALE", "soon"),
    "a try is given up, nobody waits": ("come asked open give-up", "AWAY", "leave"),
    "all leave before it was asked": ("come leave", "AWAY", "."),
    "a first asks again and stays it": ("come asked nobody asked", "FIRST", "."),
    "a second asks again": ("come asked others asked", "ASKED", "."),
    "a gate is silent": ("come asked try-due", "ASKED", "try"),
    "a push comes before an answer": ("come asked turn", "ASKED", "open"),
    "a push comes for an old entry": ("come come asked hand-on turn", "STALE", "open"),
    "a push comes beside a try": ("come asked open turn", "TRYING", "note"),
    "a call comes beside a question": ("come asked called", "ASKED", "."),
    "a call comes to the first": ("come asked nobody called", "ASKED", "ask"),
    "won, and nobody is next": ("come asked open win", "AWAY", "enter"),
    "won, and the next is known": ("come come asked open win", "BEHIND", "."),
    "won, and the next is first": (
        *("come come asked open next-first win", "FIRST", "."),
    ),
    "won, and the next has left": ("come come asked open leave win", "STALE", "enter"),
    "won, and the gate had the key": (
        *("come come asked open win-beside", "STALE", "enter"),
    ),
    "won without a gate": ("come open-without-gate win", "STALE", "enter"),
    "lost": ("come come asked open lose", "STALE", "soon"),
    "lost, and its caller is back": (
        *("come come asked open lose come-older back", "BEHIND", "."),
    ),
    "handed on": ("come come asked nobody hand-on", "STALE", "."),
    "moved": ("come asked nobody moved", "AWAY", "ask"),
    "moved beside a try": ("come come asked open moved win", "STALE", "enter"),
    "another gate": ("come asked nobody elsewhere asked", "ASKED", "."),
    "another gate, what is done": ("come asked nobody elsewhere", "AWAY", "leave"),
    "no gate": ("come asked nobody no-gate", "AWAY", "."),
}


@pytest.mark.parametrize("case", STEPS)
def test_queue_when_things_happen_then_is_where_the_table_says(case: str) -> None:
    way, state, action = STEPS[case]
    walk = Walk(way)
    assert (walk.state, walk.action) == (state, action)
    assert walk.state not in KNOWN or walk.queue.waiting


def test_second_round_when_opened_beside_another_then_its_end_ends_no_try() -> None:
    walk = Walk("come come come asked open")
    second = walk.queue.waiting[1]  # its time ends
    walk.queue.open(second, 0)
    assert walk.state == "+NEXT"
    walk.queue.close(second, Verdict.TAKEN, SILENT)
    assert walk.state == "TRYING"
    assert walk.queue.trying is not second
    walk.go("win")
    assert walk.state == "STALE"
