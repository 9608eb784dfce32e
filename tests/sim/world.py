"""Virtual time: a heap of events, one seeded source of chance, clocks that differ.

Everything that happens is an event at an int64 of true nanoseconds. Nothing here or
above reads a real clock or draws from anything but `World.random`, so one seed is one
run; `World.digest` is a checksum of all that happened, to prove it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

MS = 1_000_000
S = 1_000_000_000
EPOCH_NS = 1_700_000_000 * S


class World:
    """Run events in the order of their times; equal times in the order of making."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = 0
        self.digest = 0
        self.events = 0
        self.log: list[str] | None = None  # a list: keep the story
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, when_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something at a true time, not before now."""
        self._made += 1
        if when_ns < self.now_ns:
            when_ns = self.now_ns
        heappush(self._heap, (when_ns, self._made, action, arguments))

    def run(self, until_ns: int) -> None:
        """Let time pass up to a true time, and no further."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            self.now_ns, made, action, arguments = heappop(heap)
            self.events += 1
            self.digest = hash((self.digest, self.now_ns, made))
            action(*arguments)
        self.now_ns = until_ns

    def tell(self, text: str) -> None:
        """Add a line to the story, where one is kept."""
        if self.log is not None:
            self.log.append(f"{self.now_ns / 1e9:12.6f}  {text}")

    def between(self, low: int, high: int) -> int:
        """Draw an int from low..high - 1, small ones more often, as times are."""
        draw = self.random.random()
        return low + int((high - low) * draw * draw)

    def chance(self, probability: float) -> bool:
        """Draw whether something happens."""
        return self.random.random() < probability


class Clock:
    """A clock that runs too fast or too slow by `rate_ppm`, and may be set."""

    def __init__(self, origin_ns: int, rate_ppm: int) -> None:
        self.origin_ns = origin_ns
        self.rate_ppm = rate_ppm

    def read(self, true_ns: int) -> int:
        """Return what it shows at a true time."""
        return self.origin_ns + true_ns + true_ns * self.rate_ppm // 1_000_000

    def true_at(self, shown_ns: int) -> int:
        """Return the first true time at which it shows this or more."""
        true_ns = (shown_ns - self.origin_ns) * 1_000_000 // (1_000_000 + self.rate_ppm)
        while self.read(true_ns) < shown_ns:
            true_ns += 1
        while self.read(true_ns - 1) >= shown_ns:
            true_ns -= 1
        return true_ns
