"""Play the demo: a counter in a file, several processes, without and with the lock.

Four steps, each one job for the workers (`_demo_job.Work`): check that the masters are
there; increment without the lock; increment with it, while one of our own masters is
stopped and another paused; measure one worker alone. One loop, `Demo.run`, does all the
waiting. Signals are only noted, and looked at there: whatever ends the demo, it ends
through the context managers of `_play`, which leave no process and no file.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from . import _demo_trouble
from ._demo_crew import Crew
from ._demo_errors import DemoError, ExitStatus
from ._demo_job import CounterFile, Job, Work, merged
from ._demo_scene import Condition, Phase, Progress, Scene
from ._demo_signals import Signals
from .testing import LocalMasters

LOCAL_MASTERS = 5
TTL = 2.0  # s; a key stays no longer than this, if the machine goes down
_CHECK_SECONDS = 3.0
_SIDE_SECONDS_MAX = 2.0  # longer tells no more: the time goes to the locked phase
_TICK = 0.05  # s between two looks at signals, counters and the screen
_OVERTIME = 15.0  # s; a worker that is so late will not answer any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Say what the command line asked for; `masters` None: start our own."""

    masters: tuple[str, ...] | None
    workers: int
    seconds: float
    pause: float


class View(Protocol):
    """Show a scene while it goes on, and a report at its end."""

    def show(self, scene: Scene) -> None:
        """Show the scene as it is now; called every `_TICK`."""

    def report(self, scene: Scene) -> None:
        """Show what the finished demo has found."""

    def close(self) -> None:
        """Give the terminal back; nothing happens the second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Run jobs: hand them out, wait for the outcomes, keep the scene up to date."""

    options: Options
    urls: tuple[str, ...]
    resource: str
    folder: Path
    crew: Crew
    scene: Scene
    view: View
    signals: Signals

    def run(
        self, phase: Phase, size: int, acts: Sequence[_demo_trouble.Act] = ()
    ) -> None:
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
            pause=self.options.pause,
            folder=str(folder),
        )


def play(options: Options) -> int:
    """Play the demo and return its exit status, or raise `DemoError`."""
    signals = Signals()
    with signals.noted():
        try:
            return _play(options, signals)
        except Exception:
            signals.check()  # what failed may have been hit by the same signal
            raise


def _play(options: Options, signals: Signals) -> int:
    scene = _first_scene(options)
    with ExitStack() as stack:
        view = stack.enter_context(closing(_open_view()))
        view.show(scene)
        folder = Path(stack.enter_context(_temporary_folder()))
        local = stack.enter_context(_local_masters()) if not options.masters else None
        crew = stack.enter_context(Crew(options.workers, folder))
        demo = Demo(
            options=options,
            urls=tuple(local.urls) if local else (options.masters or ()),
            resource=f"fastredlock-demo-{token_hex(8)}",
            folder=folder,
            crew=crew,
            scene=scene,
            view=view,
            signals=signals,
        )
        _check(demo)
        _run_phases(demo, local)
        view.report(scene)
    return int(_status(scene))


def _open_view() -> View:
    try:
        from ._demo_view import open_view  # the only module that needs rich
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        message = "the demo needs rich: run `pip install 'fastredlock[demo]'`"
        raise DemoError(message, ExitStatus.CANNOT_RUN) from error
    return open_view()


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    # The workers remove it too when their stdin ends: this process may get SIGKILL.
    return tempfile.TemporaryDirectory(
        prefix="fastredlock-demo-", ignore_cleanup_errors=True
    )


def _local_masters() -> LocalMasters:
    try:
        return LocalMasters(LOCAL_MASTERS)
    except (OSError, RuntimeError) as error:
        raise DemoError(str(error), ExitStatus.CANNOT_RUN) from error


def _first_scene(options: Options) -> Scene:
    side = min(_SIDE_SECONDS_MAX, options.seconds / 5)
    phases = [
        Phase(Work.WITHOUT_LOCK, side),
        Phase(Work.WITH_LOCK, options.seconds - 2 * side),
        Phase(Work.ALONE, side),
    ]
    return Scene(
        workers=options.workers,
        phases={each.work: each for each in phases},
        conditions=None if options.masters else [Condition.UP] * LOCAL_MASTERS,
    )


def _check(demo: Demo) -> None:
    """Take one lease, so that what is wrong with the masters shows at once."""
    phase = Phase(Work.CHECK, _CHECK_SECONDS)
    demo.run(phase, 1)
    outcome = phase.outcome
    if outcome.misconfigured:
        raise DemoError(outcome.failure, ExitStatus.CANNOT_RUN)
    if not outcome.leases:
        raise DemoError(outcome.failure, ExitStatus.UNREACHABLE)
    demo.scene.masters = list(outcome.masters)
    demo.scene.note("the masters are there, a first lease was granted")
    if demo.options.masters:
        demo.scene.note("these masters are yours: none is stopped or paused")
    for number, (master, tally) in enumerate(outcome.masters.items(), 1):
        if tally.text:
            demo.scene.note(f"master {number} ({master}): {tally.text}")


def _run_phases(demo: Demo, local: LocalMasters | None) -> None:
    phases, everybody = demo.scene.phases, demo.options.workers
    demo.run(phases[Work.WITHOUT_LOCK], everybody)
    locked = phases[Work.WITH_LOCK]
    demo.run(locked, everybody, _demo_trouble.acts(local, demo.scene) if local else ())
    if not locked.outcome.leases:
        raise DemoError(locked.outcome.failure, ExitStatus.UNREACHABLE)
    if local:
        _demo_trouble.repair(local, demo.scene)
    demo.run(phases[Work.ALONE], 1)


def _status(scene: Scene) -> ExitStatus:
    lost = scene.phases[Work.WITH_LOCK].lost
    return ExitStatus.LOST_UPDATES if lost else ExitStatus.OK
