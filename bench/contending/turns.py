"""What the stamps of all callers of one lock show: who had it when, and who waited.

Every caller stamps its own turns by CLOCK_MONOTONIC, which all processes of a machine
share: before it asks, when it has the lock, and before it gives it back. So the time
between two stamps lies inside the time for which the lock was held, and two turns that
overlap are a lock held twice. Nothing here reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

STALL_NS = 100_000_000  # a free lock with waiters that nobody takes for so long
RECORD = Struct("=4q")  # in a log: caller of the process from 1 (0: none), three stamps


class Turn(NamedTuple):
    """One use of the lock; a stamp of 0 was never reached. Callers count from 0."""

    process: int
    caller: int  # over all processes
    wanted_ns: int
    granted_ns: int
    released_ns: int


@dataclass(frozen=True, slots=True)
class Window:
    """Callers begin together at `begin_ns`, and ask no more from `end_ns`.

    What is counted lies between `start_ns` and `end_ns`.
    """

    begin_ns: int
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Return the length of the part that counts."""
        return (self.end_ns - self.start_ns) / 1e9

    def counts(self, stamp_ns: int) -> bool:
        """Return whether a stamp is in the part that counts."""
        return self.start_ns <= stamp_ns < self.end_ns


def turns_of(log: bytes, process: int, callers: int) -> Iterator[Turn]:
    """Read the log of a process, as `worker` writes it, up to the first unused row."""
    for caller, *stamps in RECORD.iter_unpack(log):
        if not caller:
            break
        yield Turn(process, process * callers + caller - 1, *stamps)


@dataclass(frozen=True, slots=True)
class Run:
    """All turns of one window. `updates`: where the counter under the lock ended.

    `notes`: which processes failed.
    """

    window: Window
    callers: int
    turns: Sequence[Turn]
    updates: int
    notes: Sequence[str] = ()

    def grants(self) -> list[int]:
        """Return the grants inside the window of each caller, one that has none too."""
        counts = [0] * self.callers
        for turn in self.turns:
            counts[turn.caller] += self.window.counts(turn.granted_ns)
        return counts

    def rate(self) -> float:
        """Return the grants per second."""
        return sum(self.grants()) / self.window.seconds

    def fairness(self) -> float:
        """Return the grants of the caller with the fewest over those of the most."""
        grants = self.grants()
        return min(grants) / max(1, *grants)

    def gaps_ns(self) -> list[int]:
        """Return the times from a release to the grant of another process."""
        return [
            after.granted_ns - before.released_ns
            for before, after in self._hand_overs()
            if before.process != after.process
        ]

    def stalls(self) -> int:
        """Return how often the lock was free for `STALL_NS` although some waited.

        From the release, or from when the first of them came, whichever is later.
        """
        return sum(
            after.granted_ns - max(before.released_ns, self._first_wanted_ns(after))
            >= STALL_NS
            for before, after in self._hand_overs()
            if after.granted_ns - before.released_ns >= STALL_NS
        )

    def longest_wait_ns(self) -> int:
        """Return the longest wait that ended in the window, or was not over with it."""
        start_ns, end_ns = self.window.start_ns, self.window.end_ns
        waits = [0]
        for turn in self.turns:
            until_ns = min(turn.granted_ns or end_ns, end_ns)
            if until_ns >= start_ns:
                waits.append(until_ns - turn.wanted_ns)
        return max(waits)

    def overlaps(self) -> int:
        """Return how many turns, counted or not, began before an earlier one ended."""
        overlaps, free_ns = 0, 0
        for turn in _in_order(self.turns):
            overlaps += turn.granted_ns < free_ns
            free_ns = max(free_ns, turn.released_ns)
        return overlaps

    def lost_updates(self) -> int:
        """Return how many turns raised the counter, and another one undid it."""
        return max(0, sum(turn.released_ns > 0 for turn in self.turns) - self.updates)

    def _first_wanted_ns(self, taken: Turn) -> int:
        """Return since when somebody waited, just before a turn was granted."""
        return min(
            turn.wanted_ns
            for turn in self.turns
            if turn.granted_ns >= taken.granted_ns or not turn.granted_ns
        )

    def _hand_overs(self) -> Iterator[tuple[Turn, Turn]]:
        """Yield each turn with the next one; the grant of that one counts."""
        for before, after in pairwise(_in_order(self.turns)):
            if self.window.counts(after.granted_ns) and (
                0 < before.released_ns <= after.granted_ns
            ):
                yield before, after


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the value that so many percent do not exceed; None of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def _in_order(turns: Sequence[Turn]) -> list[Turn]:
    granted = [turn for turn in turns if turn.granted_ns]
    return sorted(granted, key=lambda turn: turn.granted_ns)
