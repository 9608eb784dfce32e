"""The runs: the rules as they ship, each left out, and the declared limit."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import NamedTuple

from .fencing import OUTAGE, Rules, World

BEHIND = (0, -3)  # two clients, one with a clock that is behind
ONE = ((-2, -2, 0),)  # one master has more than the others: of a lost round
ALL = tuple(combinations_with_replacement((-2, 0, 2), 3))
LONG = 2 * OUTAGE  # longer than a restart takes
RESTARTS = World(BEHIND, restarts=2)
SET_BACK = World((0,), rounds=2, restarts=3, steps_back=LONG)


class Case(NamedTuple):
    """A run, and whether a violation is what it has to find."""

    name: str
    world: World
    rules: Rules = Rules()
    is_violated: bool = False
    is_long: bool = False  # minutes: by hand alone


def without(rule: str, name: str, world: World) -> Case:
    """Return a case of one rule that is left out."""
    return Case(name, world, Rules()._replace(**{rule: False}), is_violated=True)


AT_ONE = World(BEHIND, first=ONE)
CASES = (
    Case("as shipped", World(BEHIND)),
    Case("as shipped, clocks set back", World((0, 0), steps_back=LONG)),
    Case("as shipped, masters restart empty", RESTARTS),
    Case("as shipped, one client set back, masters restart empty", SET_BACK),
    without("writes", "F is not written where it is less", AT_ONE),
    without("awaits", "F is written, and no quorum awaited", AT_ONE),
    without("compares", "F is written to all, the token not compared", AT_ONE),
    without("takes_largest", "F is not the largest that was answered", AT_ONE),
    without("counts", "no counter: the clock alone", World(BEHIND)),
    without("proposes", "no clock: the counter alone, masters restart empty", RESTARTS),
    without(
        "remembers",
        "a proposal goes back with its clock, masters restart empty",
        SET_BACK,
    ),
    Case(
        "THE LIMIT: masters restart empty, a clock is behind by more than that took",
        World((0, -LONG), restarts=2),
        is_violated=True,
    ),
    Case("as shipped, masters that differ", World(BEHIND, first=ALL), is_long=True),
    Case("as shipped, two rounds of each", World(BEHIND, rounds=2), is_long=True),
    Case("as shipped, three clients", World((0, -3, 3)), is_long=True),
)
