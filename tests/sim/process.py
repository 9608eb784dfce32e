"""A client machine: the shipped engine, its clock and its connections.

What of the engine's driver is mirrored stands in driver.py. A process ends by a crash,
or in good order: its kernel resets each connection on which something is left unread,
and the server then drops what it has not executed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fastredlock import Retry
from fastredlock._core import (
    Engine,
    MasterState,
    Round,
    by_hand_engine,
    by_hand_take_events,
)
from fastredlock._locking.driver import new_scripts
from fastredlock._options.settings import Settings
from tests.support.core import by_hand_idle_keys, by_hand_parting

from .calls import new_locks
from .driver import Driver
from .network import Connection, Path
from .world import EPOCH_NS, FOREVER_NS, WAIT, Clock, Steps, World

if TYPE_CHECKING:
    from fastredlock._locking.validity import Validity

    from .judge import Judge
    from .keeper import SimKeeper
    from .server import Server
    from .worker import Worker

ALL_QUIET = (1 << 64) - 1
NOTHING: tuple[list[tuple[int, bool, bytes, str]], int] = ([], ALL_QUIET)


class Process:
    """One client process; its workers are its threads (or, sharing, its tasks)."""

    def __init__(
        self, world: World, index: int, settings: Settings, clock: Clock,
        servers: list[Server], paths: list[Path], judge: Judge, is_sharing: bool,
    ) -> None:  # fmt: skip
        self.world = world
        self.index = index
        self.lists = lists_of(settings, servers)
        self.clock = clock
        self.servers = servers
        self.paths = paths
        self.judge = judge
        self.is_sharing = is_sharing  # rounds of several workers are open together
        self.is_crashed = self.is_gone = self.is_leaving = False
        self.is_cut_at_close = False
        self.closed_ns = self.exited_ns = self.gone_ns = 0
        self.well_at_close: set[int] = set()  # which servers answered then
        self.paused_until_ns = 0
        self.workers: list[Worker] = []
        self.running: Worker | None = None  # whose steps these are
        self.connections: list[Connection | None] = [None] * len(servers)
        self.readable = 0  # of which masters poll(2) would say something
        self.polled_at_ns = 0
        self.losses = self.connects = 0
        self.shook_ns = [0] * len(servers)  # when its last connection was READY
        self.tokens = 0
        self.settings = settings
        seed = world.random.randrange(1, 1 << 64)
        self.waiter = b"%016x" % seed  # its name in the queues
        self.engine = Engine(
            settings.endpoints,
            new_scripts(None, settings.fencing),
            settings.connect_timeout_ns,
            (),
            0 if settings.max_ttl is None else int(settings.max_ttl * 1e9),
            b"fastredlock",
            seed,
            electorate=settings.electorate,
        )
        self.begun = by_hand_engine(self.engine)
        self.set_wall(0)
        self._driver = Driver(self)
        self.locks = new_locks(self)
        self.keeper: SimKeeper | None = None
        self.watcher: Worker | None = None

    def set_wall(self, ahead_ns: int) -> None:
        """Set the clock on the wall, which numbers of grants are proposed by."""
        wall_ns = EPOCH_NS + self.world.now_ns + ahead_ns
        self.engine.wall_offset_ns = wall_ns - self.now_ns()

    # --- what a lease asks of its driver ----------------------------------------------

    def now_ns(self) -> int:
        return self.clock.read(self.world.now_ns)

    def new_token(self) -> bytes:
        """Return a token that says whose it is."""
        self.tokens += 1
        return b"%027d@p%d" % (self.tokens, self.index)

    def keep(self, kept: Validity) -> None:
        """Look at the times of a lease again: it was extended by hand."""
        if self.keeper is not None:
            self.keeper.add(kept)

    # --- what a worker asks -----------------------------------------------------------

    def run(self, round: Round) -> Steps:
        operation = self.judge.on_round(self, round)
        if self.running is None:
            raise RuntimeError("a round without a worker")
        self.running.on_run(operation, round)
        called_ns, paused_ns = self.world.now_ns, self.paused_until_ns
        limit_ns = self.settings.connect_timeout_ns + 2 * round.terms.timeout_ns
        if self.settings.fencing:  # the number, for as long again
            limit_ns += round.terms.timeout_ns
        if round.has_turn:
            limit_ns += round.left_ns
        yield from self._driver.run(self.running, round)
        self.judge.on_closed(self, operation, round)
        if paused_ns == self.paused_until_ns:
            self.judge.on_returned(self, self.world.now_ns - called_ns, limit_ns)

    def watch(self, worker: Worker) -> None:
        """Let a worker be the thread that a key at rest needs, or the loop."""
        self.watcher = worker
        worker.start(self._driver.watch(worker))

    def undo(self, round: Round) -> None:
        self._driver.undo(round)

    def close(self) -> Steps:
        """Close the client, with whatever is under way."""
        self.judge.on_close(self)
        for connection in self.connections if self.is_cut_at_close else ():
            if connection is None or not connection.ready_ns:
                continue  # cut in its handshake: a server that is not well
            if self.world.chance(0.5):
                connection.cut(0, 0)
        if self.running is None:
            raise RuntimeError("a close without a worker")
        yield from self._driver.close(self.running)

    # --- engine_take_events -----------------------------------------------------------

    def take_events(self) -> None:
        engine, now_ns = self.engine, self.now_ns()
        self.polled_at_ns = now_ns
        arrivals, quiet = self._take_arrivals() if self.readable else NOTHING
        by_hand_take_events(engine, arrivals, quiet, now_ns)
        self.judge.on_rests(self, by_hand_idle_keys(engine))
        if self.losses != engine.counters.losses or self._is_opening():
            self._close_lost()
        if self.begun:
            self.open_due()
        if self.connects != engine.counters.connects:
            self._note_ready()

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

    def open_due(self) -> None:
        while self.begun:
            index = self.begun.pop(0)
            lost = self.connections[index]
            if lost is not None:  # and opened again at once, in the same step
                self._give_up(lost)
            self.connections[index] = Connection(
                self.paths[index], self, self.servers[index]
            )

    def _note_ready(self) -> None:
        self.connects = self.engine.counters.connects
        for index, (state, _) in enumerate(self.engine.states):
            connection = self.connections[index]
            if state is not MasterState.READY or connection is None:
                continue
            if not connection.ready_ns:
                connection.ready_ns = self.shook_ns[index] = self.world.now_ns

    def _is_opening(self) -> bool:
        # What came to nothing in its handshake is no loss of a connection.
        return any(
            [each is not None and not each.ready_ns for each in self.connections]
        )

    def _close_lost(self) -> None:
        # The engine closes a descriptor itself; here its connection is another object.
        self.losses = self.engine.counters.losses
        for index, (state, _) in enumerate(self.engine.states):
            connection = self.connections[index]
            if state is MasterState.BACKOFF and connection is not None:
                self._give_up(connection)
                self.connections[index] = None

    def _give_up(self, connection: Connection) -> None:
        last = by_hand_parting(self.engine, connection.index)
        if last is not None and connection.ready_ns:
            connection.send(last)
        connection.give_up()
        self.readable &= ~(1 << connection.index)

    # --- what the world asks ----------------------------------------------------------

    def ready_count(self) -> int:
        return sum(state is MasterState.READY for state, _ in self.engine.states)

    def is_opening(self) -> bool:
        opening = MasterState.CONNECTING, MasterState.HANDSHAKE
        return any(state in opening for state, _ in self.engine.states)

    def on_readable(self, connection: Connection) -> None:
        """Wake whoever polls, if this connection is still one of ours."""
        if self.connections[connection.index] is connection:
            self.readable |= 1 << connection.index
            self.wake(WAIT)

    def wake(self, kind: str) -> None:
        for worker in self.workers:
            if worker.awaits == kind:
                worker.wake_soon()

    def pause(self, for_ns: int) -> None:
        """Stop the process for a while: its clock and its kernel go on."""
        self.world.tell(f"process {self.index} pauses for {for_ns / 1e6:.0f} ms")
        self.paused_until_ns = max(self.paused_until_ns, self.world.now_ns + for_ns)

    def is_well_with(self, index: int) -> int:
        """Return since when (true ns) nothing has come between us and a server.

        FOREVER_NS where there is no connection that works.
        """
        connection = self.connections[index]
        if connection is None or not connection.ready_ns or connection.is_cut:
            return FOREVER_NS
        return max(connection.ready_ns, self.is_calm_with(index))

    def is_calm_with(self, index: int) -> int:
        """Return since when nothing is wrong, whatever became of a connection."""
        path, server = self.paths[index], self.servers[index]
        return max(path.calm_from_ns, server.calm_from_ns, self.paused_until_ns)

    def crash(self) -> None:
        self.world.tell(f"process {self.index} crashes")
        self.is_crashed = True
        self._end()

    def exit(self) -> None:
        self.world.tell(f"process {self.index} exits")
        self.exited_ns = self.world.now_ns
        self._end()

    def _end(self) -> None:
        self.is_gone = True
        self.gone_ns = self.world.now_ns
        self.drop_connections()
        for worker in self.workers:
            worker.end()

    def place_of(self, server: Server) -> int:
        """Return where a server is among its own; connections and paths are so."""
        return self.servers.index(server)

    def drop_connections(self) -> None:
        """Close(2) all, whatever is unread."""
        for connection in self.connections:
            if connection is not None:
                connection.on_dropped()
        self.connections = [None] * len(self.servers)
        self.readable = 0


def lists_of(settings: Settings, servers: list[Server]) -> list[list[Server]]:
    """Return the servers of its list of masters; of both, while that changes."""
    voting = settings.electorate
    return [
        [server for place, server in enumerate(servers) if members >> place & 1]
        for members in sorted({voting.first, voting.second})
    ]


@cache
def new_settings(
    masters: int | tuple[int, ...],
    changing_to: tuple[int, ...] | None = None,
    **options: Any,
) -> Settings:
    """Make the shipped settings for masters that no socket will ever reach.

    So many, or those with these numbers.
    """
    names = masters if isinstance(masters, tuple) else range(masters)
    new = (
        None if changing_to is None else [(f"m{index}", 6379) for index in changing_to]
    )
    defaults = {
        "ttl": 1.0, "drift_factor": 0.01, "round_timeout": None, "max_ttl": None,
        "connect_timeout": 0.3, "new_token": None, "retry": Retry(), "fencing": False,
    }  # fmt: skip
    old = [(f"m{index}", 6379) for index in names]
    return Settings(old, "r", changing_to=new, **{**defaults, **options})
