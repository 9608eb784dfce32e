"""The blocking driver of one process, mirrored: drivers/blocking.

What is mirrored is which worker calls the engine, and when: one leads, the others are
followers, or are elected; `close` waits for the replies in flight. Whatever is decided
is decided by the engine. Where those files change, this one must. In a process that is
sharing, the workers are tasks of one event loop: each takes the replies that are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastredlock._core import (
    ClosedError,
    Operation,
    Round,
    by_hand_all_outgoing,
    by_hand_begin_close,
    by_hand_end_close,
    by_hand_hand_on,
    by_hand_return,
    by_hand_submit,
    by_hand_withdraw,
)
from fastredlock._locking.driver import CLOSE_WITHIN_NS
from tests.support.core import (
    by_hand_awaits_replies,
    by_hand_idle_keys,
    by_hand_join_stay,
)

from .world import CHECKPOINT, FOREVER_NS, MUTEX, SLEEP, WAIT, S, Steps

if TYPE_CHECKING:
    from .process import Process
    from .worker import Worker

RUN, WITHDRAW, CLOSE = "run", "withdraw", "close"
SLEEP_LIMIT_NS = S  # of one poll
BUSY_NS = 1_000_000  # where another leads
WATCH_NS = 100_000_000  # between two looks at what is due
SLICE_NS = CLOSE_WITHIN_NS // 32  # of a wait for replies
CLOSE_MOST_NS = min(10 * CLOSE_WITHIN_NS, S)


def is_release(round: Round) -> bool:
    """Return whether it is sent although the engine is closed."""
    return round.operation is Operation.RELEASE


class Driver:
    """Runs the rounds of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._engine = process.engine
        self._leader: Worker | None = None
        self._followers: list[tuple[str, Round | None]] = []
        self._waiting: list[Worker] = []

    # --- blocking_run -----------------------------------------------------------------

    def run(self, worker: Worker, round: Round) -> Steps:
        worker.round = round
        try:
            yield CHECKPOINT
            if self._hand_on(round):
                return
            if self._process.is_sharing:
                yield from self._run_as_task(round)
            else:
                if self._leader is None:
                    yield from self._lead(worker, round)
                if not round.is_finished:
                    yield from self._follow(worker, round)
            yield CHECKPOINT
            by_hand_return(self._engine, round, self._process.now_ns())
            self._flush()
        except BaseException:
            if not self._process.is_sharing:  # else the call does, or the task's end
                self.undo(round)
            raise
        finally:
            worker.round = None

    def _hand_on(self, round: Round) -> bool:
        process, token = self._process, round.token
        now_ns = process.now_ns()
        holder = by_hand_hand_on(self._engine, round, now_ns)
        if holder is None:
            return False
        if holder is round:
            process.judge.on_taken(process, round)
        elif token in (rests := by_hand_idle_keys(self._engine)):
            process.judge.on_rested(process, holder, rests[token])
        else:
            process.judge.on_handed_on(process, token, holder)
        self._wake_answered()
        return True

    def _run_as_task(self, round: Round) -> Steps:
        if self._engine.is_closed and not is_release(round):
            raise ClosedError("closed")
        try:
            if not by_hand_join_stay(self._engine, round, self._process.now_ns()):
                yield from self._begin(round)
            while not round.is_finished:
                yield from self._step(FOREVER_NS)
        finally:
            self._flush()

    def _lead(self, worker: Worker, round: Round) -> Steps:
        self._leader = worker
        try:
            if self._engine.is_closed and not is_release(round):
                raise ClosedError("closed")
            if not round.is_submitted:
                yield from self._begin(round)
            while not round.is_finished:
                yield from self._step(FOREVER_NS)
            yield CHECKPOINT
            self._flush()
        finally:
            self._leave()

    def _begin(self, round: Round) -> Steps:
        process, engine = self._process, self._engine
        now_ns = process.now_ns()
        if now_ns - process.polled_at_ns > S:
            yield from self._look_again()
            now_ns = process.now_ns()
        yield CHECKPOINT
        by_hand_submit(engine, round, now_ns)
        process.open_due()
        yield CHECKPOINT
        if round.closed_ns:
            yield from self._step(process.now_ns())

    def _look_again(self) -> Steps:
        for _ in range(4):
            yield from self._step(self._process.now_ns())
            if not self._process.readable:
                return

    def _follow(self, worker: Worker, round: Round) -> Steps:
        self._waiting.append(worker)
        try:
            if by_hand_join_stay(self._engine, round, self._process.now_ns()):
                self._process.wake(WAIT)  # its waker
            elif not round.is_submitted:
                self._add_follower(RUN, round)
            while not round.is_finished:
                if self._leader is None:
                    yield from self._lead(worker, round)
                elif self._engine.is_closed and not (
                    round.is_submitted or is_release(round)
                ):
                    raise ClosedError("closed")
                else:
                    yield MUTEX, 0
        finally:
            self._waiting.remove(worker)
            if (RUN, round) in self._followers:
                self._followers.remove((RUN, round))
            self._elect()
            if self._leader is None:
                self._serve()

    # --- blocking_abandon -------------------------------------------------------------

    def undo(self, round: Round) -> None:
        """Roll back a round whose caller will not get it; a release is sent."""
        process = self._process
        is_led = self._leader is not None and self._leader is not process.running
        if is_led and not process.is_sharing:
            self._add_follower(WITHDRAW, round)
            return
        self._withdraw(round)
        self._flush()
        if self._leader is None:
            self._serve()

    def _withdraw(self, round: Round | None) -> None:
        if round is not None and (
            not self._engine.is_closed
            or is_release(round)
            or any(self._process.connections)  # a close that waits for replies
        ):
            by_hand_withdraw(self._engine, round, self._process.now_ns())

    # --- blocking_close ---------------------------------------------------------------

    def close(self, worker: Worker) -> Steps:
        """Close all connections; wait for the replies to releases."""
        if self._process.is_sharing:
            yield from self._shut()
            return
        if self._leader is not None:
            self._add_follower(CLOSE, None)
        self._waiting.append(worker)
        try:
            while not self._engine.is_closed or self._leader is not None:
                if self._leader is not None:
                    yield MUTEX, 0
                    continue
                self._leader = worker
                try:
                    yield from self._shut()
                finally:
                    self._leave()
        finally:
            self._waiting.remove(worker)
            self._elect()

    def _shut(self) -> Steps:
        process, engine, closer = self._process, self._engine, self._process.running
        deadline_ns = process.now_ns() + CLOSE_WITHIN_NS
        if engine.is_closed or closer is None:
            return
        process.judge.on_shut(process)
        by_hand_begin_close(engine, process.now_ns())
        process.open_due()
        closer.is_shielded = True  # blocking_drain looks at no signals
        now_ns = process.now_ns()
        until_ns = now_ns + CLOSE_MOST_NS
        while by_hand_awaits_replies(engine) and now_ns < deadline_ns:
            before_ns = now_ns
            if process.is_opening():  # engine_opening_limit_ns; then silence counts
                deadline_ns = min(max(deadline_ns, now_ns + CLOSE_WITHIN_NS), until_ns)
            yield from self._step(min(deadline_ns, now_ns + SLICE_NS))
            now_ns = process.now_ns()
            if now_ns - before_ns > 2 * SLICE_NS:  # it stood still
                deadline_ns += now_ns - before_ns - SLICE_NS
                until_ns += now_ns - before_ns - SLICE_NS
        closer.is_shielded = False
        by_hand_end_close(engine, process.now_ns())
        process.drop_connections()
        self._wake_answered()

    # --- blocking_step ----------------------------------------------------------------

    def _step(self, limit_ns: int) -> Steps:
        process, followers = self._process, self._followers
        if followers:
            yield from self._take_followers()
        is_over = any(each and each.closed_ns for how, each in followers if how == RUN)
        if is_over or (
            self._engine.is_closed
            and not any(process.connections)
            and not by_hand_awaits_replies(self._engine)
        ):
            limit_ns = 0  # just now, by one of these followers: nothing will come
        self._flush()
        if not (process.readable or self._followers):
            sleep_ns = process.now_ns() + SLEEP_LIMIT_NS
            yield WAIT, min(self._engine.next_ns, limit_ns, sleep_ns)
        process.take_events()
        self._wake_answered()

    def _take_followers(self) -> Steps:
        followers, self._followers = self._followers, []
        for kind, round in followers:
            if kind == CLOSE:
                yield from self._shut()
            else:
                self._take_follower(kind, round)

    def _take_follower(self, kind: str, round: Round | None) -> None:
        if kind == WITHDRAW:
            self._withdraw(round)
        elif (
            round is not None
            and (not self._engine.is_closed or is_release(round))
            and not round.is_submitted
        ):
            by_hand_submit(self._engine, round, self._process.now_ns())
            self._process.open_due()

    def _flush(self) -> None:
        if not self._process.is_gone:
            for index, data in by_hand_all_outgoing(self._engine) or ():
                connection = self._process.connections[index]
                if connection is not None:
                    connection.send(data)

    # --- blocking_watch ---------------------------------------------------------------

    def watch(self, ours: Worker) -> Steps:
        """Take recalls, and the ends of rests, where no worker leads; as a loop does.

        Until the other workers of the process have come to an end, and the releases
        are answered: a native one may be refused, and is repeated as a script.
        """
        process, engine = self._process, self._engine
        while not engine.is_closed and (
            by_hand_idle_keys(engine)
            or by_hand_awaits_replies(engine)
            or any(not each.is_done for each in process.workers if each is not ours)
        ):
            yield WAIT, min(engine.next_ns, process.now_ns() + WATCH_NS)
            if self._leader is not None and not process.is_sharing:
                yield SLEEP, BUSY_NS
                continue
            process.take_events()
            self._flush()
            self._wake_answered()

    # --- leader.pyx -------------------------------------------------------------------

    def _add_follower(self, kind: str, round: Round | None) -> None:
        self._followers.append((kind, round))
        self._process.wake(WAIT)  # its waker

    def _leave(self) -> None:
        self._leader = None
        self._elect()
        self._serve()

    def _elect(self) -> None:
        if self._leader is None:
            for worker in self._waiting:
                if worker.awaits == MUTEX:
                    worker.wake_soon()
                    return

    def _serve(self) -> None:
        while self._followers and not self._waiting:
            kind, round = self._followers.pop(0)
            if kind != CLOSE:  # a worker that closes waits: it is none of them
                self._take_follower(kind, round)
            self._flush()

    def _wake_answered(self) -> None:
        is_closed = self._engine.is_closed
        for worker in self._process.workers:
            if worker.awaits in (WAIT, MUTEX) and (worker.is_answered() or is_closed):
                worker.wake_soon()
