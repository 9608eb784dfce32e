"""What goes wrong, when and for how long: drawn from the seed.

Within the declared assumptions: delays, pieces, holes (of a path, or of one connection
only), resets with some bytes still delivered, servers that pause, refuse, forget their
scripts, restart with their keys or stay away, processes that pause or crash; and
restarts that lose the keys, where every client has a restart guard. Where leases are
kept, their processes pause for up to three ttls, and clocks of servers are set back.

Beyond them, asked for by name: see ASSUMPTIONS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .network import Connection, Path
from .server import QUEUE, SETS_REFUSED, TURN, WRITES_REFUSED, Server
from .world import FOREVER_NS, MS, S, World

if TYPE_CHECKING:
    from .process import Process
    from .worker import Worker

DECLARED = (
    *("slow", "slice", "hole", "swallow", "cut"),
    *("pause_server", "freeze_server", "freeze_all", "restart_server", "refuse"),
    *("forget_scripts", "pause_process", "crash_process", "exit_process"),
    *("lose_queue", "spoil_queue", "noise", "crash_head", "pause_head"),
)
MOVED = "move_queue"  # in some schedules
LEAVES = "leave_as_it_is_back", "cut_and_leave"  # in some
KEPT = ("pause_keeper", "pause_keeper", "set_back")  # where leases are kept
ASSUMPTIONS = {
    "drift": "clocks run alike within drift_factor",
    "jump": "no wall clock of a server is set",
    "restart": "no server loses keys at a restart, or every client has max_ttl",
    "evict": "no server drops a key before its ttl (eviction, FLUSHALL, DEL)",
    "heed": "a holder asks its lease whether it is valid",
    "compare": "a release deletes no token but its own",
    "swap": "a list of masters changes by way of both lists (changing_to)",
}
NOISE = b"r", b"s", b"nobody's", b"", b"\r\n:1\r\n"
MOST_PROCESSES = 8  # in one schedule, those that are gone among them
SLOW_NS = (50 * MS, 500 * MS)


class Nemesis:
    """Strike again and again until the end, then heal everything."""

    def __init__(
        self, world: World, servers: list[Server], processes: list[Process],
        faults: tuple[str, ...], gap_ns: int, until_ns: int, longest_ttl_ns: int,
        spawn: Callable[[], None], new_worker: Callable[[Process], Worker],
    ) -> None:  # fmt: skip
        self.world = world
        self.servers = servers
        self.processes = processes
        self.gap_ns = gap_ns
        self.until_ns = until_ns
        self.longest_ttl_ns = longest_ttl_ns
        self.strikes = 0
        self._set_back_once: set[Server] = set()
        self._new_worker = new_worker
        self._spawn = spawn  # another process in the place of one that is gone
        self._noise_texts = NOISE
        self._movable: tuple[bytes, ...] = (b"r", b"r", b"s", b"t")
        for fault in faults:
            self._schedule(getattr(self, f"_{fault}"))

    def has_slots(self, noise: tuple[bytes, ...], queues: tuple[bytes, ...]) -> None:
        """Take the queues of semaphores for the faults as well."""
        self._noise_texts += noise
        self._movable += queues

    def _schedule(self, fault: Callable[[], None]) -> None:
        when_ns = self.world.now_ns + self.world.between(0, self.gap_ns)
        if when_ns < self.until_ns:
            self.world.at(when_ns, self._strike, fault)

    def _strike(self, fault: Callable[[], None]) -> None:
        if self.world.now_ns >= self.until_ns:  # ended early
            return
        self.strikes += 1
        fault()
        self._schedule(fault)

    def heal(self) -> None:
        """End all faults; what is under way arrives when it would have."""
        for path in self._paths():
            slowest_ns = self.world.now_ns + 2 * path.delay_ns
            path.calm_from_ns = max(path.calm_from_ns, slowest_ns)
            path.delay_ns = MS // 5  # so that a timeout afterwards has no excuse
            path.is_slicing = False
        for server in self.servers:
            if server.refuses:
                server.refuse(b"")
                server.calm_from_ns = max(self.world.now_ns, server.paused_until_ns)
            if server.is_down:
                server.start()

    # --- choices ----------------------------------------------------------------------

    def _paths(self) -> list[Path]:
        return [path for process in self.processes for path in process.paths]

    def _path(self) -> Path:
        return self.world.random.choice(self._paths())

    def _server(self) -> Server:
        return self.world.random.choice(self.servers)

    def _connection(self) -> Connection | None:
        process = self.world.random.choice(self.processes)
        return self.world.random.choice(process.connections)

    def _for_ns(self, longest_ns: int = 3 * S) -> int:
        left_ns = self.until_ns - self.world.now_ns
        return min(self.world.between(MS, longest_ns), left_ns)

    # --- the network ------------------------------------------------------------------

    def _slow(self) -> None:
        path = self._path()
        path.delay_ns = self.world.random.choice(SLOW_NS)
        until_ns = self.world.now_ns + self._for_ns()
        self._calm_later(path, max(until_ns, path.hole_until_ns))  # sent in a hole, too
        self.world.at(until_ns, self._quicken, path)

    def _quicken(self, path: Path) -> None:
        path.delay_ns = path.usual_ns

    def _slice(self) -> None:
        self._path().is_slicing = True

    def _hole(self) -> None:
        path = self._path()
        path.hole_until_ns = self.world.now_ns + self._for_ns()
        self._calm_later(path, path.hole_until_ns)

    def _calm_later(self, path: Path, until_ns: int) -> None:
        arrives_ns = until_ns + 2 * path.delay_ns
        path.calm_from_ns = max(path.calm_from_ns, arrives_ns)

    def _swallow(self) -> None:
        connection = self._connection()
        if connection is not None:
            pipe = self.world.random.choice((connection.up, connection.down))
            pipe.hole_until_ns = self.world.now_ns + self._for_ns()
            self._calm_later(connection.path, pipe.hole_until_ns)

    def _cut(self) -> None:
        connection = self._connection()
        if connection is not None:
            if not connection.ready_ns:  # in its handshake: the way is not well
                self._calm_later(connection.path, self.world.now_ns)
            some = self.world.random.randrange(200)
            connection.cut(*self.world.random.choice(
                ((0, 0), (some, 0), (1 << 20, 0), (1 << 20, some % 8))
            ))  # fmt: skip

    # --- servers ----------------------------------------------------------------------

    def _pause_server(self) -> None:
        self._server().pause(self._for_ns())

    def _freeze_server(self) -> None:
        if self.world.chance(0.5):  # seldom: it takes long
            self._freeze([self._server()])

    def _freeze_all(self) -> None:
        if self.world.chance(0.2):
            self._freeze(self.servers)

    def _freeze(self, servers: list[Server]) -> None:
        # For several ttls: what it was sent before is executed when it wakes up.
        longest_ns = 3 * self.longest_ttl_ns
        for_ns = self.world.random.randrange(self.longest_ttl_ns, longest_ns)
        for server in servers:
            server.pause(min(for_ns, self.until_ns - self.world.now_ns))

    def _restart_server(self) -> None:
        self._restart(self._server(), is_losing=False)

    def _restart(self, server: Server, is_losing: bool) -> None:
        if not server.is_down:
            server.stop(is_losing)
            away_ns = self._for_ns(self.world.random.choice((10 * MS, 2 * S)))
            self.world.at(self.world.now_ns + away_ns, self._start, server)

    def _start(self, server: Server) -> None:
        if server.is_down:
            server.start()

    def _refuse(self) -> None:
        server = self._server()
        server.refuse(self.world.random.choice((SETS_REFUSED, WRITES_REFUSED, b"")))
        if not server.is_down:
            calm_ns = max(self.world.now_ns, server.paused_until_ns)
            server.calm_from_ns = FOREVER_NS if server.refuses else calm_ns

    def _forget_scripts(self) -> None:
        self._server().model.loaded.clear()

    # --- queues -----------------------------------------------------------------------

    def _queue(self) -> tuple[Server, bytes] | None:
        server = self._server()
        resources = server.queues()
        if server.is_down or not resources:
            return None
        return server, self.world.random.choice(resources)

    def _lose_queue(self) -> None:
        # Deleted, or evicted; with it the note of who was told, or not.
        found = self._queue()
        if found is not None:
            server, resource = found
            self.world.tell(f"server {server.index} loses a queue")
            server.model.keys.drop(QUEUE + resource)
            if self.world.chance(0.5):
                server.model.keys.drop(TURN + resource)

    def _spoil_queue(self) -> None:
        # Another application has a key of that name, for a while.
        found = self._queue()
        if found is not None and self.world.chance(0.3):
            server, resource = found
            self.world.tell(f"server {server.index} has another key for a queue")
            server.put(QUEUE + resource, b"of another", self._for_ns() // MS + 1)

    def _move_queue(self) -> None:
        # Somebody has found a gate slow, or says so; perhaps every gate.
        draw = self.world.random
        count = draw.randrange(1, len(self.servers) + 1)
        for server in draw.sample(self.servers, count):
            resource = draw.choice(self._movable)
            if not server.is_down:
                self.world.tell(f"server {server.index} has its queue moved")
                server.move(resource)

    def _noise(self) -> None:
        # Anybody may publish.
        server = self._server()
        channels = list(server.model.pushes.channels)
        if channels and not server.is_down:
            channel = self.world.random.choice(channels)
            server.publish(channel, self.world.random.choice(self._noise_texts))

    def _head(self) -> Process | None:
        # The first of a queue, told or not.
        found = self._queue()
        waiting = found[0].waiting(found[1]) if found is not None else []
        for process in self.processes:
            if process.waiter in waiting[:1]:
                return None if process.is_gone or process.is_leaving else process
        return None

    def _crash_head(self) -> None:
        process = self._head()
        if process is not None and len(self.processes) < MOST_PROCESSES:
            process.crash()
            self._spawn()

    def _pause_head(self) -> None:
        process = self._head()
        if process is not None:
            process.pause(self._for_ns())

    # --- clients ----------------------------------------------------------------------

    def _pause_process(self) -> None:
        self.world.random.choice(self.processes).pause(self._for_ns())

    def _pause_keeper(self) -> None:
        # Just now, or while it is renewed: for up to three ttls.
        process = self.world.random.choice(self.processes)
        leases = [] if process.keeper is None else process.keeper.leases()
        if leases and not process.is_gone:
            lease = self.world.random.choice(leases)
            process.pause(self._for_ns(int(3e9 * lease.ttl) + MS + 1))

    def _set_back(self) -> None:
        # Its keys live longer, which is within the assumptions: once, for no key may
        # outlive what the end of a run waits for.
        server = self._server()
        if server in self._set_back_once:
            return
        self._set_back_once.add(server)
        by_ns = self.world.between(10 * MS, S)
        server.clock.origin_ns -= by_ns
        server.calm_from_ns = max(server.calm_from_ns, self.world.now_ns + by_ns)
        self.world.tell(f"the clock of server {server.index} is set back {by_ns} ns")

    def _crash_process(self) -> None:
        process = self._process()
        if process is not None and self.world.chance(0.1):
            process.crash()
            self._spawn()

    def _exit_process(self) -> None:
        process = self._process()
        if process is not None and self.world.chance(0.5):
            self._leave(process)

    def _leave_as_it_is_back(self) -> None:
        # A server is away for so long that clients seldom try; one is closed soon after
        # it is back, with releases for it.
        server, process, now_ns = self._server(), self._process(), self.world.now_ns
        if (
            process is not None
            and not server.is_down
            and server in process.servers
            and now_ns + 2 * S < self.until_ns
        ):
            server.stop(is_losing=False)
            self.world.at(now_ns + S, self._start, server)
            soon_ns = 110 * MS + 11 * process.paths[process.place_of(server)].usual_ns
            self.world.at(now_ns + S + soon_ns, self._leave, process)

    def _cut_and_leave(self) -> None:
        # Connections are cut as the client is closed; all servers are well.
        process = self._process()
        if process is not None and self.world.chance(0.5):
            process.is_cut_at_close = True
            self._leave(process)

    def _leave(self, process: Process) -> None:
        if not (process.is_gone or process.is_leaving):
            process.is_leaving = True
            worker = self._new_worker(process)
            worker.start(worker.leave(is_orderly=self.world.chance(0.5)))
            self._spawn()

    def _process(self) -> Process | None:
        alive = [p for p in self.processes if not (p.is_gone or p.is_leaving)]
        if not alive or len(self.processes) >= MOST_PROCESSES:
            return None
        return self.world.random.choice(alive)

    # --- beyond the declared assumptions ----------------------------------------------

    def _restart_losing(self) -> None:
        server = self._server()
        self._restart(server, is_losing=True)
        if self.world.chance(0.5):  # another one, up for long, takes its address
            server.age_s = 1_000_000

    def _jump(self) -> None:
        server = self._server()
        server.clock.origin_ns += self.world.between(100 * MS, 5 * S)
        self.world.tell(f"the clock of server {server.index} jumps forward")

    def _evict(self) -> None:
        server = self._server()
        self.world.tell(f"server {server.index} evicts {server.tokens()}")
        server.model.keys.clear()
