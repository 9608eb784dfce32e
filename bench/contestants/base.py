"""A contestant: one library used in one way, by one or by several numbers of callers.

Each library has a file here, with its adapters and its contestants, and is set up as
its own README recommends. The rules:

- Every pair checks its result, as far as it is visible, and raises when it is not a
  success, so that no failure is ever timed.
- All callers share one client per process. Objects per lock are built by `open()`,
  which is not timed; there each library is imported, so that a missing one costs only
  its own row.
- Replies are parsed with hiredis where that is possible; redis-py uses it of its own
  accord when it is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.harness.drivers import Adapter, AsyncAdapter, Driver, Tasks, Threads

TTL = 10.0
TTL_MS = 10_000

TASKS = (1, 10, 100, 200, 1000)
THREADS = (1, 4, 16, 64)
BATCHES = (10, 100, 1000)

# Builds the driver, in the measured process: the library's module or that of its
# replacement, URLs, one key per caller or per place in a batch.
NewDriver = Callable[[str, Sequence[str], Sequence[str]], Driver]


class NotGrantedError(RuntimeError):
    """A free lock was not granted, or not released: the figures would be worthless."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One library, used in one way.

    A size counts threads, tasks, or locks in a batch: `unit`. `libraries` are the
    distributions whose versions a report names; `needs`, modules beside the library's
    own. The floors have no driver: they are programs of their own.
    """

    label: str
    new_driver: NewDriver | None
    module: str = "fastredlock"
    unit: str = "thread"
    sizes: tuple[int, ...] = (1,)
    libraries: tuple[str, ...] = ("fastredlock",)
    needs: tuple[str, ...] = ()

    def callers(self, size: int) -> str:
        """Return a size in words."""
        if self.unit == "batch":
            return f"batches of {size:,}"
        return f"{size:,} {self.unit}{'s' if size > 1 else ''}"

    def missing(self) -> str | None:
        """Return the first module that is not there, or None."""
        return first_missing((self.module, *self.needs))


@dataclass(frozen=True, slots=True)
class Replacement:
    """A library and its module of `fastredlock.compat`, which get the same calls.

    `wanted`: for each number of callers, how many times the library's pairs/s are asked
    for. A lock of `one_master` is measured over one, however many there are.
    """

    label: str
    library: str  # the distribution
    new_driver: NewDriver
    theirs: str  # modules
    ours: str
    wanted: dict[int, float]
    one_master: bool = False

    def missing(self) -> str | None:
        """Return the first module that is not there, or None."""
        return first_missing((self.theirs, self.ours))


def threads(new_adapter: Callable[[str], Adapter]) -> NewDriver:
    """Return a builder of drivers with one thread per key."""
    return lambda module, urls, keys: Threads(
        new_adapter(module), urls, keys, callers=len(keys)
    )


def tasks(new_adapter: Callable[[str], AsyncAdapter]) -> NewDriver:
    """Return a builder of drivers with one task per key."""
    return lambda module, urls, keys: Tasks(
        new_adapter(module), urls, keys, callers=len(keys)
    )


def first_missing(modules: Sequence[str]) -> str | None:
    """Return the first module that cannot be imported, or None."""
    return next((module for module in modules if not _is_there(module)), None)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not there
        return False
