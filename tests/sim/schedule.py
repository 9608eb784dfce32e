"""One seed, one run: who takes part, what goes wrong, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from fastredlock import ReleaseStatus, Retry
from fastredlock._locking import attempt as _attempt
from fastredlock.errors import QuorumUnreachableError, ValidityExhaustedError
from tests.support.queue_table import queue_mistakes

from .faults import DECLARED, KEPT, LEAVES, MOVED, Nemesis
from .judge import Judge, Violation
from .keeper import SimKeeper
from .network import Path
from .orphans import Orphans
from .process import Process, new_settings
from .server import DELEX, DELIFEQ, Server
from .waiters import Waiters
from .worker import Habits, Slots, Worker
from .world import EPOCH_NS, MS, SLEEP, Clock, S, World

SETTLE_NS = 60 * S
IDLE_NS = S
RETRY = Retry(unreachable_tries=3)
MOST_EVENTS = 2_000  # until the faults end
WALL_NS = 400 * MS  # by which clocks on walls are wrong; a restart guard takes longer
DRIFT_PPM = 4_900  # each way: two clocks differ by 0.98 %, drift_factor is 1 %
CHANGES = 0.1  # of the schedules
# Of a list that changes: masters of both lists, of the old one only, of the new one.
STEPS = (
    *((2, 1, 1), (2, 1, 1), (1, 2, 2), (0, 3, 3), (4, 1, 1)),
    *((3, 0, 2), (3, 2, 0), (1, 0, 2), (1, 2, 0), (0, 1, 1), (0, 2, 3)),
)
SLOT_NOISE = b"q#0", b"q#1", b"q#7", b"q#", b"w#0"


class Outcome(NamedTuple):
    """What a run came to; equal for equal seeds."""

    seed: int
    digest: int
    events: int
    rounds: int
    leases: int
    strikes: int
    excuses: tuple[tuple[str, int], ...]  # what was not judged, and how often
    violation: str  # or ""


class Schedule:
    """Draw a world from a seed and run it, some assumptions broken on purpose."""

    def __init__(
        self, seed: int, broken: frozenset[str] = frozenset(), has_slots: bool = True
    ) -> None:
        self.seed = seed
        self.broken = broken
        self.world = World(seed)
        draw = self.world.random
        self.count = draw.choice((1, 3, 3, 3, 5, 5, 2, 4))
        self.versions = self._draw_versions(Random(f"{seed}:29 lists"))
        self.is_changing = len({*self.versions}) > 1
        self.until_ns = draw.choice((500 * MS, S, S, 2 * S, 2 * S, 3 * S, 8 * S))
        self.base_ns = draw.choice((50_000, 500_000, 5 * MS))
        self.is_one_far = Random(self.seed + 6).random() < 0.15 and self.count > 2
        if self.is_one_far:  # it takes a second to be noticed, and many replies
            self.until_ns, self.base_ns = max(self.until_ns, 3 * S), 50_000
        ttls_ms = (100, 400), (400, 2000), (300,), (200, 203, 3000), (1500, 6000)
        self.ttls_ms = draw.choice((*ttls_ms, (300, 60_000)))
        self.is_guarded = draw.random() < 0.25 and "restart" not in broken
        self.is_fencing = Random(seed + 3).random() < 0.3
        self.judge = Judge(self.world)
        self.judge.is_naive = "heed" in broken
        self.servers = [self._new_server(index) for index in range(self.count)]
        self.judge.servers = self.servers
        self.is_sharing = draw.random() < 0.4
        self.processes = [
            self._new_process(index) for index in range(draw.randrange(2, 5))
        ]
        self.slots: tuple[Slots, ...] = ()
        if has_slots:
            self.slots = self._draw_slots(Random(f"{seed}:slots"))  # draws of its own
        resources = draw.choice((("r",), ("r",), ("r", "s"), ("r", "s", "t")))
        self.habits = Habits(
            resources=resources,
            ttls_ms=self.ttls_ms,
            reads=self._draw_reads(Random(f"{seed}:readers")),
            takes_several=draw.choice((0, 0.3, 0.8)) if len(resources) > 1 else 0,
            slots=self.slots,
            takes_slots=Random(seed + 11).choice((0.5, 0.8, 1)),
            longest_think_ns=min(
                draw.choice((5 * MS, 50 * MS, 500 * MS)),
                5 * MS if self.is_one_far else S,
            ),
            cancels=draw.choice((0, 0.1, 0.5)),
            extends=draw.choice((0, 0.3, 0.8)),
            leaves=draw.choice((0, 0.2)),
            pauses=draw.choice((0, 0.001, 0.02)),
            hurries=Random(seed + 7).choice((0, 0.5, 0.9)),
            keeps=Random(seed + 1).choice((0, 0, 0, 0.5)),  # by draws of its own
        )
        self.nemesis = Nemesis(
            self.world, self.servers, self.processes, self._faults(),
            draw.choice((200 * MS, S, 4 * S)), self.until_ns,
            max(self.ttls_ms) * MS, self._spawn, self._new_worker,
        )  # fmt: skip
        if self.slots:
            self.nemesis.has_slots(SLOT_NOISE, (b"q#", b"w#"))

    def _draw_versions(self, own: Random) -> list[tuple[tuple[int, ...], ...]]:
        # In some schedules the list of masters changes: some processes have the old
        # list and others both, or some have both and others the new one; or, where that
        # is broken, the old one and the new one.
        if own.random() >= CHANGES and "swap" not in self.broken:
            return [(tuple(range(self.count)),)]
        step = own.choice(STEPS)
        self.count = sum(step)
        servers = own.sample(range(self.count), self.count)
        both, gone = servers[: step[0]], servers[step[0] : step[0] + step[1]]
        old = tuple(both + gone)
        new = tuple(both + servers[step[0] + step[1] :])
        if "swap" in self.broken:
            return [(old,), (new,)]
        return [own.choice(((old,), (new,))), (old, new)]

    def _draw_reads(self, own: Random) -> float:
        return 0.0 if self.is_fencing else own.choice((0, 0, 0.5, 0.8))

    def _draw_slots(self, own: Random) -> tuple[Slots, ...]:
        # In three of ten schedules: a semaphore, whose processes need not agree of how
        # many, or a rate, or both.
        if own.random() > 0.3:
            return ()
        counts = own.choice(((1,), (2,), (2,), (3,), (3,), (2, 3), (1, 3)))
        semaphores = [Slots("q", count) for count in counts]
        pers = [per for per in (0.1, 0.2, 0.5, 1.0) if per * 1250 <= max(self.ttls_ms)]
        rates = [Slots("w", own.choice((1, 2, 3)), own.choice(pers))]
        both = *semaphores, *rates
        return tuple(own.choice((semaphores, semaphores, rates, both)))

    def _new_server(self, index: int) -> Server:
        draw = self.world.random
        worst = 80_000 if "drift" in self.broken else DRIFT_PPM
        rate_ppm = draw.choice((-worst, 0, worst, draw.randrange(-worst, worst)))
        clock = Clock(EPOCH_NS + draw.randrange(S), rate_ppm)
        server = Server(self.world, index, clock, self.judge)
        server.model.started_s -= 1_000_000
        server.mark()
        server.is_old = draw.random() < 0.1
        server.is_without_queues = draw.random() < 0.05
        server.is_compare_broken = "compare" in self.broken
        self._draw_native(server)
        return server

    def _draw_native(self, server: Server) -> None:
        # By draws of its own: none in four of ten worlds, elsewhere often the same.
        fleet, draw = Random(self.seed + 2), Random(f"{self.seed}:{server.index}")
        if fleet.random() < 0.4:
            return
        most = fleet.choice((b"", DELIFEQ, DELEX))
        server.model.native = most or draw.choice((b"", DELIFEQ, DELEX))
        server.is_native_forbidden = draw.random() < 0.1
        server.is_exists_forbidden = draw.random() < 0.1

    def _new_process(self, index: int) -> Process:
        draw = self.world.random
        clock = Clock(
            draw.randrange(1, 1 << 50), draw.choice((-DRIFT_PPM, 0, DRIFT_PPM))
        )
        max_ttl = max(self.ttls_ms) / 1000 if self.is_guarded else None
        round_timeout = draw.choice((None, None, 0.05))
        lists = Random(f"{self.seed}:{index}:list").choice(self.versions)
        settings = new_settings(
            *lists, max_ttl=max_ttl, round_timeout=round_timeout,
            ttl=self.ttls_ms[0] / 1000, retry=RETRY, fencing=self.is_fencing,
            linger=self._draw_linger(index),
        )  # fmt: skip
        # Each once, those of the old list first.
        servers = [self.servers[at] for at in dict.fromkeys(sum(lists, ()))]
        paths = [
            Path(self.world, self.world.between(self.base_ns, 3 * self.base_ns))
            for _ in servers
        ]
        self._draw_far(index, dict(zip(servers, paths, strict=True)))
        process = Process(
            self.world, index, settings, clock, servers, paths, self.judge,
            self.is_sharing,
        )  # fmt: skip
        cohorts_ns = 0, 2 * MS, 2 * MS, 20 * MS, 200 * MS
        if not self.is_fencing:
            process.engine.cohort_ns = Random(self.seed + 6).choice(cohorts_ns)
        if self.is_fencing:  # by draws of its own: other schedules stay as they were
            own = Random(f"{self.seed}:{index}:wall")
            behind_ns = -WALL_NS if self.is_guarded else -100 * S
            process.set_wall(
                own.choice((0, own.randrange(-WALL_NS, WALL_NS), behind_ns))
            )
        return process

    def _draw_linger(self, index: int) -> float:
        # By draws of its own; most fleets have some that linger, and some that do not.
        own = Random(f"{self.seed}:{index}:linger")
        if self.is_fencing or Random(self.seed + 9).random() < 0.25:
            return 0.0
        return own.choice((0.0, 0.005, 0.2, 1.0))

    def _draw_far(self, index: int, paths: dict[Server, Path]) -> None:
        # One master is far from all, or from some; by draws of its own.
        fleet, own = Random(self.seed + 5), Random(f"{self.seed}:{index}:far")
        far, is_far_from_all = fleet.randrange(self.count), fleet.random() < 0.5
        if self.is_one_far and (is_far_from_all or own.random() < 0.5):
            path = paths.get(self.servers[far])
            more_ns = own.randrange(4 * MS, 20 * MS)
            if path is not None:
                path.delay_ns = path.usual_ns = path.usual_ns + more_ns

    def _faults(self) -> tuple[str, ...]:
        draw = self.world.random
        faults = [f for f in DECLARED if draw.random() < draw.choice((0.1, 0.5))]
        if self.habits.keeps:
            own = Random(self.seed + 2)  # other schedules stay as they were
            faults += [fault for fault in KEPT if own.random() < 0.5]
        if Random(self.seed + 4).random() < 0.25:
            faults.append(MOVED)
        if Random(self.seed + 12).random() < 0.25:
            faults += LEAVES
        if self.is_guarded or "restart" in self.broken:
            faults.append("restart_losing")
        faults += [f for f in ("jump", "evict") if f in self.broken]
        if "heed" in self.broken:
            faults.append("pause_process")
        return tuple(faults)

    # --- the run ----------------------------------------------------------------------

    def run(self) -> Outcome:
        original = _attempt.draw_fraction
        _attempt.draw_fraction = self.world.random.random  # the only other chance
        violation, mistakes = "", queue_mistakes()
        try:
            self._run()
        except Violation as found:
            violation = str(found)
        except Exception as error:  # the engine rules it out: a finding like the others
            violation = f"crash: {type(error).__name__}: {error}"
            if self.world.log is not None:
                raise
        finally:
            _attempt.draw_fraction = original
            for process in self.processes:
                for worker in process.workers:
                    worker.forget()
        if not violation and queue_mistakes() != mistakes:
            violation = f"the table rules these out: {queue_mistakes()}"
        return Outcome(
            self.seed, self.world.digest, self.world.events, len(self.judge.rounds),
            self.judge.leases, self.nemesis.strikes,
            tuple(sorted(self.judge.excuses.items())), violation,
        )  # fmt: skip

    def _run(self) -> None:
        for process in self.processes:
            self._start(process)
        if not self.broken:
            Orphans(self.world, self.judge).look()
            if not (self.is_guarded or self.is_changing):
                Waiters(self.world, self.judge, self.processes).look()
        self.world.run(self.until_ns, MOST_EVENTS * (2 if self.is_one_far else 1))
        if self.world.now_ns < self.until_ns:
            self._end_early()
        self.nemesis.heal()
        self._finish("the workers")
        if not self.broken:
            self.world.run(self.world.now_ns + IDLE_NS)  # nobody reads, nobody calls
            self._settle()
        self.judge.check_all_votes()

    def _end_early(self) -> None:
        # A tenth of the seeds made half of the events, most of them polls of a key that
        # is held: no call begins any more, no fault either.
        self.nemesis.until_ns = self.world.now_ns
        for process in self.processes:
            for worker in process.workers:
                worker.until_ns = self.world.now_ns
        self.world.run(self.until_ns)

    def _start(self, process: Process) -> None:
        self._watch(process)
        if self.habits.keeps:
            SimKeeper(process, self._new_worker(process))
        more = Random(self.seed + 8).choice((0, 0, 1, 3))  # of a cohort
        for _ in range(more + self.world.random.choice((1, 1, 2, 3))):
            worker = self._new_worker(process)
            worker.start(worker.live())

    def _watch(self, process: Process) -> None:
        if process.settings.linger_ns:
            process.watch(self._new_worker(process))

    def _new_worker(self, process: Process) -> Worker:
        return Worker(process, self.habits, self.until_ns)

    def _spawn(self) -> None:
        # In the place of one that has ended: it has no memory of anything.
        process = self._new_process(len(self.processes))
        self.processes.append(process)
        self._start(process)

    def _finish(self, who: str) -> None:
        # I4: everybody comes to an end.
        limit_ns = self.world.now_ns + SETTLE_NS
        workers = [w for p in self.processes for w in p.workers]
        while not all(worker.is_done for worker in workers):
            if self.world.now_ns > limit_ns:
                self.judge.fail("I4", f"{who} have not come to an end")
            self.world.run(self.world.now_ns + 100 * MS)

    def _settle(self) -> None:
        # After the faults: everybody reconnects, no key is left behind, all can lock.
        healthy = Habits(resources=("r",), ttls_ms=self.ttls_ms)
        alive = [process for process in self.processes if not process.is_gone]
        for process in alive:
            process.workers.clear()
            worker = Worker(process, healthy, 0)
            worker.start(self._reconnect(worker))
            self._watch(process)
        self._finish("those who reconnect")
        longest_ns = max(self.ttls_ms) * MS * 2 + 2 * S
        self.world.run(self.world.now_ns + longest_ns)
        for process in alive:
            process.workers[0].start(self._take(process.workers[0]))
            self._watch(process)
            self._finish("those who take the lock")

    def _reconnect(self, worker: Worker) -> Iterator[tuple[str, int]]:
        process = worker.process
        for _ in range(30):
            yield from self._use(worker)
            if process.ready_count() == len(process.servers):
                yield SLEEP, 1200 * MS  # what a slow path still has under way
                yield from self._use(worker)  # ...is read, and answered
                return
        self.judge.fail("I4", f"process {process.index} sees {process.engine.states}")

    def _use(self, worker: Worker) -> Iterator[tuple[str, int]]:
        try:
            resource = f"own{worker.process.index}"
            self.judge.unseen.add(resource.encode())
            lease = yield from worker.acquire(resource, 300, 0)
            if lease is not None:
                yield from worker.release(lease)
        except (QuorumUnreachableError, ValidityExhaustedError):
            pass
        yield SLEEP, 200 * MS

    def _take(self, worker: Worker) -> Iterator[tuple[str, int]]:
        resources = self.habits.resources
        what = resources if len(resources) > 1 else resources[0]
        ttl_ms, status = max(self.ttls_ms), None
        try:
            lease = yield from worker.acquire(what, ttl_ms, 2 * S)
            if lease is not None:
                status = yield from worker.release(lease)
            if self.slots and not self.slots[0].per:
                yield from self._take_slot(worker, ttl_ms)
        except QuorumUnreachableError:
            if self._is_in_time(worker.process, ttl_ms):
                raise
            return
        if lease is None:
            self.judge.fail("I4", f"nobody holds {what}, and it was not acquired")
        elif status is not ReleaseStatus.RELEASED and (
            self._is_in_time(worker.process, ttl_ms)
        ):
            self.judge.fail("I4", f"all is well, and a release says {status}")

    def _take_slot(self, worker: Worker, ttl_ms: int) -> Iterator[tuple[str, int]]:
        lease = yield from worker.acquire(self.slots[0], ttl_ms, 2 * S)
        if lease is None:
            self.judge.fail("I4", "nobody holds a slot, and none was acquired")
        yield from worker.release(lease)

    def _is_in_time(self, process: Process, ttl_ms: int) -> bool:
        # Whether replies come within the round timeout of such a ttl: on a path of 15
        # ms, one way, and a ttl of 0.3 s they may not, and a call says so.
        timeout_ns = process.settings.terms(ttl_ms / 1000).timeout_ns
        return all(4 * path.usual_ns < timeout_ns for path in process.paths)
