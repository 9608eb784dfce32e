"""Make trouble for the demo's own masters, and repair it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..testing import LocalMasters
from .scene import Condition, Scene

_STOPPED, _PAUSED = 1, 3  # which of the masters; three of five are left: a quorum


@dataclass(frozen=True, slots=True)
class Act:
    """Do something once `at` of a phase (0.0 … 1.0) is over."""

    at: float
    do: Callable[[], None]


def trouble(masters: LocalMasters, scene: Scene) -> list[Act]:
    """Return the faults to cause: one master stops, later another hangs."""

    def stop() -> None:
        masters.stop(_STOPPED)
        scene.mark(_STOPPED, Condition.STOPPED, "stopped: it refuses connections")

    def pause() -> None:
        masters.pause(_PAUSED)
        text = "paused (SIGSTOP): it accepts, but never answers"
        scene.mark(_PAUSED, Condition.PAUSED, text)

    return [Act(0.25, stop), Act(0.50, pause)]


def repair(masters: LocalMasters, scene: Scene) -> None:
    """Bring both back. No lease may be out: a restarted master has forgotten them."""
    masters.start(_STOPPED)
    masters.resume(_PAUSED)
    scene.conditions = [Condition.UP for _ in masters.urls]
    scene.note(f"master {_STOPPED + 1} started again, master {_PAUSED + 1} resumed")
