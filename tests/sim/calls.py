"""The calls that ship, of both clients, over the driver of a model machine.

A blocking call runs in a greenlet of its own, which the worker resumes; an awaited
one is a coroutine, whose steps are the worker's. So what runs is what users run: first
tries, the attempts behind them, extensions, releases and the ends of bodies, in C and
in Python. Only the bytes, the clock and the sleep are the simulator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

import fastredlock.asyncio
from fastredlock import FastRedlock
from fastredlock._core import ClosedError, DriverFields, Round
from fastredlock._locking.driver import CLOSED, Driver
from fastredlock._locking.loop_driver import LoopDriver
from fastredlock.errors import FastRedlockError

from .world import SLEEP, Steps

if TYPE_CHECKING:
    from fastredlock._locking.validity import Validity

    from .process import Process


def new_locks(process: Process) -> Any:
    """Return the client of a process: of its threads, or of the tasks of its loop."""
    settings = copy(process.settings)
    settings.new_token, settings.token_source = process.new_token, None
    kind: Any = fastredlock.asyncio.FastRedlock if process.is_sharing else FastRedlock
    locks = kind.__new__(kind)
    side: Any = LoopSide if process.is_sharing else ThreadSide
    locks._driver = side(process, settings)
    return locks


def calls_of(process: Process, call: Callable[[], Any]) -> Iterator[Any]:
    """Make a call; yield its steps, return what it returns."""
    if process.is_sharing:
        returned = yield from call().__await__()
    else:
        returned = yield from in_greenlet(call)
    return returned


def in_greenlet(call: Callable[[], Any]) -> Iterator[Any]:
    """Run a function that blocks; yield the steps that it waits for."""
    child = greenlet(call)
    step = child.switch()
    while not child.dead:
        try:
            yield step
        except BaseException as error:
            step = child.throw(error)
        else:
            step = child.switch()
    return step


def block(steps: Steps) -> Any:
    """Do steps inside of a function that blocks, each by the worker that resumes it."""
    hub = getcurrent().parent
    try:
        step = next(steps)
        while True:
            try:
                hub.switch(step)
            except BaseException as error:
                step = steps.throw(error)  # type: ignore[attr-defined]
            else:
                step = next(steps)
    except StopIteration as end:
        return end.value


class ThreadSide(Driver):
    """What a blocking call asks of its driver."""

    __slots__ = ("process",)

    def __init__(self, process: Process, settings: Any) -> None:
        DriverFields.__init__(self, settings, process.engine)
        self.runs_in_core = False
        self.process = process

    def now_ns(self) -> int:
        return self.process.now_ns()

    def run(self, work: Any) -> None:
        try:
            block(self.process.run(work))
        except ClosedError as error:
            self.refuse(error)

    def abandon(self, work: Any) -> None:
        self.process.undo(work)

    def sleep(self, seconds: float) -> None:
        block(sleeping(seconds))

    def keep(self, kept: Validity) -> None:
        self.process.keep(kept)


class LoopSide(LoopDriver):
    """What an awaited call asks of its driver; the loop's part is played by `Here`."""

    __slots__ = ("process",)

    def __init__(self, process: Process, settings: Any) -> None:
        DriverFields.__init__(self, settings, process.engine)
        self.runs_in_core = False
        self.process = process
        self.current: Any = Here(process)

    def now_ns(self) -> int:
        return self.process.now_ns()

    def here(self) -> Any:
        return self.current

    def keep(self, kept: Validity) -> None:
        self.process.keep(kept)

    def __del__(self) -> None:
        """Leave nothing on a loop: there is none."""


class Here:
    """Stand in the place of the core's AsyncioDriver."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def is_here(self) -> bool:
        return True

    def caller(self) -> None:
        return None

    def submit(self, work: Round) -> Awaited:
        if self.process.engine.is_closed:
            raise ClosedError("closed")
        return Awaited(self.process.run(work))

    def sleep(self, seconds: float) -> Awaited:
        return Awaited(sleeping(seconds))

    def abandon(self, work: Round) -> None:
        self.process.undo(work)


class Awaited:
    """What a task awaits; the worker does its steps."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __await__(self) -> Iterator[Any]:
        try:
            yield from self._steps
        except ClosedError as error:  # another task closes before the first step
            raise FastRedlockError(CLOSED) from error
        return 0  # warnings that are not logged yet


def sleeping(seconds: float) -> Steps:
    yield SLEEP, int(seconds * 1e9)
