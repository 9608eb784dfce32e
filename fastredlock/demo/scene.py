"""Hold the state of a running demo: its phases, masters and events.

The demo writes it, a view shows it, whenever it likes; nothing here does any I/O.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from .job import Outcome, Work


class Condition(StrEnum):
    """The state of one of the demo's own masters."""

    UP = "up"
    STOPPED = "stopped"
    PAUSED = "paused"


class Progress(Enum):
    """How far a phase has come."""

    WAITING = 0
    RUNNING = 1
    DONE = 2


@dataclass(slots=True)
class Phase:
    """Count one phase of the demo; `seconds` is how long it is meant to run."""

    work: Work
    seconds: float
    progress: Progress = Progress.WAITING
    elapsed: float = 0.0
    increments: int = 0  # done by the workers; pairs of acquire and release if ALONE
    counter: int = 0  # as found in the file, read after the increments
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def lost(self) -> int:
        """Increments missing in the counter; while running: at least so many."""
        return max(0, self.increments - self.counter)


@dataclass(frozen=True, slots=True)
class Event:
    """Describe an event, `at` seconds after the start."""

    at: float
    text: str


@dataclass(slots=True)
class Scene:
    """Hold all of it."""

    workers: int
    phases: dict[Work, Phase]
    conditions: list[Condition] | None  # of our masters; None: the user's, left alone
    events: list[Event] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def mark(self, index: int, condition: Condition, text: str) -> None:
        """Note that one of our masters has got into this condition."""
        if self.conditions is not None:
            self.conditions[index] = condition
        self.note(f"master {index + 1} {text}")

    def note(self, text: str) -> None:
        """Add an event that happens now."""
        self.events.append(Event(time.monotonic() - self.started, text))
