"""Small stories written by hand: one assumption each, broken and kept.

A scenario is a world with nothing drawn: fixed delays, no faults but the one it tells.
Each returns what the judge says: "" where the promise held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastredlock import Lease

from .judge import Judge, Violation
from .keeper import SimKeeper
from .network import Path
from .process import Process, new_settings
from .server import Server
from .worker import Habits, Worker
from .world import EPOCH_NS, FOREVER_NS, MS, SLEEP, Clock, S, World

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

    def process(self, clock_ns: int = S) -> Worker:
        """Add a client with one thread; its clock begins there."""
        process = Process(
            self.world, len(self.processes),
            new_settings(len(self.servers), **self.options), Clock(clock_ns, 0),
            self.servers, [Path(self.world, 100_000) for _ in self.servers],
            self.judge, is_sharing=False,
        )  # fmt: skip
        self.processes.append(process)
        return Worker(process, NOTHING, 0)

    def take(self, worker: Worker, name: str, ttl_ms: int = 1000) -> None:
        """Let a worker make one try, to its end; its lease goes by this name."""

        def steps() -> Iterator[tuple[str, int]]:
            self.leases[name] = yield from worker.acquire("r", ttl_ms, 0)

        self.do(worker, steps())

    def do(self, worker: Worker, steps: Iterator[tuple[str, int]]) -> None:
        """Let a worker do these steps to their end."""
        worker.start(steps)
        while not worker.is_done:
            self.world.run(self.world.now_ns + MS)

    def pass_time(self, for_ns: int) -> None:
        self.world.run(self.world.now_ns + for_ns)

    def cut_off(self, worker: Worker, *indexes: int, for_ns: int = S) -> None:
        """Let a worker's process lose the way to these servers."""
        for index in indexes:
            path = worker.process.paths[index]
            path.hole_until_ns = self.world.now_ns + for_ns

    def restart(self, index: int) -> None:
        """Restart a server without its keys, at once."""
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
        try_to_take(stage, b, "B")
        stage.pass_time(50 * MS)
    return stage


def five_servers_one_is_new(max_ttl: float | None) -> Stage:
    """The same; but the empty server that comes back as 2 has been up for long.

    A failover to another machine, or a wall clock that was set forward after a restart.
    """
    return five_servers_one_restarts(max_ttl, 3600)


def five_servers_one_is_replaced(max_ttl: float | None) -> Stage:
    """The same, and B had a connection to the old server.

    Other clients have asked the other server before: it has a marker.
    """
    return five_servers_one_restarts(max_ttl, 3600, is_new=False)


def try_to_take(stage: Stage, worker: Worker, name: str, ttl_ms: int = 1000) -> None:
    """As take; an error is no lease."""

    def steps() -> Iterator[tuple[str, int]]:
        stage.leases[name] = None
        try:
            stage.leases[name] = yield from worker.acquire("r", ttl_ms, 0)
        except Exception as error:
            if isinstance(error, Violation):
                raise
            stage.world.tell(f"{name}: {error}")

    stage.do(worker, steps())


def three_clocks_jump(by_ns: int) -> None:
    """A wall clock set forward expires keys early: two of three suffice."""
    stage = Stage(3)
    a, b = stage.process(), stage.process()
    stage.take(a, "A")
    for server in stage.servers[:2]:
        server.clock.origin_ns += by_ns
    try_to_take(stage, b, "B")


def clocks_drift(rate_ppm: int) -> None:
    """Servers run fast by so much; B tries until it gets the lock."""
    stage = Stage(3)
    for server in stage.servers:
        server.clock.rate_ppm = rate_ppm
    a, b = stage.process(), stage.process()
    stage.take(a, "A", 10_000)
    stage.leases["B"] = None
    while stage.leases["B"] is None:
        try_to_take(stage, b, "B")
        stage.pass_time(MS)


def holder_pauses(is_naive: bool) -> None:
    """A is stopped past its validity; a lease that is asked afterwards says so."""
    stage = Stage(3)
    stage.judge.is_naive = is_naive
    a, b = stage.process(), stage.process()
    stage.take(a, "A")
    a.process.pause(2 * S)
    stage.pass_time(1100 * MS)
    try_to_take(stage, b, "B")
    if stage.leases["B"] is None or stage.leases["A"].is_valid:
        raise RuntimeError("A pauses, its keys expire, and B takes the lock")


def two_keys_are_evicted(count: int) -> None:
    """Servers under memory pressure drop keys that have a ttl."""
    stage = Stage(3)
    a, b = stage.process(), stage.process()
    stage.take(a, "A")
    for server in stage.servers[:count]:
        server.model.keys.clear()
    try_to_take(stage, b, "B")


def an_old_extension_arrives_late() -> Stage:
    """A short extension comes out of a connection that was closed long ago.

    One server. A extends by 2 s; the bytes are stuck on their way. A closes that
    connection after 1 s, opens another, extends by 10 s and is told so. Then the old
    bytes arrive, and the key has 2 s again. B takes the lock when it is gone.
    """
    stage = Stage(1)
    a, b = stage.process(), stage.process()
    stage.take(a, "A", 10_000)
    lease = stage.leases["A"]
    old = a.process.connections[0]
    old.up.hole_until_ns = stage.world.now_ns + 1600 * MS
    extend(stage, a, lease, 2.0)
    stage.pass_time(1150 * MS)
    extend(stage, a, lease, 10.0)  # finds out that the connection is dead
    old.up.may_deliver = None  # what it had sent is still under way
    extend(stage, a, lease, 10.0)
    stage.pass_time(3 * S)
    try_to_take(stage, b, "B")
    return stage


