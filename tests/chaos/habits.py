"""What a worker does next, drawn: which call, which resources, how long it holds."""

from __future__ import annotations

import random
from typing import NamedTuple

from .ledger import RESOURCES

CALLS = (
    *("own", "acquire", "acquire", "acquire", "lock", "lock", "each", "all"),
    *("slot", "slot", "semaphore", "read", "read", "read"),
)
KEEPS = ("keep", "keep", "keep_read", "keep_lock", "keep_lock", "keep_semaphore")
WORK = (0.0, 0.0, 0.001, 0.002, 0.005, 0.02)  # s
HOT_WORK = (0.0, 0.0, 0.001)
LONG_SHARE = 0.04
LONG_WORK = (0.2, 0.5, 1.2)  # s; the last is longer than the ttl
TIMEOUTS = (0.0, 0.3, 0.3)
HOT_SHARE, HOT = 0.5, 2  # the last resources: callers of one process wait for them
KEEPERS = 0.15  # of the workers: half of what they do is with a lease that is kept
KEPT_WORK = (0.5, 1.5, 2.5, 4.0)  # s; most are longer than the ttl
SEMAPHORES = ((3,), (2,), (1,), (2, 4))  # of the last, clients want one of 2 or of 4
SLOTS = sum(map(max, SEMAPHORES))


class Semaphore(NamedTuple):
    """What a worker wants one slot of; its slots are resources from `first` on."""

    name: str
    permits: int
    first: int

    def number(self, slot: int) -> int:
        if not 0 <= slot < self.permits:
            raise ValueError(f"slot {slot} of {self}")
        return self.first + slot


class Habits:
    """The draws of one worker."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._is_hot = False
        self._keeps = random.Random(f"{seed}/keeps").random() < KEEPERS

    def call(self) -> str:
        if self._keeps and self._random.random() < 0.5:
            return self._random.choice(KEEPS)
        return self._random.choice(CALLS)

    def resource(self) -> int:
        """Draw a resource; the first ones are wanted more often."""
        return int(RESOURCES * self._random.random() ** 2)

    def wanted(self) -> int:
        """Draw one to wait for: often one that many want at the same time."""
        self._is_hot = self._random.random() < HOT_SHARE
        if self._is_hot:
            return RESOURCES - 1 - self._random.randrange(HOT)
        return self.resource()

    def several(self, most: int) -> tuple[int, ...]:
        count = self._random.randrange(2, most + 1)
        return tuple(sorted({self.resource() for _ in range(count)}))

    def semaphore(self) -> Semaphore:
        """Draw a semaphore, and how many slots it has for this caller."""
        place = self._random.randrange(len(SEMAPHORES))
        permits = self._random.choice(SEMAPHORES[place])
        self._is_hot = self._random.random() < HOT_SHARE
        first = RESOURCES + sum(map(max, SEMAPHORES[:place]))
        return Semaphore(f"chaos:slots:{place}", permits, first)

    def work(self) -> float:
        """Draw how long to hold (s)."""
        if self._is_hot:
            self._is_hot = False
            return self._random.choice(HOT_WORK)
        is_long = self._random.random() < LONG_SHARE
        return self._random.choice(LONG_WORK if is_long else WORK)

    def kept_work(self) -> float:
        return self._random.choice(KEPT_WORK)

    def timeout(self) -> float:
        """Draw how long to wait for others (s)."""
        return self._random.choice(TIMEOUTS)

    def pause(self) -> float:
        """Draw how long to leave it after a failure (s)."""
        return self._random.uniform(0.001, 0.01)

    def extends(self) -> bool:
        """Draw whether to extend in the middle of the work."""
        return self._random.random() < 0.2


def name_of(resource: int) -> str:
    return f"chaos:{resource}"
