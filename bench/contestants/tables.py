"""Who plays in the throughput bench, with how many callers, and what each needs.

A player is a crowd and a size, written `asyncio:200`: 200 tasks, 200 threads, or
batches of 200.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench._crowd_peers import (
    FastRedlockAwaitedBatch,
    FastRedlockBatch,
    FastRedlockTasks,
    FastRedlockThreads,
    PotteryTasks,
    PotteryThreads,
    RedisPyTasks,
    RedlockPyThreads,
    TaskPeer,
    ThreadPeer,
)
from bench._drivers import Batches, Driver, Tasks, Threads
from bench._peers import FLOOR

# Builds the driver, in the measured process: URLs, one key per caller.
NewDriver = Callable[[Sequence[str], Sequence[str]], Driver]

_TASKS = (1, 10, 100, 200, 1000)
_THREADS = (1, 4, 16, 64)
_BATCHES = (10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Crowd:
    """One contestant at several sizes."""

    label: str
    unit: str  # what a size counts: "task", "thread" or "batch"
    sizes: tuple[int, ...]
    needs: tuple[str, ...] = ()  # "module", or "module:attribute" where it is newer
    libraries: tuple[str, ...] = ()  # distributions whose versions a report names
    new_driver: NewDriver | None = None  # the floor is a program of its own

    def callers(self, size: int) -> str:
        """Return a size in words."""
        if self.unit == "batch":
            return f"batches of {size:,}"
        return f"{size:,} {self.unit}{'s' if size > 1 else ''}"

    def missing(self) -> str | None:
        """Return the first need that is not there, or None."""
        return next((need for need in self.needs if not _is_there(need)), None)


def _tasks(new_peer: Callable[[], TaskPeer]) -> NewDriver:
    return lambda urls, keys: Tasks(new_peer(), urls, keys, slots=len(keys))


def _uvloop_tasks(urls: Sequence[str], keys: Sequence[str]) -> Driver:
    peer = FastRedlockTasks()
    return Tasks(peer, urls, keys, slots=len(keys), new_loop=_new_uvloop)


def _new_uvloop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return loop


def _threads(new_peer: Callable[[], ThreadPeer]) -> NewDriver:
    return lambda urls, keys: Threads(new_peer(), urls, keys)


def _batches(urls: Sequence[str], keys: Sequence[str]) -> Driver:
    return Batches(FastRedlockBatch(), urls, keys)


def _awaited_batches(urls: Sequence[str], keys: Sequence[str]) -> Driver:
    peer = FastRedlockAwaitedBatch()
    return Tasks(peer, urls, keys, slots=1, pairs_per_call=len(keys))


_OURS = ("fastredlock",)
_AWAITABLE = "fastredlock.asyncio:FastRedlock"

CROWDS: dict[str, Crowd] = {
    FLOOR: Crowd("pipelined floor (C)", "batch", (1, *_BATCHES)),
    "each": Crowd(
        "fastredlock acquire_each",
        "batch",
        _BATCHES,
        needs=("fastredlock:FastRedlock.acquire_each",),
        libraries=_OURS,
        new_driver=_batches,
    ),
    "each-asyncio": Crowd(
        "fastredlock acquire_each, awaited",
        "batch",
        _BATCHES,
        needs=(f"{_AWAITABLE}.acquire_each",),
        libraries=_OURS,
        new_driver=_awaited_batches,
    ),
    "asyncio": Crowd(
        "fastredlock, asyncio",
        "task",
        _TASKS,
        needs=(_AWAITABLE,),
        libraries=_OURS,
        new_driver=_tasks(FastRedlockTasks),
    ),
    "uvloop": Crowd(
        "fastredlock, uvloop",
        "task",
        _TASKS,
        needs=(_AWAITABLE, "uvloop"),
        libraries=(*_OURS, "uvloop"),
        new_driver=_uvloop_tasks,
    ),
    "threads": Crowd(
        "fastredlock, blocking",
        "thread",
        _THREADS,
        libraries=_OURS,
        new_driver=_threads(FastRedlockThreads),
    ),
    "redis-py": Crowd(
        "redis-py asyncio Lock (1 master)",
        "task",
        _TASKS,
        needs=("redis",),
        libraries=("redis",),
        new_driver=_tasks(RedisPyTasks),
    ),
    "pottery": Crowd(
        "pottery AIORedlock",
        "task",
        _TASKS,
        needs=("pottery",),
        libraries=("pottery",),
        new_driver=_tasks(PotteryTasks),
    ),
    "redlock-py-threads": Crowd(
        "redlock-py",
        "thread",
        _THREADS,
        needs=("redlock",),
        libraries=("redlock-py",),
        new_driver=_threads(RedlockPyThreads),
    ),
    "pottery-threads": Crowd(
        "pottery Redlock",
        "thread",
        _THREADS,
        needs=("pottery",),
        libraries=("pottery",),
        new_driver=_threads(PotteryThreads),
    ),
}


def player_of(crowd: str, size: int) -> str:
    """Return the player's name."""
    return f"{crowd}:{size}"


def crowd_and_size(player: str) -> tuple[str, int]:
    """Take a player's name apart."""
    crowd, _, size = player.partition(":")
    return crowd, int(size)


def present(players: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return those who can play, and a note for each crowd that cannot."""
    needs = {player: CROWDS[crowd_and_size(player)[0]].missing() for player in players}
    absent = {crowd_and_size(name)[0]: need for name, need in needs.items() if need}
    return (
        [player for player in players if not needs[player]],
        [f"{CROWDS[c].label} did not play: no {need}." for c, need in absent.items()],
    )


def open_crowd(player: str, urls: Sequence[str], key: str) -> Driver:
    """Build a player, in the process that is measured."""
    crowd, size = crowd_and_size(player)
    new_driver = CROWDS[crowd].new_driver
    if new_driver is None:
        raise ValueError(f"{player} is not written in Python")
    return new_driver(urls, [f"{key}:{slot:05d}" for slot in range(size)])


def _is_there(need: str) -> bool:
    module, _, attribute = need.partition(":")
    if importlib.util.find_spec(module) is None:
        return False
    found: object = importlib.import_module(module) if attribute else None
    for name in filter(None, attribute.split(".")):
        found = getattr(found, name, None)
    return not attribute or found is not None
