"""What goes wrong, when and for how long: drawn from the seed.

Within the declared assumptions: delays, pieces, holes (of a path, or of one connection
only), resets with some bytes still delivered, servers that pause, refuse, forget their
scripts, restart with their keys or stay away, processes that pause or crash; and
restarts that lose the keys, where every client has a restart guard.

Beyond them, asked for by name: see ASSUMPTIONS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .network import Connection, Path
from .server import SETS_REFUSED, WRITES_REFUSED, Server
from .world import MS, S, World

if TYPE_CHECKING:
    from .process import Process

DECLARED = (
    *("slow", "slice", "hole", "swallow", "cut"),
    *("pause_server", "restart_server", "refuse", "forget_scripts"),
    *("pause_process", "crash_process"),
)
ASSUMPTIONS = {
    "drift": "clocks run alike within drift_factor",
    "jump": "no wall clock of a server is set",
    "restart": "no server loses keys at a restart, or every client has max_ttl",
    "evict": "no server drops a key before its ttl (eviction, FLUSHALL, DEL)",
    "heed": "a holder asks its lease whether it is valid",
    "compare": "a release deletes no token but its own",
}
SLOW_NS = (50 * MS, 500 * MS)


class Nemesis:
    """Strike again and again until the end, then heal everything."""

    def __init__(
        self, world: World, servers: list[Server], processes: list[Process],
        faults: tuple[str, ...], gap_ns: int, until_ns: int,
    ) -> None:  # fmt: skip
        self.world = world
        self.servers = servers
        self.processes = processes
        self.gap_ns = gap_ns
        self.until_ns = until_ns
        self.strikes = 0
        self._delays = {id(path): path.delay_ns for path in self._paths()}
        for fault in faults:
            self._schedule(getattr(self, f"_{fault}"))

    def _schedule(self, fault: Callable[[], None]) -> None:
        when_ns = self.world.now_ns + self.world.between(0, self.gap_ns)
        if when_ns < self.until_ns:
            self.world.at(when_ns, self._strike, fault)

    def _strike(self, fault: Callable[[], None]) -> None:
        self.strikes += 1
        fault()
        self._schedule(fault)

    def heal(self) -> None:
        """End all faults; what is under way arrives when it would have."""
        for path in self._paths():
            path.delay_ns = MS // 5  # so that a timeout afterwards has no excuse
            path.is_slicing = False
        for server in self.servers:
            server.refuses = b""
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
        self.world.at(self.world.now_ns + self._for_ns(), self._quicken, path)

    def _quicken(self, path: Path) -> None:
        path.delay_ns = self._delays[id(path)]

    def _slice(self) -> None:
        self._path().is_slicing = True

    def _hole(self) -> None:
        self._path().hole_until_ns = self.world.now_ns + self._for_ns()

    def _swallow(self) -> None:
        connection = self._connection()
        if connection is not None:
            pipe = self.world.random.choice((connection.up, connection.down))
            pipe.hole_until_ns = self.world.now_ns + self._for_ns()

    def _cut(self) -> None:
        connection = self._connection()
        if connection is not None:
            some = self.world.random.randrange(200)
            connection.cut(*self.world.random.choice(
                ((0, 0), (some, 0), (1 << 20, 0), (1 << 20, some % 8))
            ))  # fmt: skip

    # --- servers ----------------------------------------------------------------------

    def _pause_server(self) -> None:
        self._server().pause(self._for_ns())

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
        server.refuses = self.world.random.choice((SETS_REFUSED, WRITES_REFUSED, b""))

    def _forget_scripts(self) -> None:
        self._server().loaded.clear()

    # --- clients ----------------------------------------------------------------------

    def _pause_process(self) -> None:
        self.world.random.choice(self.processes).pause(self._for_ns())

    def _crash_process(self) -> None:
        alive = [p for p in self.processes if not p.is_crashed]
        if len(alive) > 2 and self.world.chance(0.2):
            self.world.random.choice(alive).crash()

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
        self.world.tell(f"server {server.index} evicts {list(server.keys.values())}")
        server.keys.clear()
