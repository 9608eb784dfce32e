"""What was wrong with a semaphore: more than k that held, slots that came back late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

from .checker import Window
from .clients import TTL
from .run import BOUND
from .slot_worker import DIED, UNNUMBERED


class Figures(NamedTuple):
    """What a run came to."""

    leases: int
    most: int  # held at one instant
    excess: float  # s; in which more than k held
    faults: int
    died: int  # holders
    away: tuple[float, ...]  # s; from a holder's death to the next grant of its slot
    late: tuple[float, ...]  # s; from the time at which its key expires to that grant
    left: int  # keys that outlive the last client by more than a ttl


def begin_of(window: Window) -> int:
    """Return when it begins: what windows are sorted by."""
    return window.begin_ns


def judged(windows: list[Window], permits: int, faults: int, left: int) -> Figures:
    """Count what the processes have noted, in the order of the beginnings."""
    most, excess_ns = held_at_once(windows, permits)
    again = list(granted_again(windows))
    return Figures(
        leases=len(windows),
        most=most,
        excess=excess_ns / 1e9,
        faults=faults,
        died=sum(window.flags & DIED > 0 for window in windows),
        away=tuple(away for away, _ in again),
        late=tuple(late for _, late in again),
        left=left,
    )


def held_at_once(windows: Iterable[Window], permits: int) -> tuple[int, int]:
    """Return the most that held at one instant, and how long (ns) over k did."""
    steps: list[tuple[int, int]] = []
    for window in windows:
        if window.begin_ns < window.end_ns:
            steps += [(window.begin_ns, 1), (window.end_ns, -1)]
    held = most = excess_ns = before_ns = 0
    for at_ns, step in sorted(steps):  # an end comes before a begin of the same time
        if held > permits:
            excess_ns += at_ns - before_ns
        held, before_ns = held + step, at_ns
        most = max(most, held)
    return most, excess_ns


def granted_again(windows: list[Window]) -> Iterator[tuple[float, float]]:
    """Yield for each slot of a dead holder how long (s) it was away, and too long.

    From the death to the next grant; and from a ttl after the return of its acquire,
    when the last key of its quorum has expired, to that grant: it may come before. One
    that nobody got: inf. Those of the end of a run are left out: nobody wanted them.
    """
    dead: dict[int, Window] = {}
    for window in windows:
        if before := dead.pop(window.resource, None):
            away_ns = window.begin_ns - before.end_ns
            yield away_ns / 1e9, (window.begin_ns - before.begin_ns) / 1e9 - TTL
        if window.flags & DIED and window.resource != UNNUMBERED:
            dead[window.resource] = window
    for before in dead.values():
        if windows[-1].begin_ns - before.begin_ns > (TTL + BOUND) * 1e9:
            yield inf, inf
