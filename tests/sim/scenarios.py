"""A stage for small stories written by hand, and those of an assumption each.

A scenario is a world with nothing drawn: fixed delays, no faults but the one it tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastredlock import Lease

from .judge import Judge, Violation
from .network import Path
from .process import Process, new_settings
from .server import Server
from .worker import Habits, Worker
from .world import EPOCH_NS, MS, Clock, S, World

Lists = tuple[tuple[int, ...], ...]
NOTHING = Habits(resources=("r",), ttls_ms=(1000,))


class Stage:
    """So many servers, and processes that do what the scenario says."""

    def __init__(self, count: int, **options: Any) -> None:
        self.world = World(1)
        self.judge = Judge(self.world)
        self.options = options
        self.servers = []
        self.processes: list[Process] = []
        self.leases: dict[str, Lease | None] = {}
        for index in range(count):
            clock = Clock(EPOCH_NS, 0)
            server = Server(self.world, index, clock, self.judge)
            server.model.started_s -= 1_000_000
            server.mark()
            self.servers.append(server)
        self.judge.servers = self.servers

    def process(self, clock_ns: int = S, lists: Lists = ()) -> Worker:
        """Add a client with one thread; its clock begins there.

        It has all servers, or those of a list; of two while that changes.
        """
        lists = lists or (tuple(range(len(self.servers))),)
        servers = [self.servers[at] for at in dict.fromkeys(sum(lists, ()))]
        process = Process(
            self.world, len(self.processes),
            new_settings(*lists, **self.options), Clock(clock_ns, 0),
            servers, [Path(self.world, 100_000) for _ in servers],
            self.judge, is_sharing=False,
        )  # fmt: skip
        self.processes.append(process)
        return Worker(process, NOTHING, 0)

    def taking(
        self,
        worker: Worker,
        name: str,
        ttl_ms: int,
        what: Any = "r",
        within_ns: int = 0,
    ) -> Iterator[Any]:
        """Do the steps of an acquire; its lease goes by this name."""
        self.leases[name] = None
        self.leases[name] = yield from worker.acquire(what, ttl_ms, within_ns)

    def take(self, worker: Worker, name: str, ttl_ms: int = 1000) -> None:
        """Let a worker make one try, to its end."""
        self.do(worker, self.taking(worker, name, ttl_ms))

    def try_to_take(self, worker: Worker, name: str, ttl_ms: int = 1000) -> None:
        """As take; an error is no lease."""
        self.do(worker, self.told(self.taking(worker, name, ttl_ms)))

    def extend(self, worker: Worker, name: str, ttl: float) -> None:
        """Extend; an error changes nothing but what the lease says."""
        self.do(worker, self.told(worker.extend(self.leases[name], ttl)))

    def told(self, steps: Iterator[Any]) -> Iterator[Any]:
        """Do these; an error, but for a violation, is told, and its place is None."""
        try:
            return (yield from steps)
        except Violation:
            raise
        except Exception as error:
            self.world.tell(f"{type(error).__name__}: {error}")
            return None

    def do(self, worker: Worker, steps: Iterator[tuple[str, int]]) -> None:
        worker.start(steps)
        while not worker.is_done:
            self.world.run(self.world.now_ns + MS)

    def pass_time(self, for_ns: int) -> None:
        self.world.run(self.world.now_ns + for_ns)

    def cut_off(self, worker: Worker, *indexes: int, for_ns: int = S) -> None:
        """Let a worker's process lose the way to these servers."""
        process = worker.process
        for index in indexes:
            path = process.paths[process.place_of(self.servers[index])]
            path.hole_until_ns = self.world.now_ns + for_ns

    def restart(self, index: int) -> None:
        self.servers[index].stop(is_losing=True)
        self.servers[index].start()


def said_by(scenario: Callable[..., None], *arguments: Any) -> str:
    """Play a scenario; return the violation, or ""."""
    try:
        scenario(*arguments)
    except Violation as found:
        return str(found)
    return ""


def five_servers_one_restarts(
    max_ttl: float | None, age_s: int = 0, is_new: bool = True
) -> Stage:
    """The example of the Redlock page, "Performance, crash recovery and fsync".

    A takes the lock on servers 0, 1, 2 of five. Server 2 restarts, and has forgotten.
    B, which does not reach 0 and 1, gets 2, 3, 4; it reconnects in between.

    With an age, the empty server that comes back has been up for long: a failover to
    another machine, or a wall clock that was set forward after a restart. Where it is
    not new, B had a connection to the old one, and other clients have asked the other
    before: it has a marker.
    """
    stage = Stage(5, max_ttl=max_ttl)
    a, b = stage.process(), stage.process()
    for worker in (a,) if is_new else (a, b):
        stage.take(worker, "warm-up")
        stage.do(worker, worker.release(stage.leases["warm-up"]))
    stage.cut_off(a, 3, 4)
    stage.take(a, "A")
    stage.servers[2].age_s = age_s
    stage.restart(2)
    if not is_new:
        stage.servers[2].mark()
    stage.cut_off(b, 0, 1)
    for _ in range(5):
        stage.try_to_take(b, "B")
        stage.pass_time(50 * MS)
    return stage


def three_clocks_jump(by_ns: int) -> None:
    """A wall clock set forward expires keys early: two of three suffice."""
    stage = Stage(3)
    a, b = stage.process(), stage.process()
    stage.take(a, "A")
    for server in stage.servers[:2]:
        server.clock.origin_ns += by_ns
    stage.try_to_take(b, "B")


def clocks_drift(rate_ppm: int) -> None:
    """Servers run fast by so much; B tries until it gets the lock."""
    stage = Stage(3)
    for server in stage.servers:
        server.clock.rate_ppm = rate_ppm
    a, b = stage.process(), stage.process()
    stage.take(a, "A", 10_000)
    stage.leases["B"] = None
    while stage.leases["B"] is None:
        stage.try_to_take(b, "B")
        stage.pass_time(MS)


def holder_pauses(is_naive: bool) -> None:
    """A is stopped past its validity; a lease that is asked afterwards says so."""
    stage = Stage(3)
    stage.judge.is_naive = is_naive
    a, b = stage.process(), stage.process()
    stage.take(a, "A")
    a.process.pause(2 * S)
    stage.pass_time(1100 * MS)
    stage.try_to_take(b, "B")
    if stage.leases["B"] is None or stage.leases["A"].is_valid:
        raise RuntimeError("A pauses, its keys expire, and B takes the lock")


def two_keys_are_evicted(count: int) -> None:
    """Servers under memory pressure drop keys that have a ttl."""
    stage = Stage(3)
    a, b = stage.process(), stage.process()
    stage.take(a, "A")
    for server in stage.servers[:count]:
        server.model.keys.clear()
    stage.try_to_take(b, "B")


OLD, NEW, ALL_NEW = (0, 1, 2), (0, 1, 3), (3, 4, 5)


def one_master_is_replaced(first: Lists, second: Lists) -> None:
    """A does not reach server 1, B does not reach server 0."""
    stage = Stage(4)
    a, b = stage.process(lists=first), stage.process(lists=second)
    stage.cut_off(a, 1)
    stage.cut_off(b, 0)
    stage.take(a, "A")
    stage.try_to_take(b, "B")


def all_masters_are_replaced(first: Lists, second: Lists) -> None:
    """Nothing is wrong with any server, or way."""
    stage = Stage(6)
    a, b = stage.process(lists=first), stage.process(lists=second)
    stage.take(a, "A")
    stage.try_to_take(b, "B")
