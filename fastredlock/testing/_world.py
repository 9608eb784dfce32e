"""The world of masters in memory: servers, their clients, and the clock of all.

Theory of operation. The clock never moves by itself. A call takes no time: its bytes
are handed over until nobody has any more (`settle`). `advance` moves the clock from one
moment at which something is due to the next, and settles at each: timers of rounds,
renewals of leases that are kept, delays between attempts. A call that has to wait (the
resource is taken, a quorum is missing) waits for another thread or task that releases,
or that moves the clock. Where none will (`_patience`), and with `auto_advance` always,
it moves the clock itself.

One lock (`changed`) guards all of it. `on_lost` is called outside of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from ._patience import WORKING, patience
from ._server import Server

if TYPE_CHECKING:
    from ._client import Client

EPOCH_NS = 1_700_000_000_000_000_000
NEVER_NS = (1 << 63) - 1
POLL = 0.01  # s of real time, between two looks at what others do
LONGEST_WAIT = 900  # s of the virtual clock, of a call without a timeout
SETTLED = 100_000  # steps at one moment


class World:
    """Hold the servers, the clients and the clock; see `MemoryMasters`."""

    def __init__(self, n: int, auto_advance: bool) -> None:
        self._now_ns = EPOCH_NS
        self.auto_advance = auto_advance
        self.changed = threading.Condition(threading.RLock())
        self.called_at = time.monotonic()  # in real time, the last call of anybody
        self.calls: list[Callable[[], None]] = []  # of on_lost, to be made
        self.sleepers: list[int] = []  # when their delays end
        self.servers: list[Server] = []
        for index in range(n):
            self.server(f"memory-{index}:6379")
        self.wakes: list[Callable[[], None]] = []  # of event loops, at each settling
        self.waiting: dict[int, Callable[[], bool]] = {}  # by thread: is it over?
        self._clients: list[ReferenceType[Client]] = []
        self._owner = os.getpid()

    # --- the clock --------------------------------------------------------------------

    def now_ns(self) -> int:
        """Read the clock."""
        return self._now_ns

    def next_ns(self) -> int:
        """Return when something is due, NEVER_NS if nothing is."""
        due = [NEVER_NS, *self.sleepers]
        for each in self._clients:
            if client := each():
                due.append(client.engine.next_ns)
                if client.keeper and (kept_ns := client.keeper.next_ns) is not None:
                    due.append(kept_ns)
        return min(due)

    def advance_once(self, until_ns: int) -> bool:
        """Go to the next moment at which something is due; False: it is `until_ns`."""
        with self.changed:
            self._now_ns = max(self._now_ns, min(self.next_ns(), until_ns))
            self.settle()
            # No other that moves the clock waits for this thread: it would for long.
            waits = self.waiting.pop(threading.get_ident(), None)
            self.changed.wait_for(self._have_all_left, WORKING)
            if waits:
                self.waiting[threading.get_ident()] = waits
            is_over = self._now_ns >= until_ns
        self.call()
        return not is_over

    def advance_for(self, limit_ns: int, loop: Any = None) -> bool:
        """Move the clock for a call that waits; False: others may still act.

        `limit_ns`: when its timeout ends, or when it began; RuntimeError long after it.
        """
        left = (limit_ns - self._now_ns) / 1e9
        if left < -LONGEST_WAIT:
            raise RuntimeError(
                f"a call has waited for {LONGEST_WAIT} s of the virtual clock, and "
                "nobody releases what it waits for: give it a timeout, or release"
            )
        if not self.auto_advance:
            quiet = time.monotonic() - self.called_at
            if quiet < min(patience(self.waiting, loop), left if left > 0 else WORKING):
                return False
        self.advance_once(self.next_ns())
        return True

    def _have_all_left(self) -> bool:
        return not any(is_over() for is_over in self.waiting.values())

    # --- the servers and their clients ------------------------------------------------

    def server(self, name: str) -> Server:
        """Return the server of this name; the first call starts it."""
        for server in self.servers:
            if server.name == name:
                return server
        self.servers.append(Server(name, len(self.servers), self.now_ns))
        return self.servers[-1]

    def add(self, client: Client) -> None:
        """Take a client in."""
        with self.changed:
            self._clients = [each for each in self._clients if each() is not None]
            self._clients.append(ref(client))

    def check_process(self) -> None:
        """Raise RuntimeError in a forked child: its masters are others than these."""
        if os.getpid() != self._owner:
            raise RuntimeError(
                "MemoryMasters are those of one process, and this is a child of it: "
                "use fastredlock.testing.LocalMasters"
            )

    def settle(self) -> None:
        """Do all that takes no time, of all clients."""
        for _ in range(SETTLED):
            clients = [client for each in self._clients if (client := each())]
            moved = [client.step() for client in clients]
            kept = [client.keeper.step() for client in clients if client.keeper]
            if not any(moved) and not any(kept):
                break
        for wake in self.wakes:
            wake()
        self.changed.notify_all()

    def wait_until(self, is_over: Callable[[], bool], limit_ns: int) -> None:
        """Block, with the lock, until that is so; `limit_ns` as of `advance_for`."""
        thread = threading.get_ident()
        outer = self.waiting.get(thread)
        self.waiting[thread] = is_over
        try:
            while not is_over():
                if not self.advance_for(limit_ns):
                    self.changed.wait(POLL)
        finally:
            self.waiting.pop(thread, None)
            if outer is not None:
                self.waiting[thread] = outer
            self.changed.notify_all()

    def call(self) -> None:
        """Make the calls of `on_lost`."""
        while self.calls:
            self.calls.pop(0)()
