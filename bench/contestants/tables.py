"""The tables of contestants, and the names of their processes.

An entry is the task of one process, with `size` threads, tasks or places in a
batch: `redlock-py` (one caller), `asyncio:200` (one of many sizes), or
`pottery/ours:1` (a library or its replacement).
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.contestants import (
    aioredlock,
    fastredlock,
    node_redlock,
    pottery,
    python_redis_lock,
    redis_py,
    redlock_py,
)
from bench.contestants.base import BATCHES, Contestant, Replacement
from bench.harness.drivers import Driver
from bench.harness.servers import has_command

FLOOR = "floor"
NODE = "node-redlock"
NATIVE_FLOOR = "floor-native"  # on servers that compare and delete in one command
OURS = "fastredlock"
BY_NAME_ALONE = [*fastredlock.BY_NAME_ALONE]  # ours with numbers, or observers

# Their order is that of the tables and of the run: those compared closest are adjacent.
ONE_CALLER: dict[str, Contestant] = {
    FLOOR: Contestant("floor (C)", None, libraries=()),
    NATIVE_FLOOR: Contestant("floor with DELIFEQ (C)", None, libraries=()),
    OURS: fastredlock.ONE_CALLER,
    **fastredlock.BY_NAME_ALONE,
    "redis-py": redis_py.ONE_CALLER,
    "redlock-py": redlock_py.MANY_THREADS,
    "pottery": pottery.MANY_THREADS,
    NODE: node_redlock.ONE_CALLER,
}
MANY_CALLERS: dict[str, Contestant] = {
    FLOOR: Contestant(
        "pipelined floor (C)", None, unit="batch", sizes=(1, *BATCHES), libraries=()
    ),
    NATIVE_FLOOR: Contestant(
        "pipelined floor with DELIFEQ (C)",
        None,
        unit="batch",
        sizes=(1, *BATCHES),
        libraries=(),
    ),
    **fastredlock.MANY_CALLERS,
    "redis-py": redis_py.MANY_TASKS,
    "pottery": pottery.MANY_TASKS,
    "redlock-py-threads": redlock_py.MANY_THREADS,
    "pottery-threads": pottery.MANY_THREADS,
    NODE: node_redlock.MANY_CALLERS,
}
REPLACEMENTS: dict[str, Replacement] = (
    redlock_py.REPLACEMENTS
    | pottery.REPLACEMENTS
    | aioredlock.REPLACEMENTS
    | redis_py.REPLACEMENTS
    | python_redis_lock.REPLACEMENTS
)


def size_of(entry: str) -> int:
    """Return how many callers, or places in a batch, an entry has."""
    return int(entry.partition(":")[2] or 1)


def contestant_of(entry: str) -> Contestant:
    """Return the contestant of an entry that is no replacement."""
    name, has_size, _ = entry.partition(":")
    return (MANY_CALLERS if has_size else ONE_CALLER)[name]


def words_of(entry: str) -> str:
    """Return an entry in words, as `fastredlock, asyncio, 200 tasks`."""
    contestant = contestant_of(entry)
    return f"{contestant.label}, {contestant.callers(size_of(entry))}"


def sides_of(replacement: str, callers: int) -> tuple[str, str]:
    """Return the entries of a library and of its replacement."""
    return f"{replacement}/theirs:{callers}", f"{replacement}/ours:{callers}"


def present(entries: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the entries that can run, and a note for each contestant that cannot."""
    missing = {entry: contestant_of(entry).missing() for entry in entries}
    notes = {
        f"{contestant_of(entry).label} was left out: no module {module}.": None
        for entry, module in missing.items()
        if module
    }
    return [entry for entry in entries if not missing[entry]], [*notes]


def for_server(entries: Sequence[str], url: str) -> list[str]:
    """Return the entries without the floors whose command this server lacks."""
    has_native = has_command(url, "DELIFEQ")
    return [
        entry for entry in entries if has_native or not entry.startswith(NATIVE_FLOOR)
    ]


def libraries_of(entries: Sequence[str]) -> list[str]:
    """Return the distributions of some entries, sorted."""
    return sorted(
        {each for entry in entries for each in contestant_of(entry).libraries}
    )


def open_entry(entry: str, urls: Sequence[str], key: str) -> Driver:
    """Build the driver of an entry, in the process that is measured."""
    keys = [f"{key}:{slot:05d}" for slot in range(size_of(entry))]
    name, is_replacement, side = entry.partition("/")
    if is_replacement:
        both = REPLACEMENTS[name]
        module = both.ours if side.startswith("ours:") else both.theirs
        return both.new_driver(module, urls, keys)
    contestant = contestant_of(entry)
    if contestant.new_driver is None:
        raise ValueError(f"{entry} is not written in Python")
    return contestant.new_driver(contestant.module, urls, keys)
