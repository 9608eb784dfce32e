"""Those who wait for a lock in turn, and what may go wrong with their queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf

import pytest

from fastredlock._core import ClosedError
from fastredlock.errors import FastRedlockError

from .scenarios import NOTHING, Stage
from .server import CHANNEL, QUEUE, TURN, Server
from .waiters import gate_of
from .worker import Worker
from .world import MS, SLEEP, S

KEY = b"r"
ROUND_TRIP_NS = MS  # 0.1 to 0.4 ms, and a worker wakes up within 0.1 ms
FALL_BACK_NS = 600 * MS


class Queue(Stage):
    """A holder, and those who wait behind it."""

    def __init__(self, count: int = 3) -> None:
        super().__init__(count)
        self.granted: list[tuple[str, int]] = []  # name, true ns
        self.released_ns = 0
        self.holder = self.process()
        self.first_process = self.holder.process

    def hold(self, for_ns: int = 50 * MS) -> None:
        """Let the holder take the lock; it gives it back after that time."""
        self.take(self.holder, "holder", 60_000)
        self.holder.start(self._release(for_ns))

    def _release(self, for_ns: int) -> Iterator[tuple[str, int]]:
        yield SLEEP, for_ns
        self.released_ns = self.world.now_ns
        yield from self.holder.release(self.leases["holder"])

    def wait(self, worker: Worker, name: str, hold_ns: int = 5 * MS) -> Worker:
        """Let a worker wait for the lock, hold it and give it back; 1 ms goes by."""

        def steps() -> Iterator[tuple[str, int]]:
            with suppress(ClosedError, FastRedlockError):
                lease = yield from worker.acquire("r", 5000, 10 * S)
                self.leases[name] = lease
                self.granted.append((name, self.world.now_ns))
                yield SLEEP, hold_ns
                yield from worker.release(lease)

        worker.start(steps())
        self.pass_time(2 * MS)
        return worker

    def gate(self) -> int:
        (index,) = [s.index for s in self.servers if s.waiting(KEY)]
        return index

    def at_gate(self) -> Server:
        return self.servers[self.gate()]

    def took_ns(self) -> int:
        assert self.granted, "nobody has it"
        return self.granted[0][1] - self.released_ns


def waiting(count: int = 3, *clocks_ns: int) -> tuple[Queue, list[Worker]]:
    """Return a queue with a holder, and processes that wait in this order."""
    queue = Queue(count)
    queue.hold()
    workers = [queue.process(clock_ns) for clock_ns in clocks_ns or (S, S)]
    for name, worker in zip("abcdefgh", workers, strict=False):
        queue.wait(worker, name)
    return queue, workers


@pytest.mark.parametrize("clocks_ns", [(S, 9 * S, 5 * S), (9 * S, S, 5 * S)])
def test_waiters_when_their_clocks_differ_then_are_served_as_they_came(
    clocks_ns: tuple[int, ...],
) -> None:
    queue, _ = waiting(3, *clocks_ns)
    queue.pass_time(S)
    assert [name for name, _ in queue.granted] == ["a", "b", "c"]
    assert queue.took_ns() < 3 * ROUND_TRIP_NS
    assert not any(server.queues() for server in queue.servers)


def test_waiter_when_released_beside_it_then_has_the_lock_after_one_round_trip() -> (
    None
):
    queue = Queue()
    beside = Worker(queue.first_process, NOTHING, 0)
    queue.hold()
    queue.wait(beside, "beside")
    queue.pass_time(S)
    assert queue.took_ns() < ROUND_TRIP_NS
    assert queue.leases["beside"]._round.attempt == 2  # the first found it taken
    assert queue.first_process.engine.counters.handed_over == 1


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_gate_when_looked_up_then_is_the_server_that_has_the_queue(count: int) -> None:
    queue, workers = waiting(count)
    assert gate_of(workers[0].process, KEY) == queue.gate()


def test_waiters_when_in_one_process_then_have_one_entry_at_the_gate() -> None:
    queue, workers = waiting()
    more = [Worker(workers[0].process, NOTHING, 0) for _ in range(3)]
    for worker in more:
        queue.wait(worker, "beside a")
    assert queue.at_gate().waiting(KEY) == [worker.process.waiter for worker in workers]
    queue.pass_time(S)
    assert len(queue.granted) == 5
    assert [name for name, _ in queue.granted][:2] == ["a", "b"]


def cut_gate(queue: Queue, first: Worker) -> None:
    connection = first.process.connections[queue.gate()]
    assert connection is not None
    connection.cut(0, 0)


def make_noise(queue: Queue, first: Worker) -> None:
    for text in (b"r", b"s", b"", b"r", b":1\r\n"):
        queue.at_gate().publish(CHANNEL + first.process.waiter, text)


def stuff_queue(score: float, queue: Queue, first: Worker) -> None:
    keys = queue.at_gate().model.keys
    for number in range(20_000):
        keys.zadd(QUEUE + KEY, score, b"nobody-%05d" % number)


Fault = Callable[[Queue, Worker], object]
FAULTS: dict[str, Fault] = {
    "lose_queue": lambda queue, _: queue.at_gate().model.keys.drop(QUEUE + KEY),
    "spoil_queue": lambda queue, _: queue.at_gate().put(QUEUE + KEY, b"of another"),
    "spoil_turn": lambda queue, _: queue.at_gate().put(TURN + KEY, b"nobody"),
    "stop_gate": lambda queue, _: queue.at_gate().stop(is_losing=False),
    "restart_gate": lambda queue, _: queue.restart(queue.gate()),
    "cut_gate": cut_gate,
    "crash_first": lambda _, first: first.process.crash(),
    "pause_first": lambda _, first: first.process.pause(5 * S),
    "black_hole_first": lambda queue, first: queue.cut_off(
        first, *range(len(queue.servers)), for_ns=5 * S
    ),
    "make_noise": make_noise,
    "silence_gate": lambda queue, _: queue.at_gate().pause(20 * S),
    "stuff_queue": partial(stuff_queue, 0.0),
    "stuff_queue_before_all": partial(stuff_queue, -inf),
    # Of a process that crashed in its acquire: polling takes the other two masters.
    "leave_key": lambda queue, _: leave_key(queue),
}
# When the lock is taken at the latest, and by how many of the two.
TAKEN = dict.fromkeys(FAULTS, (FALL_BACK_NS, 2)) | {
    **dict.fromkeys(("crash_first", "black_hole_first"), (FALL_BACK_NS, 1)),
    "silence_gate": (3 * S, 2),  # when its connection ends
    **dict.fromkeys(("stuff_queue", "stuff_queue_before_all"), (1_400 * MS, 2)),
    "leave_key": (3 * S, 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_lock_when_something_happens_to_its_queue_then_is_taken_all_the_same(
    fault: str,
) -> None:
    queue, workers = waiting()
    FAULTS[fault](queue, workers[0])
    queue.pass_time(8 * S)
    most_ns, least = TAKEN[fault]
    assert queue.took_ns() < most_ns
    assert len(queue.granted) >= least


def tell_first(queue: Queue) -> None:
    gate = queue.at_gate()
    while not gate.told(KEY):  # its message is under way
        queue.pass_time(1000)


def miss_release(queue: Queue) -> None:
    # The gate has notified nobody of a turn, so it drops nobody. Those behind try.
    queue.cut_off(queue.holder, queue.gate(), for_ns=20 * S)


def leave_key(queue: Queue) -> None:
    # Only the first of all would try on the other masters. Seen: seed 413384.
    queue.at_gate().put(KEY, b"left", 20_000)


@pytest.mark.parametrize(
    ("before", "fault", "most_ns"),
    [
        *((tell_first, each, FALL_BACK_NS) for each in ("crash_first", "pause_first")),
        (tell_first, "black_hole_first", FALL_BACK_NS),
        *(
            (miss_release, f"{each}_first", FALL_BACK_NS)
            for each in ("pause", "black_hole")
        ),
        *((leave_key, "crash_first", FALL_BACK_NS), (leave_key, "pause_first", 2 * S)),
    ],
)
def test_lock_when_the_first_is_gone_then_is_taken_by_the_next_whatever_it_was_told(
    before: Callable[[Queue], None], fault: str, most_ns: int
) -> None:
    queue, workers = waiting()
    before(queue)
    FAULTS[fault](queue, workers[0])
    queue.pass_time(8 * S)
    assert [name for name, _ in queue.granted][:1] == ["b"]
    assert queue.took_ns() < most_ns


@pytest.mark.parametrize("is_sharing", [False, True])
def test_close_when_its_tasks_wait_then_ends_them_and_leaves_the_queue(
    is_sharing: bool,
) -> None:
    queue, workers = waiting()
    closing = workers[0].process
    closing.is_sharing = is_sharing
    queue.do(Worker(closing, NOTHING, 0), closing.close())
    assert queue.at_gate().waiting(KEY) == [workers[1].process.waiter]
    queue.pass_time(S)
    assert [name for name, _ in queue.granted] == ["b"]


def test_waiter_when_told_out_of_turn_then_is_refused_by_the_gate() -> None:
    queue = Queue()
    for server in queue.servers:
        server.put(KEY, b"another", 60_000)
    first, second = (queue.wait(queue.process(), name) for name in "ab")
    gate = queue.at_gate()
    first.process.pause(20 * MS)
    for server in queue.servers:
        server.model.keys.drop(KEY)  # nobody is told
    for path in second.process.paths:
        path.delay_ns = 3 * MS  # the gate answers first
    second.process.paths[gate.index].delay_ns = MS // 10
    gate.publish(CHANNEL + second.process.waiter, KEY)
    queue.pass_time(100 * MS)
    assert [name for name, _ in queue.granted][:1] == ["a"]


def test_waiter_when_told_and_most_have_another_key_then_is_not_granted() -> None:
    queue, workers = waiting()
    gate = queue.gate()
    for server in queue.servers:
        if server.index != gate:
            server.put(KEY, b"another", 2000)
    queue.pass_time(S)
    assert workers[0].process.engine.counters.turns_told >= 1
    assert not queue.granted
