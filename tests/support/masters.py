"""Do one thing to the first masters of several."""

from __future__ import annotations

from fastredlock.testing import LocalMasters, MemoryMasters


def stop(masters: LocalMasters | MemoryMasters, count: int) -> None:
    for i in range(count):
        masters.stop(i)


def start(masters: LocalMasters | MemoryMasters, count: int) -> None:
    for i in range(count):
        masters.start(i)


def pause(masters: LocalMasters, count: int) -> None:
    for i in range(count):
        masters.pause(i)


def resume(masters: LocalMasters, count: int) -> None:
    for i in range(count):
        masters.resume(i)
