"""The jobs of the demo for a worker process, and the outcomes it sends back.

Both are pickled. While a job runs, demo and worker look at the same `CounterFile`s:
the one counter everybody increments, and per worker the increments it has done.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Work(StrEnum):
    """The work of one job."""

    CHECK = "check"  # take and release one lease: are the masters there?
    WITHOUT_LOCK = "without the lock"
    WITH_LOCK = "with the lock"
    ALONE = "one worker alone"  # acquire, release, nothing between, no contention


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Give one worker its work, the masters, and the time."""

    work: Work
    masters: tuple[str, ...]
    resource: str
    ttl: float
    seconds: float
    pause: float  # seconds between reading and writing the counter
    folder: str


_TEXTS_MAX = 20  # per master; a text can hold a number, and so be new every time


@dataclass(slots=True)
class MasterTally:
    """Count the votes of one master, and their texts."""

    master: str
    counts: Counter[str] = field(default_factory=Counter)  # by the names of `Vote`
    texts: Counter[str] = field(default_factory=Counter)

    def add(self, vote: str, text: str | None) -> None:
        """Count one vote."""
        self.counts[vote] += 1
        if text and (text in self.texts or len(self.texts) < _TEXTS_MAX):
            self.texts[text] += 1

    def usual_text(self) -> str:
        """Return the most frequent text; "" if there was none."""
        return self.texts.most_common(1)[0][0] if self.texts else ""


@dataclass(slots=True)
class Outcome:
    """Count the results of one worker in one job; `merged` adds up several workers'."""

    leases: int = 0
    taken: int = 0  # rounds that found it taken
    expired: int = 0  # leases over before the write, which then was not done
    failures: int = 0  # acquires that raised
    failure: str = ""  # the last one's message
    misconfigured: bool = False  # it was a ConfigurationError
    seconds: float = 0.0
    acquire_us: Counter[int] = field(default_factory=Counter)  # whole µs -> times seen
    release_us: Counter[int] = field(default_factory=Counter)
    masters: list[MasterTally] = field(default_factory=list)  # as configured, or none

    def tally(self, index: int, master: str) -> MasterTally:
        """Return the tally of a master, new if it is the next one."""
        if index == len(self.masters):
            self.masters.append(MasterTally(master))
        return self.masters[index]


def merged(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the sum of `outcomes`; `seconds` is the longest, `failure` the last."""
    total = Outcome()
    for each in outcomes:
        total.leases += each.leases
        total.taken += each.taken
        total.expired += each.expired
        total.failures += each.failures
        total.failure = each.failure or total.failure
        total.misconfigured |= each.misconfigured
        total.seconds = max(total.seconds, each.seconds)
        total.acquire_us += each.acquire_us
        total.release_us += each.release_us
        for index, tally in enumerate(each.masters):
            into = total.tally(index, tally.master)
            into.counts += tally.counts
            into.texts += tally.texts
    return total


def percentile_us(times_us: Counter[int], percent: float) -> int | None:
    """Return the time that `percent` of `times_us` do not exceed; None if empty."""
    left = times_us.total() * percent / 100
    for us in sorted(times_us):
        left -= times_us[us]
        if left <= 0:
            return us
    return None


class CounterFile:
    """Keep one number in a file that several processes read and write.

    Eight bytes, one system call each way: a reader never sees half a number, yet read,
    add, write is three steps, and another worker between them loses its update.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """Return the number; 0 in a new file."""
        return int.from_bytes(os.pread(self._fd, 8, 0), "little")

    def write(self, value: int) -> None:
        """Replace the number."""
        os.pwrite(self._fd, value.to_bytes(8, "little"), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
