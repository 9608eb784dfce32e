"""`in_memory`: every FastRedlock of a program runs in memory for a while.

A FastRedlock and its lock objects (those that decorate functions, too) hold one driver.
It is exchanged for a driver of masters in memory, and given back at the end; no call
asks where it runs. The collector of CPython knows them all: nothing is registered.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

from .._locking.driver import Driver
from .._locking.lock import BaseLock
from .._locking.locks import BaseLocks
from .._options.masters import Endpoint
from .._options.settings import Settings
from ..client import FastRedlock
from ..errors import ConfigurationError, FastRedlockError
from ._driver import MemoryDriver
from ._masters import MemoryMasters
from ._world import World


@contextmanager
def in_memory(*, auto_advance: bool = False) -> Iterator[MemoryMasters]:
    """Run every FastRedlock of this process in memory while the block runs.

    Those that block and those that are awaited, made before or in the block, those of
    a module's head, their decorators, and the replaced libraries of
    `fastredlock.compat`. Two that name the same master (address and database) contend
    for the same keys. Yields the `MemoryMasters` of all, empty; `auto_advance` as
    there. Logins and TLS are not used, and our release runs in place of a
    `release_script`. Leases from before remain on their real masters. One block at a
    time: FastRedlockError.
    """
    from .._locking.loop_driver import LoopDriver
    from ..asyncio import FastRedlock as LoopFastRedlock
    from ._loop_driver import MemoryLoopDriver

    if FastRedlock._new_driver is not Driver:
        raise FastRedlockError("in_memory() is in use already: one block at a time")
    masters = MemoryMasters(auto_advance=auto_advance)
    masters._world.servers.clear()
    exchange = Exchange(masters._world)
    exchange.kinds = {Driver: MemoryDriver, LoopDriver: MemoryLoopDriver}
    locks: dict[type, Any] = {Driver: FastRedlock, LoopDriver: LoopFastRedlock}
    try:
        for real, kind in locks.items():
            kind._new_driver = staticmethod(partial(exchange.new, real))
        exchange.begin()
        yield masters
    finally:
        for real, kind in locks.items():
            kind._new_driver = real
        exchange.end()


class Exchange:
    """Give the users of drivers other ones, and at the end their own."""

    kinds: dict[type, Any]  # the driver in memory for each real one

    def __init__(self, world: World) -> None:
        self._world = world
        self._real: dict[Any, Any] = {}  # by driver in memory: its own, or its class

    def new(self, real: Any, settings: Settings) -> Any:
        """Return a driver in memory, on masters of the same names."""
        plain = copy(settings)
        plain.endpoints = tuple(Endpoint(*each[:4]) for each in settings.endpoints)
        plain.release_script = None
        driver = self.kinds[real](plain, self._world)
        driver.settings = settings  # of which a real one is made at the end
        self._real[driver] = real
        return driver

    def begin(self) -> None:
        """Replace all real drivers."""
        instead: dict[Any, Any] = {}
        for user, driver in users():
            if type(driver) in self.kinds:
                if driver not in instead:
                    instead[driver] = new = self.new(type(driver), driver.settings)
                    new.observer = driver.observer
                    self._real[new] = driver
                user._driver = instead[driver]

    def end(self) -> None:
        """Replace all drivers that were made here."""
        for user, driver in users():
            real = self._real.get(driver)
            if isinstance(real, type):  # of a FastRedlock that was made meanwhile
                try:
                    self._real[driver] = real = real(driver.settings)
                except ConfigurationError:  # TLS files that were not read here
                    continue
                real.observer = driver.observer
            if real is not None:
                user._driver = real


def users() -> Iterator[tuple[Any, Any]]:
    """Yield each FastRedlock and each lock object, with its driver."""
    for each in gc.get_objects():
        # Not isinstance, which asks lazy objects of others for their class.
        if issubclass(type(each), BaseLocks | BaseLock):
            yield each, getattr(each, "_driver", None)  # None: without its __init__
