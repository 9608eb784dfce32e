"""The awaitable FastRedlock under the names of the blocking one.

So that one test body runs over all drivers. A loop of its own runs in a thread; each
call runs its coroutine there and waits. What interrupts the wait (a signal handler that
raises) cancels the coroutine first, and lets it end.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import uvloop

from fastredlock.asyncio import FastRedlock
from tests.support.waiting import turn

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
DRIVERS = ["blocking", *LOOPS]

T = TypeVar("T")


def run_on(kind: str, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own; nothing may be left or lost on it."""
    loop = LOOPS[kind]()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, told: complaints.append(told))
    try:
        result = loop.run_until_complete(work)
        loop.run_until_complete(turn())
        left = asyncio.all_tasks(loop)
    finally:
        loop.close()
    gc.collect()  # a lost error is reported when its task is collected
    assert not left, left
    assert not complaints, complaints
    return result


class LoopThread:
    """An event loop in a thread; `complaints` is what it was told of lost errors."""

    def __init__(self, kind: str) -> None:
        self.complaints: list[dict[str, Any]] = []
        self._kind = kind
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self.loop = LOOPS[self._kind]()
        self.loop.set_exception_handler(lambda _, told: self.complaints.append(told))
        self._thread = Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop and return what it returns; blocks."""
        return self.call(lambda: work)

    def call(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Make a coroutine on the loop, run it and return what it returns; blocks.

        Made here, one that a signal handler interrupts would be dropped before it is
        run, with a warning.
        """
        if self._pid != os.getpid():  # a forked child has no such thread
            self._begin()
        begun: list[asyncio.Task[Any]] = []
        # In C: a Future may be interrupted with its lock taken, and the loop stands.
        ended: SimpleQueue[asyncio.Task[Any]] = SimpleQueue()

        def begin() -> None:
            begun.append(self.loop.create_task(work()))
            begun[0].add_done_callback(ended.put)

        try:
            self.loop.call_soon_threadsafe(begin)
            return outcome(ended.get())
        except BaseException:
            if not (begun and begun[0].done()):  # interrupted
                with suppress(CancelledError):
                    asyncio.run_coroutine_threadsafe(
                        self._give_up(begun), self.loop
                    ).result()
            raise

    async def _give_up(self, begun: list[asyncio.Task[Any]]) -> None:
        await turn()
        for task in begun:
            task.cancel()
        await self._settle()

    async def _settle(self) -> None:
        """Wait until all other tasks have ended: those that were cancelled."""
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            cancelled = [task for task in others if task.cancelling()]
            if not cancelled:
                return
            await asyncio.wait(cancelled)

    def close(self) -> None:
        """End the loop; nothing may be left on it."""
        self.run(turn())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        self.loop.close()
        assert not left, left
        assert not self.complaints, self.complaints


def outcome(task: asyncio.Task[Any]) -> Any:
    """Return what a task that is done returned, or raise what it raised."""
    if task.cancelled():
        raise CancelledError
    return task.result()


# Methods of the awaitable client, its leases and what tells of a loss, that are awaited
# or need the loop. All other calls are made at once, where the test is.
ON_LOOP = {
    *("acquire", "acquire_all", "acquire_each", "release_each", "extend_each"),
    *("holders", "break_", "connect", "ping", "close", "extend", "release", "wait"),
    "keep_alive",
}


class Awaited:
    """An awaitable object behind a blocking face; what its calls return is one, too.

    `run` runs to its end the coroutine that a function makes.
    """

    def __init__(
        self,
        run: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any],
        awaitable: Any,
    ) -> None:
        vars(self).update(_run=run, _awaitable=awaitable)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._awaitable, name)
        if name == "lost":
            return Awaited(self._run, value)
        if not callable(value) or isinstance(value, type):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            if name.endswith("_each"):
                arguments = tuple(map(bare, arguments))
            if name in ON_LOOP:
                work = partial(awaited, value, *arguments, **options)
                return self._faced(self._run(work))
            result = value(*arguments, **options)
            if inspect.isawaitable(result):
                result = self._run(partial(awaited, lambda: result))
            return self._faced(result)

        return call

    def _faced(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._faced(each) for each in result]
        if result is self._awaitable:
            return self
        is_block = hasattr(result, "__aenter__")
        return Awaited(self._run, result) if is_block else result

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._awaitable, name, value)

    def __repr__(self) -> str:
        return repr(self._awaitable)

    def __reduce__(self) -> Any:
        return self._awaitable.__reduce__()

    def __enter__(self) -> Any:
        return self._faced(self._run(partial(awaited, self._awaitable.__aenter__)))

    def __exit__(self, *error: Any) -> Any:
        return self._run(partial(awaited, self._awaitable.__aexit__, *error))


async def awaited(method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    result = method(*arguments, **options)
    return await result if inspect.isawaitable(result) else result


def bare(leases: Any) -> Any:
    """Return leases without their blocking faces."""
    if isinstance(leases, Awaited):
        return leases._awaitable
    if isinstance(leases, str | bytes) or not isinstance(leases, Iterable):
        return leases
    return [getattr(lease, "_awaitable", lease) for lease in leases]


def awaited_locks(thread: LoopThread, *args: Any, **options: Any) -> Any:
    return Awaited(thread.call, FastRedlock(*args, **options))
