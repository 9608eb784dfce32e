"""The runs: the rules as they ship, each left out, and the declared limit."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import NamedTuple

from .fencing import OUTAGE, Rules, World

BEHIND = (0, -3)  # two clients, one with a clock that is behind
ONE = (
    (-2, -2, 0),
)  # of the masters has more than the others: of a round that was lost
ALL = tuple(combinations_with_replacement((-2, 0, 2), 3))
LONG = 2 * OUTAGE  # longer than a restart takes


class Case(NamedTuple):
    """A run, and whether a violation is what it has to find."""

    name: str
    world: World
    rules: Rules = Rules()
    is_violated: bool = False
    is_long: bool = False  # minutes: by hand alone


CASES = (
    Case("as shipped", World(BEHIND)),
    Case("as shipped, clocks set back", World((0, 0), steps_back=LONG)),
    Case("as shipped, masters restart empty", World(BEHIND, restarts=2)),
    Case(
        "as shipped, one client set back, masters restart empty",
        World((0,), rounds=2, restarts=3, steps_back=LONG),
    ),
    Case(
        "F is not written where it is less",
        World(BEHIND, first=ONE),
        Rules(writes=False),
        is_violated=True,
    ),
    Case(
        "F is written, and no quorum awaited",
        World(BEHIND, first=ONE),
        Rules(awaits=False),
        is_violated=True,
    ),
    Case(
        "F is written to all, the token not compared",
        World(BEHIND, first=ONE),
        Rules(compares=False),
        is_violated=True,
    ),
    Case(
        "F is not the largest that was answered",
        World(BEHIND, first=ONE),
        Rules(takes_largest=False),
        is_violated=True,
    ),
    Case(
        "no counter: the clock alone",
        World(BEHIND),
        Rules(counts=False),
        is_violated=True,
    ),
    Case(
        "no clock: the counter alone, masters restart empty",
        World(BEHIND, restarts=2),
        Rules(proposes=False),
        is_violated=True,
    ),
    Case(
        "a proposal goes back with its clock, masters restart empty",
        World((0,), rounds=2, restarts=3, steps_back=LONG),
        Rules(remembers=False),
        is_violated=True,
    ),
    Case(
        "THE LIMIT: masters restart empty, a clock is behind by more than that took",
        World((0, -LONG), restarts=2),
        is_violated=True,
    ),
    Case(
        "as shipped, masters that differ",
        World(BEHIND, first=ALL),
        is_long=True,
    ),
    Case("as shipped, two rounds of each", World(BEHIND, rounds=2), is_long=True),
    Case("as shipped, three clients", World((0, -3, 3)), is_long=True),
)
