"""Run a phase of the demo: the one place where the demo waits.

Signals are only noted, and looked at here, at every tick (`signals`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .crew import Crew
from .errors import DemoError, ExitStatus
from .job import CounterFile, Job, merged
from .scene import Phase, Progress, Scene
from .signals import Signals
from .trouble import Act

TTL = 2.0  # s; a key stays no longer than this, if the machine goes down
_TICK = 0.05  # s between two looks at signals, counters and the screen
_OVERTIME = 15.0  # s; a worker that is so late will not answer any more


class View(Protocol):
    """Show a scene while it goes on, and a report at its end."""

    def show(self, scene: Scene) -> None:
        """Show the scene as it is now; called every `_TICK`."""

    def report(self, scene: Scene) -> None:
        """Show the results of the finished demo."""

    def close(self) -> None:
        """Give the terminal back; nothing happens the second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Run phases: hand out the jobs, wait, keep the scene up to date."""

    urls: tuple[str, ...]
    resource: str
    pause: float  # s between reading and writing the counter
    folder: Path
    crew: Crew
    scene: Scene
    view: View
    signals: Signals

    def run(self, phase: Phase, size: int, acts: Sequence[Act] = ()) -> None:
        """Let `size` workers do `phase`, and do each of `acts` in its time."""
        folder = self.folder / phase.work.name
        folder.mkdir()
        counter = CounterFile(folder / "counter")
        tallies = [CounterFile(folder / f"worker-{n + 1}") for n in range(size)]
        to_do, outcomes = list(acts), None
        self.crew.start(self._job(phase, folder), size)
        started = time.monotonic()
        phase.progress = Progress.RUNNING
        while outcomes is None:
            outcomes = self.crew.wait(_TICK)
            self.signals.check()
            elapsed = time.monotonic() - started
            if outcomes is None and elapsed > phase.seconds + _OVERTIME:
                raise DemoError("a worker does not answer", ExitStatus.WORKER_DIED)
            while to_do and elapsed >= to_do[0].at * phase.seconds:
                to_do.pop(0).do()
            phase.elapsed = min(elapsed, phase.seconds)
            phase.increments = sum(tally.read() for tally in tallies)
            phase.counter = counter.read()
            self.view.show(self.scene)
        phase.outcome, phase.progress = merged(outcomes), Progress.DONE
        self.view.show(self.scene)
        for file in (counter, *tallies):
            file.close()

    def _job(self, phase: Phase, folder: Path) -> Job:
        return Job(
            work=phase.work,
            masters=self.urls,
            resource=self.resource,
            ttl=TTL,
            seconds=phase.seconds,
            pause=self.pause,
            folder=str(folder),
        )
