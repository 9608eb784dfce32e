"""The world of masters in memory: servers, their clients, and the clock of all.

Theory of operation. The clock never moves by itself, and a call takes no time: its
bytes are handed over until nobody has any more (`settle`). `advance` moves the clock
from one moment at which something is due to the next, and settles at each. A call that
has to wait waits for another thread or task that releases, or that moves the clock.
Where all of them wait here (`is_alone`), after PATIENCE of real time, and with
`auto_advance` always, it moves the clock itself. The engines are those that ship,
driven by hand.

One lock (`changed`) guards all of it. `on_lost` is called outside of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, ref

from hiredis import Reader

from .._core import (
    Batch,
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
from .._locking.keeper import BaseKeeper, Calls
from .._locking.validity import Validity
from .._options import scripts
from ..errors import FastRedlockError
from ._model import Model

EPOCH_NS = 1_700_000_000_000_000_000
NEVER_NS = (1 << 63) - 1
POLL = 0.01  # s of real time, between two looks at what others do
PATIENCE = 10.0  # s of real time: so long others may act before a call moves the clock
LONGEST_WAIT = 900  # s of the virtual clock, of a call without a timeout
SETTLED = 100_000  # steps at one moment
UPTIME_S = 100_000_000
MARKERS = scripts.MARKER, scripts.MARKER_SHA1
INCOMPLETE = object()
ALL_QUIET = (1 << 64) - 1
REFUSED = "connection refused"


class World:
    """Hold the servers, the engines and the clock; see `MemoryMasters`."""

    def __init__(self, n: int, auto_advance: bool) -> None:
        self._now_ns = EPOCH_NS
        self.auto_advance = auto_advance
        self.changed: threading.Condition = threading.Condition(threading.RLock())
        self.called_at: float = time.monotonic()  # in real time: anybody's last call
        self.calls: list[Callable[[], None]] = []  # of on_lost, to be made
        self.sleepers: list[int] = []  # when their delays end
        self.servers: list[Server] = []
        for index in range(n):
            self.server(f"memory-{index}:6379")
        self.wakes: list[Callable[[], None]] = []  # of event loops, at each settling
        self.waiting: dict[int, Callable[[], bool]] = {}  # by thread: is it over?
        self.engines: list[ReferenceType[EngineByHand]] = []
        self._owner = os.getpid()

    # --- the clock --------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._now_ns

    def next_ns(self) -> int:
        """Return when something is due, NEVER_NS if nothing is."""
        due = [NEVER_NS, *self.sleepers]
        for each in self.engines:
            if engine := each():
                due.append(engine.engine.next_ns)
                if engine.keeper and (kept_ns := engine.keeper.next_ns) is not None:
                    due.append(kept_ns)
        return min(due)

    def advance_once(self, until_ns: int) -> bool:
        """Go to the next moment at which something is due; False: it is `until_ns`."""
        with self.changed:
            self._now_ns = max(self._now_ns, min(self.next_ns(), until_ns))
            self.settle()
            # No other that moves the clock waits for this thread: it would for long.
            waits = self.waiting.pop(threading.get_ident(), None)
            self.changed.wait_for(
                lambda: not any(left() for left in self.waiting.values()), PATIENCE
            )
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
        if not (self.auto_advance or is_alone(self.waiting, loop)):
            quiet = time.monotonic() - self.called_at
            if quiet < (min(left, PATIENCE) if left > 0 else PATIENCE):
                return False
        self.advance_once(self.next_ns())
        return True

    # --- the servers and the engines --------------------------------------------------

    def server(self, name: str) -> Server:
        """Return the server of this name; the first call starts it."""
        for server in self.servers:
            if server.name == name:
                return server
        self.servers.append(Server(name, len(self.servers), self.now_ns))
        return self.servers[-1]

    def check_process(self) -> None:
        """Raise RuntimeError in a forked child: its masters are others than these."""
        if os.getpid() != self._owner:
            raise RuntimeError(
                "MemoryMasters are those of one process, and this is a child of it: "
                "use fastredlock.testing.LocalMasters"
            )

    def settle(self) -> None:
        for _ in range(SETTLED):
            engines = [engine for each in self.engines if (engine := each())]
            moved = [engine.step() for engine in engines]
            kept = [engine.keeper.step() for engine in engines if engine.keeper]
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


def is_alone(waiting: dict[int, Callable[[], bool]], loop: Any) -> bool:
    """Return whether all others wait here: `waiting` as of World, `loop` of the task.

    Of other threads and of a loop with connections or timers nobody knows: False.
    """
    for thread in threading.enumerate():
        is_over = waiting.get(thread.ident or 0)
        if thread.ident != threading.get_ident() and (is_over is None or is_over()):
            return False
    return loop is None or (
        not getattr(loop, "_ready", True)  # True: no loop of asyncio
        and len(loop._selector.get_map()) == 1  # its own pipe
        and all(
            timer.cancelled() or getattr(timer._callback, "__name__", "") == "_advance"
            for timer in loop._scheduled
        )
    )


# --- servers --------------------------------------------------------------------------


class Server:
    """One master: a model, with a run and connections; `clock` is its wall clock."""

    def __init__(self, name: str, index: int, clock: Callable[[], int]) -> None:
        self.name: str = name
        self._index, self._clock = index, clock
        self.model: Model = Model()
        self.connections: list[Connection] = []
        self._starts = 0
        self.start()
        self._has_voted_for_long = True

    def start(self) -> None:
        """Begin a process: a new run id, no scripts, no keys."""
        self._starts += 1
        run_id = b"%020x%020x" % (self._index, self._starts)
        self.model.start(run_id, self._clock() // 10**9 - UPTIME_S)
        self.model.keys.clear()
        self._has_voted_for_long = False
        self.is_down: bool = False

    def stop(self) -> None:
        """End the process, with its connections."""
        self.is_down = True
        for connection in self.connections:
            connection.error = connection.error or "connection reset by peer"
        self.connections.clear()

    def connect(self) -> Connection:
        self.connections = [each for each in self.connections if not each.error]
        self.connections.append(Connection(self))
        return self.connections[-1]

    def put(self, key: bytes, token: bytes, ttl_ms: int) -> None:
        """Set a key, whoever has it."""
        self.model.keys.now_us = self._clock() // 1000
        self.model.keys.put(key, token, ttl_ms)

    def execute(self, words: list[bytes], speaker: object = None) -> bytes:
        is_guarded = self._has_voted_for_long and words[1:2] and words[1] in MARKERS
        if is_guarded and not self.model.keys.exists(words[3]):
            # No client has to wait for masters that were never restarted.
            self.model.keys.put(words[3], self.model.run_id)
        return self.model.execute(words, speaker, self._clock() // 1000)


class Connection:
    """One engine's connection: the bytes on their way to it, and its end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.inbox: bytes = b""
        self.error: str = ""
        self.is_reported: bool = False  # that it is open
        self._reader = Reader(notEnoughData=INCOMPLETE)

    def send(self, data: bytes) -> None:
        """Have the server execute all whole commands in the engine's bytes."""
        if self.error:
            return
        self._reader.feed(data)
        while (words := self._reader.gets()) is not INCOMPLETE:
            self.inbox += self.server.execute(words, self)
            for connection, push in self.server.model.pushes.take():
                connection.inbox += push

    def drop(self) -> None:
        """Close it from the engine's end."""
        self.error = self.error or "closed"
        self.server.model.forget(self)


