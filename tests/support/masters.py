"""Do one thing to the first masters of several."""

from __future__ import annotations

from fastredlock.testing import LocalMasters


def stop(masters: LocalMasters, count: int) -> None:
    """Kill the first `count` masters."""
    for i in range(count):
        masters.stop(i)


def start(masters: LocalMasters, count: int) -> None:
    """Start the first `count` masters, empty."""
    for i in range(count):
        masters.start(i)


def pause(masters: LocalMasters, count: int) -> None:
    """Freeze the first `count` masters."""
    for i in range(count):
        masters.pause(i)


def resume(masters: LocalMasters, count: int) -> None:
    """Let the first `count` masters go on."""
    for i in range(count):
        masters.resume(i)
