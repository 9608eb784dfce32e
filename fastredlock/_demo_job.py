"""Say what the demo asks of a worker process and what that answers.

One `Job` is one JSON line on the worker's stdin, its `Outcome` one JSON line on the
worker's stdout. While a job runs, the two look at the same `CounterFile`s instead:
the one counter everybody increments, and per worker the increments it has done.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any


class Work(str, Enum):
    """What a worker does for one job."""

    CHECK = "check"  # take and release one lease: are the masters there?
    WITHOUT_LOCK = "without the lock"
    WITH_LOCK = "with the lock"
    ALONE = "one worker alone"  # acquire, release, nothing between, no contention


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Tell one worker what to do, on which masters, for how long."""

    work: Work
    masters: tuple[str, ...]
    resource: str
    ttl: float
    seconds: float
    pause: float  # seconds between reading and writing the counter
    folder: str

    def to_line(self) -> bytes:
        """Return the job as one line of JSON."""
        return json.dumps(self, default=_fields).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Job:
        """Return the job that `to_line` wrote."""
        values = json.loads(line)
        masters, work = tuple(values.pop("masters")), Work(values.pop("work"))
        return cls(masters=masters, work=work, **values)


@dataclass(slots=True)
class MasterTally:
    """Count what one master voted, `Vote` name by `Vote` name."""

    counts: Counter[str] = field(default_factory=Counter)
    text: str = ""  # the last error this master gave, or ""


@dataclass(slots=True)
class Outcome:
    """Count what one worker did in one job; `merged` adds up several workers'."""

    leases: int = 0
    taken: int = 0  # rounds that found it taken
    expired: int = 0  # leases over before the write, which then was not done
    failures: int = 0  # acquires that raised
    failure: str = ""  # the last one's message
    misconfigured: bool = False  # it was a ConfigurationError
    seconds: float = 0.0
    acquire_us: Counter[int] = field(default_factory=Counter)  # whole µs -> times seen
    release_us: Counter[int] = field(default_factory=Counter)
    masters: dict[str, MasterTally] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """Return the outcome as one line of JSON."""
        return json.dumps(self, default=_fields).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Outcome:
        """Return the outcome that `to_line` wrote."""
        values = json.loads(line)
        for name in ("acquire_us", "release_us"):  # JSON has made the keys strings
            values[name] = Counter({int(us): n for us, n in values[name].items()})
        values["masters"] = {
            master: MasterTally(Counter(tally["counts"]), tally["text"])
            for master, tally in values["masters"].items()
        }
        return cls(**values)


def _fields(record: Any) -> dict[str, Any]:
    # Not asdict(): before Python 3.12 it breaks a Counter.
    return {each.name: getattr(record, each.name) for each in fields(record)}


def merged(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the sum of `outcomes`; `seconds` is the longest, texts are the last."""
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
        for master, tally in each.masters.items():
            into = total.masters.setdefault(master, MasterTally())
            into.counts += tally.counts
            into.text = tally.text or into.text
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
    add, write is three steps, and whoever comes between them has its update lost.
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