def extend(stage: Stage, worker: Worker, lease: Lease, ttl: float) -> None:
    """Extend; an error changes nothing but what the lease says."""

    def steps() -> Iterator[tuple[str, int]]:
        try:
            left = yield from worker.extend(lease, ttl)
            stage.world.tell(f"extended: {left:.3f} s")
        except Exception as error:
            if isinstance(error, Violation):
                raise
            stage.world.tell(str(error))
        yield SLEEP, 0

    stage.do(worker, steps())


def kept_lease(for_ns: int) -> tuple[Stage, Worker, Worker, Lease]:
    """Let A keep a lease by a keeper of its process, for so long; return B, too."""
    stage = Stage(3)
    a, b = stage.process(), stage.process()
    stage.take(a, "A")
    lease = stage.leases["A"]
    SimKeeper(a.process, Worker(a.process, NOTHING, FOREVER_NS)).keep(lease)
    stage.pass_time(for_ns)
    return stage, a, b, lease


def watch(stage: Stage, lease: Lease, for_ns: int) -> int:
    """Let time pass until the loss is told; return how long it took (ns), or for_ns."""
    began_ns, watch = stage.world.now_ns, lease._round.lease_state
    while watch.error is None and stage.world.now_ns - began_ns < for_ns:
        stage.pass_time(MS)
    return stage.world.now_ns - began_ns


def a_kept_lease_and_clocks_that_are_set(by_ns: int) -> tuple[int, Lease]:
    """A keeps a lease of 1 s; then two of three servers' clocks are set by so much.

    Forward, its keys are gone at once: that is told at the next renewal, and B, which
    comes after, takes the lock. Returns when the loss was told (ns after), or 5 s.
    """
    stage, _, b, lease = kept_lease(2500 * MS)
    for server in stage.servers[:2]:
        server.clock.origin_ns += by_ns
    took_ns = watch(stage, lease, 5 * S)
    try_to_take(stage, b, "B")
    if (stage.leases["B"] is None) is not lease.is_valid:
        raise RuntimeError("either A holds it or B")
    return took_ns, lease


def a_kept_lease_and_a_holder_that_pauses(for_ns: int) -> Lease:
    """A keeps a lease of 1 s and stands still; B takes the lock where it is free.

    When A goes on, nothing that it renews may touch the key of B, and its loss is told
    before anything else. Returns the lease of A.
    """
    stage, a, b, lease = kept_lease(1500 * MS)
    a.process.pause(for_ns)
    stage.pass_time(for_ns - 10 * MS)
    try_to_take(stage, b, "B", 60_000)
    stage.pass_time(2 * S)
    return lease


def a_stopped_server_wakes_up() -> Stage:
    """A server sets the key of a round that its client lost long ago.

    One server, stopped for 1.2 s, has forgotten its scripts. Meanwhile a round of A
    with a ttl of 300 ms is lost and undone. Then the server sets the key and says
    NOSCRIPT to its release, but nothing that it says arrives any more. At 1.25 s A
    gives that connection up, opens another, and tries again as B.
    """
    stage = Stage(1)
    a = stage.process()
    stage.take(a, "warm-up")
    stage.do(a, a.release(stage.leases["warm-up"]))
    stage.servers[0].model.loaded.clear()
    stage.servers[0].pause(1200 * MS)
    a.process.connections[0].down.hole_until_ns = stage.world.now_ns + 10 * S
    try_to_take(stage, a, "A", 300)
    stage.pass_time(1250 * MS)
    try_to_take(stage, a, "B", 300)
    return stage


def leave(stage: Stage, worker: Worker) -> None:
    """Let a worker close its client, and its process exit; then nothing calls."""

    def steps() -> Iterator[tuple[str, int]]:
        yield from worker.process.close()
        worker.process.exit()

    stage.do(worker, steps())
    stage.pass_time(2 * S)


def masters_wake_up_behind_a_client_that_is_gone() -> Stage:
    """A majority is silent for too long while a round is open: its SETs run later.

    Two of three stop before a release; a second later their connections are given up,
    with an acquire in flight on them. The client is closed before they go on.
    """
    stage = Stage(3)
    a = stage.process()
    stage.take(a, "before", 10_000)
    for server in stage.servers[:2]:
        server.pause(3 * S)
    stage.world.random.choice = lambda told: told[1]  # type: ignore[method-assign]
    stage.do(a, a.release(stage.leases["before"]))
    stage.pass_time(200 * MS)
    try_to_take(stage, a, "A", 20_000)  # all that was sent arrives, by the line above
    leave(stage, a)
    return stage


def a_connection_is_cut_as_a_release_leaves() -> Stage:
    """All servers are well, and the client is closed behind that release."""
    stage = Stage(3)
    a = stage.process()
    stage.take(a, "A", 20_000)
    stage.do(a, a.extend(stage.leases["A"]))  # all three have answered
    a.process.connections[0].cut(0, 0)
    stage.do(a, a.release(stage.leases["A"]))
    leave(stage, a)
    return stage


def extension_grows_after_a_shorter_one() -> Stage:
    """Shorter, then longer, on connections that live: the longer one counts."""
    stage = Stage(5)
    a = stage.process()
    stage.take(a, "A")
    extend(stage, a, stage.leases["A"], 0.5)
    extend(stage, a, stage.leases["A"], 10.0)
    return stage


def the_third_master_comes_later() -> Stage:
    """One of three restarted just now and gets no vote; the other two suffice."""
    stage = Stage(3, max_ttl=2.0)
    a = stage.process()
    stage.restart(0)
    a.process.paths[2].delay_ns = 3 * MS
    stage.leases["A"] = None
    try_to_take(stage, a, "A")
    return stage
