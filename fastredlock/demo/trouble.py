"""Make trouble for the demo's own masters, and repair it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
    return [
        Act(0.25, partial(_stop, masters, scene)),
        Act(0.50, partial(_pause, masters, scene)),
    ]


def repair(masters: LocalMasters, scene: Scene) -> None:
    """Bring both back. No lease may be out: a restarted master has forgotten them."""
    masters.start(_STOPPED)
    masters.resume(_PAUSED)
    scene.conditions = [Condition.UP for _ in masters.urls]
    scene.note(f"master {_STOPPED + 1} started again, master {_PAUSED + 1} resumed")


def _stop(masters: LocalMasters, scene: Scene) -> None:
    masters.stop(_STOPPED)
    _mark(scene, _STOPPED, Condition.STOPPED)
    scene.note(f"master {_STOPPED + 1} stopped: it refuses connections")


def _pause(masters: LocalMasters, scene: Scene) -> None:
    masters.pause(_PAUSED)
    _mark(scene, _PAUSED, Condition.PAUSED)
    scene.note(f"master {_PAUSED + 1} paused (SIGSTOP): it accepts, but never answers")


def _mark(scene: Scene, index: int, condition: Condition) -> None:
    if scene.conditions is not None:
        scene.conditions[index] = condition
