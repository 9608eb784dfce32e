"""The table of a wait queue as it is drawn, and how often each cell was come by."""

from __future__ import annotations

from itertools import product

from tests.support.core import by_hand_queue_table

TEXT, _ = by_hand_queue_table()
HEADER, *ROWS = [line.split() for line in TEXT.splitlines()]
STATES = HEADER[2:]
EVENTS = [row[0] for row in ROWS]
ACTIONS = [".", "ask", "enter", "open", "try", "leave", "soon", "later", "note", "x"]
TRYING = ["TRYING", "+NEXT", "+FIRST"]
KNOWN = ["ASKED", "BEHIND", "FIRST"]


def drawn(event: str, state: str) -> str:
    return ROWS[EVENTS.index(event)][2 + STATES.index(state)]


def counts() -> dict[tuple[str, str], int]:
    """Count for each cell, (event, state), how often it was come by in this process."""
    _, rows = by_hand_queue_table()
    cells = [cell for row in rows for cell in row]
    return {
        key: count
        for key, (*_, count) in zip(product(EVENTS, STATES), cells, strict=True)
    }


def queue_mistakes() -> list[str]:
    """List which events came, in this process, that the table rules out."""
    return [
        f"{event} in {state}, {count}"
        for (event, state), count in counts().items()
        if count and drawn(event, state) == "x"
    ]
