"""The drivers of masters in memory: one that blocks, and one that is awaited."""

from __future__ import annotations

import asyncio
from _thread import LockType, get_ident
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from .._core import AsyncioDriver, Batch, Round
from .._locking.driver import Driver
from .._locking.loop_driver import LoopDriver
from .._locking.validity import Validity
from .._options.settings import Settings
from ._world import POLL, EngineByHand, World

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, TimerHandle

    Waiting = tuple["Future[int]", Callable[[], bool], Callable[[], int]]


class MemoryDriver(Driver):
    """Run rounds on masters in memory; any number of threads may."""

    __slots__ = ("_by_hand", "now_ns", "world")

    def __init__(self, settings: Settings, world: World) -> None:
        super().__init__(settings)
        self.runs_in_core = False
        self.world = world
        self.now_ns = world.now_ns  # type: ignore[method-assign]
        self._by_hand = EngineByHand(self, world)

    def run(self, work: Round | Batch) -> None:
        """Run a round or a batch until it is closed; a lost one is rolled back.

        Blocks where it has to wait. Raises FastRedlockError after close().
        """
        world = self.world
        world.check_process()
        with world.changed:
            try:
                limit_ns = self._by_hand.submit(work, get_ident())
                if not work.is_finished:
                    world.wait_until(lambda: work.is_finished, limit_ns)
                self._by_hand.deliver(work)
            except BaseException:
                self._by_hand.withdraw(work)
                raise
        world.call()
        if self.engine.unlogged:
            self.log_warnings()

    def abandon(self, work: Round | Batch) -> None:
        self._by_hand.withdraw(work)

    def sleep(self, seconds: float) -> None:
        self._wait(int(seconds * 1e9), lambda: False)

    def wait(self, gate: LockType, ns: int) -> None:
        self._wait(ns, lambda: not gate.locked())
        gate.acquire(blocking=False)

    def _wait(self, ns: int, is_woken: Callable[[], bool]) -> None:
        world = self.world
        with world.changed:
            until_ns = world.now_ns() + ns
            world.sleepers.append(until_ns)
            try:
                world.wait_until(
                    lambda: world.now_ns() >= until_ns or is_woken(),
                    self._by_hand.limit(get_ident()),
                )
            finally:
                world.sleepers.remove(until_ns)
        world.call()

    def keep(self, kept: Validity) -> Any:
        return self._by_hand.keep(self, kept)

    def close(self) -> None:
        self._by_hand.close()


class MemoryLoopDriver(LoopDriver):
    """Run rounds on masters in memory, for the tasks of one loop."""

    __slots__ = ("by_hand", "now_ns", "world")

    def __init__(self, settings: Settings, world: World) -> None:
        super().__init__(settings)
        self.runs_in_core = False
        self.world = world
        self.now_ns = world.now_ns  # type: ignore[method-assign]
        self.by_hand = EngineByHand(self, world)

    def _take_over(
        self, old: AsyncioDriver | None, loop: AbstractEventLoop
    ) -> AsyncioDriver:
        if old is not None and not old.is_over():
            return super()._take_over(old, loop)  # which raises
        self.world.check_process()
        self.current = here = cast("AsyncioDriver", Here(self, loop))
        return here

    def keep(self, kept: Validity) -> Any:
        return self.by_hand.keep(self, kept)

    def call_later(
        self, loop: AbstractEventLoop, ns: int, callback: Callable[[], None]
    ) -> TimerHandle:
        sleep: Future[Any] = cast("Here", self.here()).sleep(ns / 1e9)
        sleep.add_done_callback(lambda _: callback())
        return cast("TimerHandle", sleep)  # of which cancel() is used

    async def close(self) -> None:
        self.here()
        self.by_hand.close()


class Here:
    """Replace the core's AsyncioDriver, on one loop."""

    def __init__(self, driver: MemoryLoopDriver, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._by_hand, self._world = driver.by_hand, driver.world
        self.abandon = driver.by_hand.withdraw
        self._waiting: list[Waiting] = []

    def is_here(self) -> bool:
        """Whether this loop runs in this thread; RuntimeError where none does."""
        return asyncio.get_running_loop() is self.loop

    def is_over(self) -> bool:
        return self.loop.is_closed()

    def caller(self) -> object:
        task = asyncio.current_task()
        return None if task is None else ref(task)

    def submit(self, work: Round | Batch) -> Future[int]:
        self._world.check_process()
        with self._world.changed:
            limit_ns = self._by_hand.submit(work, id(asyncio.current_task()))
            return self._wait(
                lambda: work.is_finished, lambda: self._deliver(work), limit_ns
            )

    def sleep(self, seconds: float) -> Future[int]:
        world = self._world
        with world.changed:
            until_ns = world.now_ns() + int(seconds * 1e9)
            world.sleepers.append(until_ns)
            limit_ns = self._by_hand.limit(id(asyncio.current_task()))
            future = self._wait(lambda: world.now_ns() >= until_ns, lambda: 0, limit_ns)
        future.add_done_callback(lambda _: world.sleepers.remove(until_ns))
        return future

    def retire(self) -> None:
        """Leave nothing on the loop: there is nothing."""

    leave = retire

    def _deliver(self, work: Round | Batch) -> int:
        self._by_hand.deliver(work)
        return len(self._by_hand.engine.unlogged)

    # --- waiting ----------------------------------------------------------------------

    def _wait(
        self, is_over: Callable[[], bool], result: Callable[[], int], limit_ns: int
    ) -> Future[int]:
        """Return a future that has the result once that is so."""
        world, loop = self._world, self.loop
        future: Future[int] = loop.create_future()
        if world.calls:
            loop.call_soon(world.call)
        if is_over():
            future.set_result(result())
            return future
        loop.call_soon(self._advance, future, limit_ns)
        if not self._waiting:
            world.wakes.append(self._wake)
        self._waiting.append((future, is_over, result))
        return future

    def _wake(self) -> None:
        """Let the loop look at those who wait: in any thread, at each settling."""
        if any(is_over() for _, is_over, _ in self._waiting):
            with suppress(RuntimeError):  # the loop was closed
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        world, waiting = self._world, self._waiting
        with world.changed:
            for each in tuple(waiting):
                future, is_over, result = each
                if future.done() or is_over():
                    waiting.remove(each)
                    if not future.done():
                        future.set_result(result())
            if not waiting and self._wake in world.wakes:
                world.wakes.remove(self._wake)
        world.call()

    def _advance(self, future: Future[int], limit_ns: int) -> None:
        """Move the clock for one that waits, a step in each iteration of the loop."""
        if future.done():
            return
        try:
            has_moved = self._world.advance_for(limit_ns, self.loop)
        except RuntimeError as error:
            future.set_exception(error)
            return
        self.loop.call_later(0 if has_moved else POLL, self._advance, future, limit_ns)
