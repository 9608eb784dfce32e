"""Masters and a clock in memory: `MemoryLocks`, `MemoryMasters`, `in_memory`.

A FastRedlock and its lock objects (those that decorate functions, too) hold one driver.
`in_memory` exchanges it for a driver of masters in memory, and gives it back at the
end; no call asks where it runs. The collector of CPython knows them all: nothing is
registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

from .._core import DEFAULT_RESOURCE, draw_token, registered
from .._locking.driver import Driver
from .._locking.lock import BaseLock
from .._locking.locks import BaseLocks
from .._locking.loop_driver import LoopDriver
from .._options.keys import encode_resource
from .._options.masters import Endpoint
from .._options.retry import refused, refused_type
from .._options.settings import Settings, positive_ns, settings_of_call
from .._reports.votes import shown
from ..asyncio import FastRedlock as LoopFastRedlock
from ..client import FastRedlock
from ..errors import ConfigurationError, FastRedlockError
from ._drivers import MemoryDriver, MemoryLoopDriver
from ._world import EPOCH_NS, Server, World

LONGEST = 1_000_000_000  # s


class MemoryMasters:
    """Hold `n` empty masters in this process, and a virtual clock for their users.

    `advance` moves the clock, and so does a call that has to wait if nobody else can
    act; with `auto_advance` whatever others do. All `MemoryLocks` of these masters see
    the same keys. Any thread may use them; a forked child may not.
    """

    __slots__ = ("_world",)

    def __init__(self, n: int = 3, *, auto_advance: bool = False) -> None:
        if n < 1:
            raise refused("n", n, "1 or more masters")
        self._world = World(n, auto_advance)

    @property
    def auto_advance(self) -> bool:
        """Whether a call that has to wait moves the clock; may be set at any time."""
        return self._world.auto_advance

    @auto_advance.setter
    def auto_advance(self, value: bool) -> None:
        self._world.auto_advance = value

    def time(self) -> float:
        """Return the seconds that have passed since these masters were made."""
        return (self._world.now_ns() - EPOCH_NS) / 1e9

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass: what is due meanwhile is done, each at its time.

        Calls `on_lost`, and blocks until threads whose calls end by that have returned
        from them.
        """
        until_ns = end_of(self._world, seconds)
        while self._world.advance_once(until_ns):
            pass

    def lose(self, resource: str | bytes) -> None:
        """Delete a key on every master, as an eviction or FLUSHALL does.

        A holder finds the loss at its next renewal, extension or release.
        """
        key = encode_resource(resource)
        self._change(lambda server: server.model.keys.drop(key))

    def steal(self, resource: str | bytes, *, ttl: float = 10.0) -> bytes:
        """Let another client hold a resource, for `ttl` s; return its token."""
        key, token = encode_resource(resource), draw_token()
        ttl_ms = max(positive_ns("ttl", ttl) // 1_000_000, 1)
        self._change(lambda server: server.put(key, token, ttl_ms))
        return token

    def flush(self) -> None:
        """Delete all keys on every master; the masters may vote all the same."""
        self._change(lambda server: server.model.keys.clear())

    def stop(self, i: int | str) -> None:
        """Kill master `i`, or that of a name: its connections end, its keys are lost.

        A name is the address, as messages have it.
        """
        with self._world.changed:
            self._server(i).stop()
            self._world.settle()

    def start(self, i: int | str) -> None:
        """Start master `i`, empty, if it was stopped.

        Its clients connect to it again when a quorum is missing, or after a back-off,
        by the clock.
        """
        with self._world.changed:
            if self._server(i).is_down:
                self._server(i).start()
            self._world.settle()

    def _server(self, i: int | str) -> Server:
        servers = self._world.servers
        if isinstance(i, int) and -len(servers) <= i < len(servers):
            return servers[i]
        for server in servers:
            if server.name == i:
                return server
        names = ", ".join(server.name for server in servers)
        raise ConfigurationError(f"no master {i!r}: there are {names}")

    def _change(self, change: Callable[[Server], object]) -> None:
        if not self._world.servers:
            raise FastRedlockError("in memory there is no master: make a client first")
        with self._world.changed:
            for server in self._world.servers:
                change(server)
            self._world.settle()

    @shown
    def __repr__(self) -> str:
        count = len(self._world.servers)
        return f"<MemoryMasters {count}, {self.time():.3f} s passed>"


def end_of(world: World, seconds: float) -> int:
    """Return the moment (ns) so far from now."""
    if not 0 <= seconds < LONGEST:
        raise refused("seconds", seconds, f"0 or more, below {LONGEST}")
    return world.now_ns() + int(seconds * 1e9)


class BaseMemoryLocks(BaseLocks[Any, Any, Any]):
    """Be a FastRedlock of either kind on masters in memory; see `MemoryLocks`."""

    __slots__ = ()

    masters: MemoryMasters
    _in_memory: type[Any]  # its driver

    def __init__(
        self,
        masters: MemoryMasters | None = None,
        resource: str | bytes = "fastredlock",
        *,
        auto_advance: bool = False,
        **options: Any,
    ) -> None:
        if masters is None:
            masters = MemoryMasters(auto_advance=auto_advance)
        elif not isinstance(masters, MemoryMasters):
            raise refused_type("masters", masters, "MemoryMasters")
        elif auto_advance:
            raise ConfigurationError("auto_advance: give it to the MemoryMasters")
        self.masters = masters
        world = masters._world
        urls = [f"redis://{server.name}" for server in world.servers]
        settings = settings_of_call("MemoryLocks", (urls, resource), options)
        self._driver = self._in_memory(settings, world)
        if settings.observer is not None:
            self._observe(settings.observer)

    def lose(self, resource: str | bytes = DEFAULT_RESOURCE) -> None:
        """Delete a key on every master: `MemoryMasters.lose`."""
        self.masters.lose(self._named(resource))

    def steal(
        self, resource: str | bytes = DEFAULT_RESOURCE, *, ttl: float = 10.0
    ) -> bytes:
        """Let another client hold a resource: `MemoryMasters.steal`."""
        return self.masters.steal(self._named(resource), ttl=ttl)

    def _named(self, resource: str | bytes) -> str | bytes:
        is_given = resource is not DEFAULT_RESOURCE
        return resource if is_given else self._driver.settings.resource


class MemoryLocks(BaseMemoryLocks, FastRedlock):
    """Be a `FastRedlock` for tests: without servers, and with a clock that is moved.

    All calls and options are those of `FastRedlock`; the same engine counts the votes.
    `masters`: those of other MemoryLocks, to contend with them; the default is three of
    its own, with `auto_advance` as of `MemoryMasters`. A call without a timeout raises
    RuntimeError if nobody ever releases. For tests of one process: a forked child is
    refused.
    """

    __slots__ = ("masters",)

    _in_memory = MemoryDriver

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass: `MemoryMasters.advance`."""
        self.masters.advance(seconds)


@contextmanager
def in_memory(*, auto_advance: bool = False) -> Iterator[MemoryMasters]:
    """Run every FastRedlock of this process in memory while the block runs.

    That is both kinds, made before or in the block, and the replaced libraries of
    `fastredlock.compat`. Two that name the same master (address and database) contend
    for the same keys. Yields the `MemoryMasters` of all, empty; `auto_advance` as
    there. Leases from before remain on their real masters. A second block at a time
    raises FastRedlockError.
    """
    if FastRedlock._new_driver is not Driver:
        raise FastRedlockError("in_memory() is in use already: one block at a time")
    masters = MemoryMasters(auto_advance=auto_advance)
    masters._world.servers.clear()
    exchange = Exchange(masters._world)
    faces: dict[Any, Any] = {Driver: FastRedlock, LoopDriver: LoopFastRedlock}
    try:
        for real, face in faces.items():
            face._new_driver = staticmethod(partial(exchange.new, real))
        exchange.begin()
        yield masters
    finally:
        for real, face in faces.items():
            face._new_driver = real
        exchange.end()


IN_MEMORY: dict[type, Any] = {Driver: MemoryDriver, LoopDriver: MemoryLoopDriver}


class Exchange:
    """Give the users of drivers other ones, and at the end their own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._real: dict[Any, Any] = {}  # by driver in memory: its own, or its class

    def new(self, real: Any, settings: Settings) -> Any:
        """Return a driver in memory, on masters of the same names."""
        plain = copy(settings)
        plain.endpoints = tuple(Endpoint(*each[:4]) for each in settings.endpoints)
        plain.release_script = None
        driver = IN_MEMORY[real](plain, self._world)
        driver.settings = settings  # of which a real one is made at the end
        driver.engine.has_slots = any(each.seeds for each in settings.endpoints)
        self._real[driver] = real
        return driver

    def begin(self) -> None:
        instead: dict[Any, Any] = {}
        for user, driver in users():
            if type(driver) in IN_MEMORY:
                if driver not in instead:
                    instead[driver] = new = self.new(type(driver), driver.settings)
                    new.observer = driver.observer
                    self._real[new] = driver
                user._driver = instead[driver]

    def end(self) -> None:
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
    for each in registered((BaseLocks, BaseLock)):
        yield each, getattr(each, "_driver", None)  # None: without its __init__
