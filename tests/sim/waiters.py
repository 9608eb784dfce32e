"""I7: a free lock with a live waiter is taken within the fall-back time.

A lock counts as free for a waiter where a quorum of masters has no key of it, or one
that rests in a process, which is to give it up when it is asked; and the
waiter's process is well with all of them: from then on, from the acquire's beginning
and from the last grant of the lock, whatever comes last. It is granted to somebody
within TAKEN_NS and some round trips if everybody is well with everybody; and within
that, DISTURBED_NS and PROCESS_NS for each other process, if not: a gate that is silent
is found out when its connection has owed a reply for too long, and each process that
stands still when it is told costs one fall-back period.

Of a semaphore that is one slot, of those that all who wait for it may have: the first
may have asked for fewer. Where each slot has a key at the gate, one of them is tried
in TRY_SLOT_NS.

Of several keys at once it is all of them. While one of these is held, the others may be
kept for whoever waits for all, so they are not free for anybody else.

Looked at every LOOK_NS. Not looked at: waiters whose round trips do not fit into the
round timeout; schedules with a restart guard, in which masters that are well may not
vote. What rests in a process that has crashed stands for its ttl, and is not free (seed
53691). Where a dead process left a key at the gate, those behind the first try by their
place: the third each second (seed 66865).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastredlock._core import MasterState
from tests.support.waiters import gate_of as gate_among

from .world import FOREVER_NS, MS, S, World

if TYPE_CHECKING:
    from .judge import Judge
    from .process import Process
    from .worker import Worker

LOOK_NS = 50 * MS
TRY_AMONG_NS = S  # waiting/gate: of several resources one tries in a second
TAKEN_NS = 600 * MS  # 0.25 s until the gate is asked again, 50 ms for one that was told
SLOW_NS = 350 * MS  # counted
DISTURBED_NS = 3 * S  # until a connection counts as dead, and back-off
PROCESS_NS = 350 * MS
ROUND_TRIPS = 20
TRY_SLOT_NS = S  # waiting/gate: one of the slots, where the gate knows none
BEHIND_NS = 400 * MS  # waiting/gate: a try of one that is not the first, by its place


def gate_of(process: Process, key: bytes) -> int:
    """Return the index of the master that a process asks; -1: none (waiting/gate)."""
    count = len(process.servers)
    first, states = gate_among(count, key), process.engine.states
    for index in (*range(first, count), *range(first)):
        server = process.servers[index]
        is_none = server.is_old or server.is_without_queues
        if states[index][0] is MasterState.READY and not is_none:
            return index
    return -1


def _place(process: Process, key: bytes) -> int:
    """Return its place at its gate, where that has a key; else 0."""
    gate = gate_of(process, key)
    if gate < 0 or process.servers[gate].token_at(key) is None:
        return 0
    waiting: list[bytes] = process.servers[gate].waiting(key)
    return waiting.index(process.waiter) if process.waiter in waiting else 0


def _is_at_gate(process: Process, name: bytes, keys: list[bytes]) -> bool:
    """Whether each slot has a key at the gate, so that this one reports none free."""
    gate = gate_of(process, name)
    return gate < 0 or all(process.servers[gate].token_at(key) for key in keys)


def keys_of(worker: Worker) -> list[bytes]:
    """Return the keys of which a worker waits for one: the slots of a semaphore.

    Or for all of which it waits.
    """
    if worker.waits_for_all:
        return list(worker.waits_for_all)
    name, permits = worker.waits_for, worker.waits_permits
    return [b"%b%d" % (name, slot) for slot in range(permits)] or [name]


class Waiters:
    def __init__(self, world: World, judge: Judge, processes: list[Process]) -> None:
        self._world = world
        self._judge = judge
        self._processes = processes
        self._free_ns: dict[bytes, list[int]] = {}  # by server, since when it is free
        self._counted: set[tuple[bytes, int, str]] = set()
        self._among: dict[int, tuple[int, int]] = {}  # when, for how many, by process
        self._places: dict[tuple[int, bytes], tuple[int, int]] = {}
        # Of each semaphore, the least permits that are asked for, and since when.
        self._fewest: dict[bytes, tuple[int, int]] = {}
        self._kept_ns: dict[bytes, int] = {}  # by key, for one who waits for several

    def look(self) -> None:
        waiting = [
            worker
            for process in self._processes
            if not (process.is_gone or process.engine.is_closed)
            for worker in process.workers
            if (worker.waits_for or worker.waits_for_all) and not worker.is_done
        ]
        self._note_fewest([worker for worker in waiting if worker.waits_for])
        keys = {key for worker in waiting for key in keys_of(worker)}
        for key in [key for key in self._free_ns if key not in keys]:
            del self._free_ns[key]
        for key in keys:
            self._look_at(key)
        for worker in waiting:
            every = worker.waits_for_all
            if any(FOREVER_NS in self._free_ns[key] for key in every):
                self._kept_ns.update(dict.fromkeys(every, self._world.now_ns))
        for worker in waiting:
            self._judge_waiter(worker)
        self._world.at(self._world.now_ns + LOOK_NS, self.look)

    def _note_fewest(self, waiting: list[Worker]) -> None:
        # They are served in turn: the first may have asked for fewer than the others.
        before, self._fewest = self._fewest, {}
        for worker in waiting:
            name, permits = worker.waits_for, worker.waits_permits
            fewest, since_ns = self._fewest.get(name, (permits, 0))
            self._fewest[name] = min(fewest, permits), since_ns
        for name, (fewest, _) in self._fewest.items():
            last, since_ns = before.get(name, (fewest, 0))
            since_ns = since_ns if last == fewest else self._world.now_ns
            self._fewest[name] = fewest, since_ns

    def _look_at(self, key: bytes) -> None:
        servers, now_ns = self._judge.servers, self._world.now_ns
        free_ns = self._free_ns.setdefault(key, [FOREVER_NS] * len(servers))
        for index, server in enumerate(servers):
            token = server.token_at(key)
            owner, _ = self._judge.resting.get(token, (None, 0))
            if token is not None and (owner is None or owner.is_gone):
                free_ns[index] = FOREVER_NS
            elif free_ns[index] == FOREVER_NS:
                free_ns[index] = now_ns

    def _judge_waiter(self, worker: Worker) -> None:
        process, key, now_ns = worker.process, worker.waits_for, self._world.now_ns
        count = len(process.servers)
        well_ns = [process.is_well_with(index) for index in range(count)]
        keys = keys_of(worker)
        granted_ns = max(self._judge.granted_ns.get(each, 0) for each in keys)
        kept_ns = max(self._kept_ns.get(each, 0) for each in keys)
        fewest, fewest_ns = self._fewest.get(key, (len(keys), 0))
        keys = keys[: fewest or 1]
        pick = max if worker.waits_for_all else min
        free_ns = pick(
            sorted(map(max, well_ns, self._free_ns[each]))[count // 2] for each in keys
        )
        since_ns = max(free_ns, worker.waits_from_ns, granted_ns, fewest_ns, kept_ns)
        slowest_ns = max(path.delay_ns for path in process.paths)
        if now_ns - since_ns < SLOW_NS or 4 * slowest_ns >= worker.round_timeout_ns:
            return
        if worker.waits_until_ns < now_ns:
            return
        took_ns = now_ns - max(since_ns, self._undisturbed_from_ns())
        limit_ns = TAKEN_NS + ROUND_TRIPS * slowest_ns
        if (most := self._most_since(process, since_ns)) > 1:
            limit_ns += most * TRY_AMONG_NS
        limit_ns += max(
            BEHIND_NS * self._place_since(process, each, since_ns)
            for each in worker.waits_for_all or [key]
        )
        if worker.waits_permits and _is_at_gate(process, key, keys):
            limit_ns += TRY_SLOT_NS * len(keys)
        if took_ns > SLOW_NS:
            self._excuse(key, since_ns, "a free lock stood for over 0.35 s, one waits")
        if took_ns <= limit_ns:
            took_ns = now_ns - since_ns
            limit_ns += DISTURBED_NS + PROCESS_NS * len(self._processes)
        if took_ns > limit_ns:
            name = b" ".join(keys).decode()
            self._judge.fail(
                "I7",
                f"{name} has been free for {took_ns / 1e6:.0f} ms, and process "
                f"{process.index} waits for it",
            )

    def _most_since(self, process: Process, since_ns: int) -> int:
        # For how many resources it has waited together (seed 3024253: for another one
        # until a moment ago, which had tried in the second before).
        alive = [each for each in process.workers if not each.is_done]
        waited_for = {each.waits_for for each in alive} - {b""}
        waited_for.update(*(each.waits_for_all for each in alive))
        count, now_ns = len(waited_for), self._world.now_ns
        seen_ns, seen = self._among.get(process.index, (0, 0))
        if count >= seen or seen_ns < since_ns:
            self._among[process.index] = now_ns, count
            return count
        return seen

    def _place_since(self, process: Process, key: bytes, since_ns: int) -> int:
        # The last one that was not the first. (Seed 8034820: a gate that had refused
        # writes kept two entries whose processes wait no more, and a key.)
        place, now_ns = _place(process, key), self._world.now_ns
        at = process.index, key
        seen_ns, seen = self._places.get(at, (0, 0))
        if place or seen_ns < since_ns:
            self._places[at] = now_ns, place
            return place
        return seen

    def _excuse(self, key: bytes, since_ns: int, text: str) -> None:
        if (key, since_ns, text) not in self._counted:
            self._counted.add((key, since_ns, text))
            self._judge.excuses[text] += 1

    def _undisturbed_from_ns(self) -> int:
        # Since when nothing has come between anybody and any server.
        latest_ns = 0
        for process in self._processes:
            if process.is_gone:
                latest_ns = max(latest_ns, process.gone_ns)
                continue
            for index in range(len(process.servers)):
                latest_ns = max(latest_ns, process.is_well_with(index))
        return latest_ns
