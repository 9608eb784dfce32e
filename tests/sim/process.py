"""A client machine: the shipped engine, its clock and its connections.

`run` and what it calls mirror the blocking driver (src_cython/threads.pyx: engine_lead;
src_cython/wait.pyx: engine_step, engine_take_events), line by line and no more:
whatever is decided is decided by the engine. Where those change, this one must. What
yields:

    CHECKPOINT           between two lines; a pause or an exception may strike there
    (WAIT, deadline_ns)  poll(2), to a time of this machine's clock
    (SLEEP, ns)          sleep
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastredlock import scripts
from fastredlock._core import (
    Engine,
    MasterState,
    Round,
    Script,
    Scripts,
    Terms,
    engine_by_hand,
    engine_check_again,
    engine_take_all_outgoing,
    engine_take_events_at,
    engine_take_in,
    engine_undo,
    fork_generation,
)
from fastredlock._settings import Settings
from fastredlock.retry import Retry

from .network import Connection, Path
from .world import Clock, S, World

if TYPE_CHECKING:
    from .judge import Judge
    from .server import Server
    from .worker import Worker

CHECKPOINT = ("checkpoint", 0)
WAIT, SLEEP, MUTEX = "wait", "sleep", "mutex"
ALL_QUIET = (1 << 64) - 1
NOTHING: tuple[list[tuple[int, bool, bytes, str]], int] = ([], ALL_QUIET)
Steps = Iterator[tuple[str, int]]


class Process:
    """One client process; its workers are its threads (or, sharing, its tasks)."""

    def __init__(
        self, world: World, index: int, settings: Settings, clock: Clock,
        servers: list[Server], paths: list[Path], judge: Judge, is_sharing: bool,
    ) -> None:  # fmt: skip
        self.world = world
        self.index = index
        self.clock = clock
        self.servers = servers
        self.paths = paths
        self.judge = judge
        self.is_sharing = is_sharing  # rounds of several workers are open together
        self.is_crashed = False
        self.paused_until_ns = 0
        self.workers: list[Worker] = []
        self.running: Worker | None = None  # whose steps these are
        self.connections: list[Connection | None] = [None] * len(servers)
        self.readable = 0  # of which masters poll(2) would say something
        self.polled_at_ns = 0
        self.is_entered = False
        self.losses = 0
        self.tokens = 0
        self._settings = settings
        self._engine = Engine(
            settings.endpoints,
            Scripts(
                extend=Script(scripts.EXTEND, scripts.EXTEND_SHA1),
                release=Script(scripts.RELEASE, scripts.RELEASE_SHA1),
                inspect=Script(scripts.INSPECT, scripts.INSPECT_SHA1),
                acquire_all=Script(scripts.ACQUIRE_ALL, scripts.ACQUIRE_ALL_SHA1),
                extend_all=Script(scripts.EXTEND_ALL, scripts.EXTEND_ALL_SHA1),
                release_all=Script(scripts.RELEASE_ALL, scripts.RELEASE_ALL_SHA1),
                acquire_again=Script(scripts.ACQUIRE_AGAIN, scripts.ACQUIRE_AGAIN_SHA1),
                probe=Script(scripts.PROBE, scripts.PROBE_SHA1),
                marker=Script(scripts.MARKER, scripts.MARKER_SHA1),
            ),
            settings.connect_timeout_ns,
            (),
            0 if settings.max_ttl is None else int(settings.max_ttl * 1e9),
            b"fastredlock",
            world.random.randrange(1, 1 << 64),
        )
        self.begun = engine_by_hand(self._engine)

    # --- what a lease asks of its FastRedlock -----------------------------------------

    def _now_ns(self) -> int:
        return self.clock.read(self.world.now_ns)

    _fork_generation = staticmethod(fork_generation)

    def _new_extension(self, lease_round: Round, terms: Terms) -> Round:
        return self._engine.new_extension(lease_round, terms)

    def new_token(self) -> bytes:
        """Return a token that says whose it is."""
        self.tokens += 1
        return b"p%d-%d" % (self.index, self.tokens)

    # --- the mirror of threads.pyx and wait.pyx ---------------------------------------

    def run(self, round: Round) -> Steps:
        """Run a round until it is closed; a lost one is rolled back."""
        while self.is_entered and not self.is_sharing:
            yield MUTEX, 0
        self.is_entered = True
        if self.running is not None:
            self.running.round = round
        self.judge.on_round(self, round)
        try:
            try:
                now_ns = self._now_ns()
                if now_ns - self.polled_at_ns > S:
                    yield from self._step(now_ns)
                    now_ns = self._now_ns()
                yield CHECKPOINT
                engine_take_in(self._engine, round, now_ns)
                self._open_due()
                yield CHECKPOINT
                if round.closed_ns:
                    yield from self._step(self._now_ns())
                while not round.is_finished:
                    yield from self._step(self._engine.next_ns)
                yield CHECKPOINT
            finally:
                self._flush()
            engine_check_again(self._engine, round, self._now_ns())
        except BaseException:
            self.undo(round)
            raise
        finally:
            self.is_entered = False
            self._wake(MUTEX)
        self.judge.on_closed(self, round)

    def begin(self, round: Round) -> None:
        """Send a release whose caller will not hear of it (engine_abandon)."""
        self.undo(round)

    def undo(self, round: Round) -> None:
        """Roll back a round whose caller will not get it (engine_abandon)."""
        engine_undo(self._engine, round, self._now_ns())
        self._flush()

    def _step(self, deadline_ns: int) -> Steps:
        self._flush()
        if not self.readable:
            yield WAIT, deadline_ns
        self._take_events()

    def _take_events(self) -> None:
        engine, now_ns = self._engine, self._now_ns()
        self.polled_at_ns = now_ns
        arrivals, quiet = self._take_arrivals() if self.readable else NOTHING
        engine_take_events_at(engine, arrivals, quiet, now_ns)
        if self.losses != engine.counters.losses:
            self._close_lost()
        if self.begun:
            self._open_due()
        if self.is_sharing:
            for worker in self.workers:
                if worker.awaits == WAIT and worker.is_answered():
                    worker.wake_soon()

    def _take_arrivals(self) -> tuple[list[tuple[int, bool, bytes, str]], int]:
        readable, self.readable = self.readable, 0
        arrivals = []
        for connection in self.connections:
            if connection is None or not readable >> connection.index & 1:
                continue
            is_new, data = connection.is_open and not connection.is_told, b""
            connection.is_told = connection.is_open
            if connection.inbox:
                data, heard = connection.receive()
                self.judge.on_heard(self, connection.index, heard)
            arrivals.append((connection.index, is_new, data, connection.error))
            if connection.error:  # it may be opened again at once
                connection.give_up()
                self.connections[connection.index] = None
        return arrivals, ALL_QUIET & ~readable

    def _open_due(self) -> None:
        while self.begun:
            index = self.begun.pop(0)
            self.connections[index] = Connection(
                self.paths[index], self, self.servers[index]
            )

    def _flush(self) -> None:
        if self.is_crashed:
            return
        for index, data in engine_take_all_outgoing(self._engine) or ():
            connection = self.connections[index]
            if connection is not None:
                connection.send(data)

    def _close_lost(self) -> None:
        # The engine closes a descriptor itself; here its connection is another object.
        self.losses = self._engine.counters.losses
        for index, (state, _) in enumerate(self._engine.states):
            connection = self.connections[index]
            if state is MasterState.BACKOFF and connection is not None:
                connection.give_up()
                self.connections[index] = None
                self.readable &= ~(1 << index)

    # --- what the world asks ----------------------------------------------------------

    def ready_count(self) -> int:
        """Count the masters that take commands."""
        return sum(state is MasterState.READY for state, _ in self._engine.states)

    def on_readable(self, connection: Connection) -> None:
        """Wake whoever polls, if this connection is still one of ours."""
        if self.connections[connection.index] is connection:
            self.readable |= 1 << connection.index
            self._wake(WAIT)

    def _wake(self, kind: str) -> None:
        for worker in self.workers:
            if worker.awaits == kind:
                worker.wake_soon()

    def pause(self, for_ns: int) -> None:
        """Stop the process for a while: its clock and its kernel go on."""
        self.world.tell(f"process {self.index} pauses for {for_ns / 1e6:.0f} ms")
        self.paused_until_ns = max(self.paused_until_ns, self.world.now_ns + for_ns)

    def crash(self) -> None:
        """End the process: its kernel closes its connections."""
        self.world.tell(f"process {self.index} crashes")
        self.is_crashed = True
        for connection in self.connections:
            if connection is not None:
                connection.give_up()
        self.connections = [None] * len(self.servers)
        for worker in self.workers:
            worker.end()


def new_settings(count: int, **options: Any) -> Settings:
    """Make the shipped settings for so many masters that no socket will ever reach."""
    masters = [(f"m{index}", 6379) for index in range(count)]
    defaults = {
        "ttl": 1.0, "drift_factor": 0.01, "round_timeout": None, "max_ttl": None,
        "connect_timeout": 0.3, "new_token": None, "retry": Retry(),
    }  # fmt: skip
    return Settings(masters, "r", **{**defaults, **options})
