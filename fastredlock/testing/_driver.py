"""The blocking driver of masters in memory."""

from __future__ import annotations

from _thread import LockType, get_ident
from typing import Any

from .._core import Batch, Round
from .._locking.driver import Driver
from .._locking.validity import Kept
from .._options.settings import Settings
from ._client import Client
from ._keeper import MemoryKeeper
from ._world import World


class MemoryDriver(Driver):
    """Run rounds on masters in memory; any number of threads may."""

    __slots__ = ("_client", "now_ns", "world")

    def __init__(self, settings: Settings, world: World) -> None:
        super().__init__(settings)
        self.runs_in_core = False
        self.world = world
        self.now_ns = world.now_ns  # type: ignore[method-assign]
        self._client = Client(self, world)
        world.add(self._client)

    def run(self, work: Round | Batch) -> None:
        """Run a round or a batch until it is closed; a lost one is rolled back.

        Blocks where it has to wait. Raises FastRedlockError after close().
        """
        world, client = self.world, self._client
        world.check_process()
        with world.changed:
            limit_ns = client.limit(get_ident(), work)
            try:
                client.submit(work)
                if not work.is_finished:
                    world.wait_until(lambda: work.is_finished, limit_ns)
                client.deliver(work)
            except BaseException:
                client.withdraw(work)
                raise
        world.call()
        if self.engine.unlogged:
            self.log_warnings()

    def abandon(self, work: Round | Batch) -> None:
        """Roll back a round or a batch whose caller has left."""
        with self.world.changed:
            self._client.withdraw(work)

    def sleep(self, seconds: float) -> None:
        """Wait until the clock has come so far."""
        self._wait(self.now_ns() + int(seconds * 1e9), None)

    def wait(self, gate: LockType, ns: int) -> None:
        """Wait until the gate is released, or the clock has come so far."""
        self._wait(self.now_ns() + ns, gate)
        gate.acquire(blocking=False)

    def _wait(self, until_ns: int, gate: LockType | None) -> None:
        world = self.world
        with world.changed:
            world.sleepers.append(until_ns)
            try:
                world.wait_until(
                    lambda: (
                        world.now_ns() >= until_ns
                        or (gate is not None and not gate.locked())
                    ),
                    self._client.limit(get_ident()),
                )
            finally:
                world.sleepers.remove(until_ns)
        world.call()

    def keep(self, kept: Kept) -> Any:
        """Keep a lease from now on, or look at its times again; does not block."""
        with self.world.changed:
            if self._client.keeper is None:
                self._client.keeper = MemoryKeeper(self, self._client)
            self._client.keeper.keep(kept)
            return self._client.keeper

    def close(self) -> None:
        """Close all connections."""
        with self.world.changed:
            self._client.close()
