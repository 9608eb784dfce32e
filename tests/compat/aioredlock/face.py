"""aioredlock, theirs or ours, on a loop that the tests drive."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from tests.compat.face import LoopFace
from tests.support.keys import KEY
from tests.support.waiting import until, wait_until

PAIR = ("aioredlock", "fastredlock.compat.aioredlock")
BRIEF = 0.2  # s; of a lock that is over soon


class Face(LoopFace):
    """The module, a loop, and the managers that a test made."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._managers: list[Any] = []
        if not self.is_ours:
            self.loop.set_exception_handler(leave_unsaid)

    def manager(self, connections: Any = None, **options: Any) -> Any:
        """Make an Aioredlock, with one try unless told otherwise."""

        async def make() -> Any:
            options.setdefault("retry_count", 1)
            return self.Aioredlock(connections or self.urls, **options)

        self._managers.append(self.run(make()))
        return self._managers[-1]

    def lock(self, timeout: float = 5, *identifier: Any, of: Any = None) -> Any:
        """Take the lock, by default with a manager of its own."""
        return self.run((of or self.manager()).lock(KEY, timeout, *identifier))

    def brief(self, key: str = KEY, of: Any = None) -> Any:
        """Take a lock that is over soon; again where its replies took 10 ms."""
        manager, taken = of or self.manager(), list[Any]()

        def take() -> bool:
            with suppress(self.LockError):
                taken.append(self.run(manager.lock(key, BRIEF)))
            return bool(taken)

        assert wait_until(take)
        return taken[0]

    def wait(self, seconds: float) -> None:
        """Let the tasks in the background go on: nothing may happen in this time."""
        self.run(asyncio.sleep(seconds))  # so there is nothing to wait for

    def until(self, claim: Any, within: float = 8.0) -> bool:
        """Let the tasks in the background go on until this is true."""
        with suppress(AssertionError):
            self.run(until(claim, within))
            return True
        return False

    def is_extended(self, servers: Any = None, within_ms: int = 1500) -> bool:
        """Return whether the time left on these servers grows, of a lock of 2 s."""
        servers = servers or self.servers
        for server in servers:
            server.pexpire(KEY, within_ms)

        def has_grown() -> bool:
            return bool(min(each.pttl(KEY) for each in servers) > within_ms)

        return self.until(has_grown, within_ms / 1000 + 0.5)  # else the keys are gone

    def close(self) -> None:
        async def end() -> None:
            for manager in self._managers:
                await manager.destroy()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self.run(end())
        super().close()


def leave_unsaid(*_: object) -> None:
    """Log nothing of the tasks that theirs forgets.

    They are garbage at any time, and their tracebacks are made with `ast.parse`, which
    in CPython 3.11 must not run inside of another one, as of pytest's reports.
    """
