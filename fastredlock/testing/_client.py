"""One client of masters in memory: its engine, and the bytes from and to them.

The engine is the one that ships, driven by hand: what a socket would carry is handed
over here, in order, in no time. Nothing is decided here.
"""

from __future__ import annotations

import time

from .._core import (
    Batch,
    Engine,
    Operation,
    Round,
    by_hand_all_outgoing,
    by_hand_begin_close,
    by_hand_end_close,
    by_hand_engine,
    by_hand_hand_on,
    by_hand_return,
    by_hand_submit,
    by_hand_take_events,
    by_hand_withdraw,
)
from .._locking.driver import CLOSED, BaseDriver
from ..errors import FastRedlockError
from ._keeper import MemoryKeeper
from ._server import Connection
from ._world import World

ALL_QUIET = (1 << 64) - 1
REFUSED = "connection refused"


class Client:
    """The engine of one `MemoryLocks`; used under the lock of its masters."""

    def __init__(self, driver: BaseDriver, world: World) -> None:
        self.engine: Engine = driver.engine
        self.world = world
        self.keeper: MemoryKeeper | None = None
        self._begun = by_hand_engine(self.engine)
        self._limits: dict[int, int] = {}  # by caller
        self._servers = [world.server(each.name) for each in driver.settings.endpoints]
        self._connections: list[Connection | None] = [None] * len(self._servers)

    # --- rounds -----------------------------------------------------------------------

    def submit(self, work: Round | Batch) -> None:
        """Run a round or a batch, as far as that takes no time."""
        self.world.settle()
        self.begin(work)
        self.world.settle()

    def begin(self, work: Round | Batch) -> None:
        """Begin a round or a batch; raise FastRedlockError after close()."""
        rounds = [work] if isinstance(work, Round) else work.rounds
        is_release = bool(rounds) and rounds[0].operation is Operation.RELEASE
        if self.engine.is_closed and not is_release:
            raise FastRedlockError(CLOSED)
        now_ns = self.world.now_ns()
        if by_hand_hand_on(self.engine, work, now_ns) is None:
            by_hand_submit(self.engine, work, now_ns)

    def limit(self, caller: int, work: Round | Batch | None = None) -> int:
        """Return when the timeout of a call ends; without one when the call began."""
        now_ns, at = self.world.now_ns(), work if isinstance(work, Round) else None
        is_later = at and (at.attempt > 1 or at.operation is Operation.INSPECT)
        if work is not None and not is_later:
            self.world.called_at = time.monotonic()
            self._limits[caller] = now_ns + max(at.left_ns if at else 0, 0)
        return self._limits.get(caller, now_ns)

    def deliver(self, work: Round | Batch) -> None:
        """Check the validity at the return to the caller; undo one that is over."""
        by_hand_return(self.engine, work, self.world.now_ns())
        self.world.settle()

    def withdraw(self, work: Round | Batch) -> None:
        """Roll back what its caller has given up; a release is sent."""
        by_hand_withdraw(self.engine, work, self.world.now_ns())
        self.world.settle()

    def close(self) -> None:
        """Close all connections; what is under way ends."""
        if not self.engine.is_closed:
            by_hand_begin_close(self.engine, self.world.now_ns())
            self.world.settle()
            by_hand_end_close(self.engine, self.world.now_ns())
            for index in range(len(self._connections)):
                self._drop(index)

    # --- bytes ------------------------------------------------------------------------

    def step(self) -> bool:
        """Move the bytes that are there, take what is due; return whether any moved."""
        arrivals, quiet = self._arrivals()
        by_hand_take_events(self.engine, arrivals, quiet, self.world.now_ns())
        sent = self._send()
        return bool(arrivals) or sent or bool(self._begun)

    def _arrivals(self) -> tuple[list[tuple[int, bool, bytes, str]], int]:
        arrivals: list[tuple[int, bool, bytes, str]] = []
        quiet = ALL_QUIET
        for index in self._open():
            arrivals.append((index, False, b"", REFUSED))
            quiet &= ~(1 << index)
        for index, connection in enumerate(self._connections):
            if connection is None:
                continue
            is_new = not connection.is_reported
            if is_new or connection.inbox or connection.error:
                arrivals.append((index, is_new, connection.inbox, connection.error))
                quiet &= ~(1 << index)
                connection.is_reported, connection.inbox = True, b""
            if connection.error:
                self._drop(index)
        return arrivals, quiet

    def _open(self) -> list[int]:
        """Connect where the engine has begun to; return those that refuse."""
        refused = []
        while self._begun:
            index = self._begun.pop(0)
            self._drop(index)
            server = self._servers[index]
            if server.is_down:
                refused.append(index)
            else:
                self._connections[index] = server.connect()
        return refused

    def _send(self) -> bool:
        outgoing = by_hand_all_outgoing(self.engine) or ()
        for index, data in outgoing:
            connection = self._connections[index]
            if connection is not None:
                connection.send(data)
        return bool(outgoing)

    def _drop(self, index: int) -> None:
        connection = self._connections[index]
        if connection is not None:
            connection.drop()
        self._connections[index] = None