# --- engines --------------------------------------------------------------------------


class EngineByHand:
    """The engine of one FastRedlock, its connections, and the keeper of its leases."""

    def __init__(self, driver: BaseDriver, world: World) -> None:
        self.engine = driver.engine
        self.world = world
        self.keeper: MemoryKeeper | None = None
        self._begun = by_hand_engine(self.engine)
        self._limits: dict[int, int] = {}  # by caller
        self._servers = [world.server(each.name) for each in driver.settings.endpoints]
        self._connections: list[Connection | None] = [None] * len(self._servers)
        with world.changed:
            world.engines = [each for each in world.engines if each() is not None]
            world.engines.append(ref(self))

    def submit(self, work: Round | Batch, caller: int) -> int:
        """Run a round or a batch, as far as that takes no time; return its limit."""
        limit_ns = self.limit(caller, work)
        self.world.settle()
        self.begin(work)
        self.world.settle()
        return limit_ns

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
        with self.world.changed:
            by_hand_withdraw(self.engine, work, self.world.now_ns())
            self.world.settle()

    def keep(self, driver: BaseDriver, kept: Validity) -> MemoryKeeper:
        with self.world.changed:
            self.keeper = self.keeper or MemoryKeeper(driver, self)
            self.keeper.keep(kept)
            return self.keeper

    def close(self) -> None:
        with self.world.changed:
            if self.engine.is_closed:
                return
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
        """Connect where the engine has begun to; return what has come, of whom."""
        arrivals: list[tuple[int, bool, bytes, str]] = []
        quiet = ALL_QUIET
        while self._begun:
            index = self._begun.pop(0)
            self._drop(index)
            if self._servers[index].is_down:
                arrivals.append((index, False, b"", REFUSED))
                quiet &= ~(1 << index)
            else:
                self._connections[index] = self._servers[index].connect()
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

    def _send(self) -> bool:
        outgoing = by_hand_all_outgoing(self.engine) or ()
        for index, data in outgoing:
            if connection := self._connections[index]:
                connection.send(data)
        return bool(outgoing)

    def _drop(self, index: int) -> None:
        if connection := self._connections[index]:
            connection.drop()
        self._connections[index] = None


class MemoryKeeper(BaseKeeper):
    """Renew the leases of one driver where the clock has come so far: no thread."""

    __slots__ = ("_engine", "_under_way")

    def __init__(self, driver: BaseDriver, engine: EngineByHand) -> None:
        super().__init__(ref(driver), Calls(), Calls())
        self._engine = engine
        self._under_way: list[tuple[Batch, Callable[[], None]]] = []

    @property
    def next_ns(self) -> int | None:
        """When something is due; None: nothing is kept."""
        return self._keeping.next_ns

    def keep(self, kept: Validity) -> None:
        self._keeping.add(kept, self._driver.now_ns())

    def step(self) -> bool:
        """Do what is due; return whether there was anything."""
        now_ns, did = self._driver.now_ns(), False
        while (next_ns := self._keeping.next_ns) is not None and next_ns <= now_ns:
            did = True
            self._step(now_ns)
        ended = [each for each in self._under_way if each[0].is_finished]
        for each in ended:
            self._under_way.remove(each)
            each[1]()
        if self._notes:
            self._call()
        return did or bool(ended)

    def _run(self, batch: Batch, on_end: Callable[[], None]) -> None:
        self._engine.begin(batch)
        self._under_way.append((batch, on_end))

    def _call(self) -> None:
        if self._make_calls not in self._engine.world.calls:
            self._engine.world.calls.append(self._make_calls)

    def _make_calls(self) -> None:
        ending = self._losses.make_all()
        ending = self._notes.make_all() or ending
        if ending is not None:
            raise ending
