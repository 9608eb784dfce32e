"""Virtual time: a list of events, one seeded source of chance, clocks that differ.

Everything that happens is an event at an int64 of true nanoseconds. Nothing here or
above reads a real clock or draws from anything but `World.random`, so one seed is one
run; `World.digest` is a checksum of the run, to prove it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

MS = 1_000_000
S = 1_000_000_000
EPOCH_NS = 1_700_000_000 * S
PPM = 1_000_000
FOREVER_NS = 1 << 62

# What the generator of a worker yields, and what the world does then:
CHECKPOINT = ("checkpoint", 0)  # between two lines: it may be paused or interrupted
SLEEP = "sleep"  # with ns: it sleeps for so long
WAIT = "wait"  # with a time of this machine's clock (ns): poll(2), up to then
MUTEX = "mutex"  # with 0: until the round is finished, or nobody leads
Steps = Iterator[tuple[str, int]]


class World:
    """Run events in the order of their times; equal times in the order of making."""

    __slots__ = ("_agenda", "_made", "fraction", "log", "now_ns", "random")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fraction = self.random.random
        self.now_ns = 0
        self.log: list[str] | None = None  # a list: keep the story
        # What is to come, the next event last; equal times in the order of making.
        self._agenda: list[tuple[int, Callable[..., None], Any]] = []
        self._made = 0

    @property
    def events(self) -> int:
        return self._made - len(self._agenda)

    @property
    def digest(self) -> int:
        """A checksum: all that happens draws, or makes events."""
        return hash((self.random.getstate()[1], self._made, self.now_ns))

    def at(
        self, when_ns: int, action: Callable[..., None], argument: Any = None
    ) -> None:
        """Do something at a true time, not before now."""
        self._made += 1
        if when_ns < self.now_ns:
            when_ns = self.now_ns
        agenda, low, high = self._agenda, 0, len(self._agenda)
        while low < high:
            middle = (low + high) // 2
            entry = agenda[middle]
            other_ns = entry[0]
            if other_ns > when_ns:
                low = middle + 1
            else:
                high = middle
        agenda.insert(low, (when_ns, action, argument))

    def run(self, until_ns: int, until_made: int = FOREVER_NS) -> None:
        """Let time pass up to a true time, and no further.

        It ends earlier when more events than `until_made` have been made since it all
        began.
        """
        agenda = self._agenda
        while agenda:
            entry = agenda[-1]
            when_ns = entry[0]
            if when_ns > until_ns:
                break
            if self._made > until_made:
                return
            agenda.pop()
            self.now_ns = when_ns
            if entry[2] is None:
                entry[1]()
            else:
                entry[1](entry[2])
        self.now_ns = until_ns

    def tell(self, text: str) -> None:
        if self.log is not None:
            self.log.append(f"{self.now_ns / 1e9:12.6f}  {text}")

    def between(self, low: int, high: int) -> int:
        """Draw an int from low..high - 1, small ones more often, as times are."""
        draw = self.fraction()
        return low + int((high - low) * draw * draw)

    def chance(self, probability: float) -> bool:
        return self.fraction() < probability


class Clock:
    """A clock that runs too fast or too slow by `rate_ppm`, and may be set."""

    __slots__ = ("origin_ns", "rate_ppm")

    def __init__(self, origin_ns: int, rate_ppm: int) -> None:
        self.origin_ns = origin_ns
        self.rate_ppm = rate_ppm

    def read(self, true_ns: int) -> int:
        return self.origin_ns + true_ns * (1_000_000 + self.rate_ppm) // 1_000_000

    def true_at(self, shown_ns: int) -> int:
        """Return the first true time at which it shows this or more."""
        return -((self.origin_ns - shown_ns) * PPM // (PPM + self.rate_ppm))
