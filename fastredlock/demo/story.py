"""Play the demo: a counter in a file, several processes, without and with the lock.

Four steps, each one job for the workers (`job.Work`): check that the masters are
there; increment without the lock; increment with it, while one of our own masters is
stopped and another paused; measure one worker alone. Whatever ends the demo, it ends
through the context managers of `_play`, which leave no process and no file.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from ..testing import LocalMasters
from .crew import Crew
from .errors import DemoError, ExitStatus
from .job import Work
from .scene import Condition, Phase, Scene
from .signals import Signals
from .stage import Stage, View
from .trouble import repair, trouble

LOCAL_MASTERS = 5
_CHECK_SECONDS = 3.0
_SIDE_SECONDS_MAX = 2.0  # longer shows no more: the time goes to the locked phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Hold the options of the command line; `masters` None: start our own."""

    masters: tuple[str, ...] | None
    workers: int
    seconds: float
    pause: float


def play(options: Options) -> int:
    """Play the demo and return its exit status, or raise `DemoError`."""
    signals = Signals()
    with signals.noted():
        try:
            return _play(options, signals)
        except Exception:
            signals.check()  # the failure may come from the same signal
            raise


def _play(options: Options, signals: Signals) -> int:
    scene = _first_scene(options)
    with ExitStack() as stack:
        view = stack.enter_context(closing(_open_view()))
        view.show(scene)
        folder = Path(stack.enter_context(_temporary_folder()))
        local = stack.enter_context(_local_masters()) if not options.masters else None
        crew = stack.enter_context(Crew(options.workers, folder))
        stage = Stage(
            urls=tuple(local.urls) if local else (options.masters or ()),
            resource=f"fastredlock-demo-{token_hex(8)}",
            pause=options.pause,
            folder=folder,
            crew=crew,
            scene=scene,
            view=view,
            signals=signals,
        )
        _check(stage)
        _run_phases(stage, local)
        view.report(scene)
    return int(_status(scene))


def _open_view() -> View:
    try:
        from .view import open_view  # the only module that needs rich
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


def _check(stage: Stage) -> None:
    """Take one lease, so that a fault of the masters shows at once."""
    phase = Phase(Work.CHECK, _CHECK_SECONDS)
    stage.run(phase, 1)
    if phase.outcome.misconfigured:
        raise DemoError(phase.outcome.failure, ExitStatus.CANNOT_RUN)
    _demand_leases(phase)
    scene = stage.scene
    scene.note("the masters are there, a first lease was granted")
    if scene.conditions is None:
        scene.note("these masters are yours: none is stopped or paused")
    for number, tally in enumerate(phase.outcome.masters, 1):
        if text := tally.usual_text():
            scene.note(f"master {number} ({tally.master}): {text}")


def _run_phases(stage: Stage, local: LocalMasters | None) -> None:
    scene = stage.scene
    locked = scene.phases[Work.WITH_LOCK]
    stage.run(scene.phases[Work.WITHOUT_LOCK], scene.workers)
    stage.run(locked, scene.workers, trouble(local, scene) if local else ())
    _demand_leases(locked)
    if local:
        repair(local, scene)
    stage.run(scene.phases[Work.ALONE], 1)


def _demand_leases(phase: Phase) -> None:
    if not phase.outcome.leases:
        message = phase.outcome.failure or "no lease was granted"
        raise DemoError(message, ExitStatus.UNREACHABLE)


def _status(scene: Scene) -> ExitStatus:
    lost = scene.phases[Work.WITH_LOCK].lost
    return ExitStatus.LOST_UPDATES if lost else ExitStatus.OK
