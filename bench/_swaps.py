"""Which library is measured against which replacement, and how fast that shall be.

A player is a swap, a side and a number of callers: `pottery/theirs:1`. Both sides are
the same peer, given another module: the same calls.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench._crowd_peers import PotteryTasks, RedisPyTasks, TaskPeer
from bench._drivers import Driver, Single, Tasks
from bench._peers import Peer, PotteryPeer, RedisPyPeer, RedlockPyPeer
from bench._swap_peers import AioredlockTasks, PythonRedisLockPeer

SIDES = ("theirs", "ours")
_COMPAT = "fastredlock.compat"


@dataclass(frozen=True, slots=True)
class Swap:
    """One library and its replacement.

    `wanted`: for each number of callers, how many times the library's pairs/s are asked
    for. A lock of `one_master` is measured over one, however many there are.
    """

    label: str
    library: str  # the distribution
    modules: tuple[str, str]  # theirs, ours
    wanted: dict[int, float]
    new_peer: Callable[[str], Peer] | None = None
    new_tasks: Callable[[str], TaskPeer] | None = None
    one_master: bool = False

    def players(self, name: str, callers: int) -> tuple[str, str]:
        """Return the names of both players: theirs, ours."""
        theirs, ours = (f"{name}/{side}:{callers}" for side in SIDES)
        return theirs, ours

    def missing(self) -> str | None:
        """Return the first module that is not there, or None."""
        needed = [*self.modules, *(["fastredlock.asyncio"] if self.new_tasks else [])]
        return next((module for module in needed if not _is_there(module)), None)


SWAPS: dict[str, Swap] = {
    "redlock-py": Swap(
        "redlock-py",
        "redlock-py",
        ("redlock", f"{_COMPAT}.redlock"),
        {1: 5.0},
        new_peer=RedlockPyPeer,
    ),
    "pottery": Swap(
        "pottery Redlock",
        "pottery",
        ("pottery", f"{_COMPAT}.pottery"),
        {1: 10.0},
        new_peer=PotteryPeer,
    ),
    "pottery-asyncio": Swap(
        "pottery AIORedlock",
        "pottery",
        ("pottery", f"{_COMPAT}.pottery"),
        {1: 3.0, 100: 30.0},
        new_tasks=PotteryTasks,
    ),
    "aioredlock": Swap(
        "aioredlock",
        "aioredlock",
        ("aioredlock", f"{_COMPAT}.aioredlock"),
        {1: 2.0},
        new_tasks=AioredlockTasks,
    ),
    "redis-py": Swap(
        "redis-py Lock",
        "redis",
        ("redis.lock", f"{_COMPAT}.redis"),
        {1: 1.2},
        new_peer=RedisPyPeer,
        one_master=True,
    ),
    "redis-py-asyncio": Swap(
        "redis-py asyncio Lock",
        "redis",
        ("redis.asyncio.lock", f"{_COMPAT}.redis.asyncio"),
        {1: 1.2},
        new_tasks=RedisPyTasks,
        one_master=True,
    ),
    "python-redis-lock": Swap(
        "python-redis-lock",
        "python-redis-lock",
        ("redis_lock", f"{_COMPAT}.redis_lock"),
        {1: 1.5},
        new_peer=PythonRedisLockPeer,
        one_master=True,
    ),
}


def open_swap(player: str, urls: Sequence[str], key: str) -> Driver:
    """Build a player, in the process that is measured."""
    name, _, rest = player.partition("/")
    side, _, callers = rest.partition(":")
    swap = SWAPS[name]
    module = swap.modules[SIDES.index(side)]
    if swap.new_peer is not None:
        return Single(swap.new_peer(module), urls, key)
    if swap.new_tasks is not None:
        keys = [f"{key}:{slot:05d}" for slot in range(int(callers))]
        return Tasks(swap.new_tasks(module), urls, keys, slots=len(keys))
    raise ValueError(f"{name} has no peer")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not there
        return False
