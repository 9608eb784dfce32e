"""What must never be: invariants I1-I15, judged with a view of everything.

Of a lease on several keys each promise holds for every key.

I1  No two leases on one key are valid at the same true time, but for two readers, who
    share it. A lease is valid from the return of its acquire until its release is
    called or its own clock says so. None is granted that is over already.
I2  No reply is taken for the answer to another command: what a round was told by a
    master is what that master answered to that command, and all that was heard counts.
I3  A SET is executed once at the most, and behind its release only where it comes out
    of a connection that had been closed before.
I4  Nothing stands still: an acquire returns within its timeout and two round timeouts,
    a round within the time for connections and two round timeouts, and once the faults
    are over every client reconnects and takes the lock (schedule).
I5  RELEASED or GONE is never said while the key stands on a quorum.
I6  No key outlives its right: see orphans.py. Not looked at are the keys of the calls
    that only make a client read what has come.
I7  A free lock with a live waiter is taken within the fall-back time: see waiters.py.
I8  No round is won that its gate had refused before: somebody waits longer.
I9  LeaseLostError is said of no lease that is valid, NotExtendedError of none that is
    not, each by the lease's own clock.
I10 A loss is told by the end of the validity, whatever the masters and their clocks do
    (of a client that is being closed: after close() at the latest): a keeper comes back
    from a renewal before it, and tells it in time, both unless the process stood still;
    when it has looked, no lease is over and not told lost; and one whose loss was told
    is not valid.
I11 With fencing, a lease has a larger number than all that were granted before it.
I12 A lease is handed on in its stay alone, and with validity left.
I13 A key rests for no longer than its process may have it, and is taken there in time.
I14 Of a semaphore no more leases are valid at a time than the largest number of permits
    that anybody has asked for, whatever their slots; and nobody has a slot beyond the
    number that he asked for.
I15 Of a rate no more begin in any window than that number. True time: the clocks'
    differences are in the ttl of the slots.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fastredlock._core import Operation, Round, Vote
from fastredlock._locking.lease import BaseLease, ReleaseStatus
from fastredlock._locking.renewals import end_of
from fastredlock._locking.slots import Permit
from fastredlock.errors import LeaseLostError

from .driver import CLOSE_MOST_NS
from .question import (
    ACQUIRE,
    FAILED,
    GRANTED,
    INSPECT,
    PENDING,
    RELEASE,
    SILENT,
    TAKEN,
    TWO,
    WRITE_FENCE,
    Question,
    question_of,
    said_of_gate,
    vote_of,
)
from .world import FOREVER_NS, World

if TYPE_CHECKING:
    from .network import Connection
    from .process import Process
    from .server import Server

CALM_NS = 100_000_000
HANDED_ON = b"handed-on"  # the token of a lease that gave its own away
NOTHING: list[int] = []


class Violation(Exception):  # noqa: N818 - it is what we look for, not an error of ours
    """Report that a promise was broken."""


def keys_of(lease: BaseLease | Permit) -> tuple[bytes, ...]:
    return lease._round.keys or (lease._round.resource,)


class Ended(NamedTuple):
    """Since when, and why, a token has no more right to a key."""

    process: Process
    how: str
    is_undone: bool  # by a roll-back, not by the release of a lease
    at_ns: int


class Hold(NamedTuple):
    """A stretch of true time in which a lease is valid."""

    lease: BaseLease | Permit
    owner: int
    until_ns: int


def name_of(lease: BaseLease | Permit) -> str:
    """Return its token, which is not shown by that."""
    return lease._round.token.decode()


class Judge:
    """See everything, forget nothing, and say so at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.servers: list[Server] = []
        self.unseen: set[bytes] = set()  # keys that are not looked at
        self.is_naive = False  # a holder that never asks whether its lease is valid
        self.leases = 0
        self.excuses: Counter[str] = Counter()  # what was not judged, and how often
        self.rounds: list[tuple[Process, int, Round]] = []
        self._holds: dict[bytes, list[Hold]] = {}
        self._heard: dict[tuple[int, int, Question], list[int]] = {}
        self._refused_ns: dict[bytes, int] = {}  # by its gate; a process's time
        self.granted_ns: dict[bytes, int] = {}  # when a key was granted last
        self._unknown: set[tuple[int, int, Question]] = set()  # answered NOSCRIPT
        self._sets: dict[tuple[int, bytes], Connection] = {}
        self._released: set[tuple[int, bytes]] = set()
        self.set_behind: set[tuple[int, bytes]] = set()  # out of a closed connection
        self.set_late: dict[tuple[int, bytes], int] = {}  # when a later was READY
        self.handed_on: set[Round] = set()
        self.resting: dict[bytes, tuple[Process, int]] = {}  # until then, its time
        self.extended_late: set[tuple[int, bytes]] = set()
        self.refused: set[tuple[int, bytes]] = set()
        self.unknown_script: set[tuple[int, bytes]] = set()  # of its last release
        self.ended: dict[bytes, Ended] = {}
        self.fences: dict[bytes, int] = {}  # the largest that was granted
        self.permits: dict[bytes, int] = {}  # of a semaphore, the most asked for
        self._begins: dict[bytes, list[int]] = {}  # of a rate, true ns

    def fail(self, promise: str, text: str) -> None:
        self.world.tell(f"{promise}: {text}")
        raise Violation(f"{promise} at {self.world.now_ns / 1e9:.6f} s: {text}")

    # --- I1 ---------------------------------------------------------------------------

    def on_validity(self, process: Process, lease: BaseLease) -> None:
        """A lease begins, ends, or has another end than before."""
        now_ns = self.world.now_ns
        until_ns = max(now_ns, process.clock.true_at(lease._valid_until_ns))
        if self.is_naive and lease._status is None:
            until_ns = FOREVER_NS
        if self.world.log is not None:
            self.world.tell(
                f"process {process.index}: {name_of(lease)} is valid "
                f"until {until_ns / 1e9:.6f} for {b' '.join(keys_of(lease)).decode()}"
            )
        self.leases += until_ns > now_ns
        for key in keys_of(lease):
            self.granted_ns[key] = now_ns
            self._hold_alone(key, Hold(lease, process.index, until_ns))
        if lease._round.slot >= 0:
            self._hold_slot(Hold(lease, process.index, until_ns))

    def _hold(self, key: bytes, ours: Hold) -> list[Hold]:
        """Note one; return all that are valid beside it."""
        now_ns = self.world.now_ns
        others = [
            hold
            for hold in self._holds.get(key, ())
            if hold.until_ns > now_ns and hold.lease is not ours.lease
        ]
        is_valid = ours.until_ns > now_ns
        self._holds[key] = [*others, ours] if is_valid else others
        return others if is_valid else []

    def _hold_alone(self, key: bytes, ours: Hold) -> None:
        for hold in self._hold(key, ours):
            if hold.lease._round.is_shared and ours.lease._round.is_shared:
                self.excuses["no excuse: readers beside each other"] += 1
                continue
            self.fail(
                "I1",
                f"process {ours.owner} holds {key.decode()} by "
                f"{name_of(ours.lease)}, process {hold.owner} by "
                f"{name_of(hold.lease)} until {hold.until_ns / 1e9:.6f} s",
            )

    # --- I14, I15 ---------------------------------------------------------------------

    def on_asked(self, name: bytes, permits: int) -> None:
        """Somebody asks for a slot of so many."""
        self.permits[name] = max(permits, self.permits.get(name, 0))

    def on_slot(self, round: Round, permits: int) -> None:
        if not 0 <= round.slot < permits:
            token = round.token.decode()
            self.fail("I14", f"{token} has the slot {round.slot}, of {permits}")

    def _hold_slot(self, ours: Hold) -> None:
        # Of all slots together: it does not ask which is whose.
        (key,) = keys_of(ours.lease)
        name = key[: key.rindex(b"#") + 1]
        if self._hold(name, ours):
            self.excuses["no excuse: slots that were held beside others"] += 1
        if len(self._holds[name]) > self.permits[name]:
            holders = ", ".join(name_of(hold.lease) for hold in self._holds[name])
            text = f"{name.decode()} of {self.permits[name]} is held by {holders}"
            self.fail("I14", text)

    def on_permit(self, process: Process, permit: Permit) -> None:
        """A rate was entered: as a lease, for as long as it is a permission."""
        round, now_ns = permit._round, self.world.now_ns
        until_ns = max(now_ns, process.clock.true_at(round.valid_until_ns))
        self.world.tell(
            f"process {process.index}: {name_of(permit)} may begin until "
            f"{until_ns / 1e9:.6f} by {round.resource.decode()}"
        )
        self.granted_ns[round.resource] = now_ns
        self._hold_alone(round.resource, Hold(permit, process.index, until_ns))

    def on_begin(self, name: bytes, per_ns: int) -> None:
        """Somebody begins, by a permit of a rate that is valid by its own clock."""
        now_ns, most = self.world.now_ns, self.permits[name]
        begins = self._begins.setdefault(name, [])
        begins.append(now_ns)
        self.excuses["no excuse: begins by a rate"] += 1
        if len(begins) > most and now_ns - begins[-1 - most] < per_ns:
            self.fail(
                "I15",
                f"{most + 1} begin by {name.decode()} of {most} within "
                f"{(now_ns - begins[-1 - most]) / 1e6:.3f} ms of {per_ns / 1e6:.0f}",
            )

    # --- I11 --------------------------------------------------------------------------

    def on_granted(self, lease: BaseLease) -> None:
        fence = lease._round.fence
        if fence is None or not lease.is_valid:  # one that is over counts for nobody
            return
        for key in keys_of(lease):
            last = self.fences.get(key, 0)
            if fence <= last:
                text = f"{name_of(lease)} has the number {fence} for {key.decode()}"
                self.fail("I11", f"{text}, and {last} was granted before")
            self.fences[key] = fence

    # --- I2 ---------------------------------------------------------------------------

    def on_round(self, process: Process, round: Round) -> int:
        """A round begins; return its operation."""
        operation = int(round.operation)
        self.rounds.append((process, operation, round))
        return operation

    def on_heard(
        self, process: Process, index: int, heard: list[tuple[Question, bytes]]
    ) -> None:
        """A process has been handed these answers in whole."""
        for question, reply in heard:
            at = (process.index, index, question)
            if question[0] == WRITE_FENCE:  # it says more of the same
                at = (*at[:2], (ACQUIRE, *question[1:]))
            if reply.startswith(b"-NOSCRIPT"):
                self._unknown.add(at)
            else:
                vote = vote_of(question[0], reply)
                self._heard.setdefault(at, []).append(vote)
                if said_of_gate(reply) == TWO and question[0] == ACQUIRE:
                    self._refused_ns.setdefault(question[1], process.now_ns())

    def on_handed_on(self, process: Process, token: bytes, holder: Round) -> None:
        """A lease went on to another caller of its process, under the same token."""
        now_ns, engine = process.now_ns(), process.engine
        if now_ns - holder.opened_ns > engine.cohort_ns:
            self.fail("I12", f"{token.decode()} is handed on after its stay")
        if holder.valid_until_ns <= now_ns:
            self.fail("I12", f"{token.decode()} is handed on without validity")
        self.ended.pop(token, None)
        self.handed_on.add(holder)
        self.excuses["no excuse: leases that were handed on"] += 1

    # --- I13 --------------------------------------------------------------------------

    def on_rested(self, process: Process, holder: Round, until_ns: int) -> None:
        now_ns, token = process.now_ns(), holder.token
        if (
            not now_ns
            < until_ns
            <= min(now_ns + holder.terms.idle_ns, holder.valid_until_ns)
        ):
            self.fail("I13", f"{token.decode()} rests for {until_ns - now_ns} ns")
        if process.engine.is_closed:
            self.fail("I13", f"{token.decode()} rests after close()")
        self.ended.pop(token, None)
        self.resting[token] = process, until_ns
        self.handed_on.add(holder)
        self.excuses["no excuse: keys that came to rest"] += 1

    def on_taken(self, process: Process, round: Round) -> None:
        """An acquire has a key that rested here, or another one."""
        if round.token not in self.resting:
            return
        owner, until_ns = self.resting.pop(round.token)
        if owner is not process or process.now_ns() >= until_ns:
            self.fail("I13", f"{round.token.decode()} is taken, and is over")
        self.handed_on.add(round)
        self.excuses["no excuse: keys that were taken at rest"] += 1

    def on_rests(self, process: Process, rests: dict[bytes, int]) -> None:
        """A process has done what was due; these rest there."""
        for token in [
            token
            for token, (owner, _) in self.resting.items()
            if owner is process and token not in rests
        ]:
            del self.resting[token]
            self.on_ended(process, token, "at rest", is_undone=False)
        for token, until_ns in rests.items():
            if until_ns <= process.now_ns():
                self.fail("I13", f"{token.decode()} rests, and its time is over")

    def on_closed(self, process: Process, operation: int, round: Round) -> None:
        if operation == INSPECT:  # of a semaphore: a hint, and no vote
            return
        is_won = round.is_won
        self._check_votes(process, operation, round, is_over=False)
        if (
            operation != RELEASE
            and is_won
            and (round.valid_until_ns <= process.now_ns())
        ):
            self.fail("I1", f"{round.token.decode()} is granted without validity")
        refused_ns = self._refused_ns.get(round.token, FOREVER_NS)
        if round in self.handed_on:
            refused_ns = FOREVER_NS  # of the round that was sent, and had won before
        if operation == ACQUIRE and is_won and refused_ns < round.closed_ns:
            self.fail("I8", f"{round.token.decode()} is granted, refused by its gate")
        if operation == ACQUIRE and not is_won:
            self.on_ended(process, round.token, "not won", is_undone=True)

    def _check_votes(
        self, process: Process, operation: int, round: Round, is_over: bool
    ) -> None:
        token, all_heard = round.token, self._heard
        if operation == INSPECT:
            return  # it has no token of its own
        if token == HANDED_ON or (is_over and round in self.handed_on):
            return  # its votes were another's, and no later ones are counted
        question = operation, token, 0 if operation == RELEASE else round.terms.ttl_ms
        for index, (said, _, answered_ms) in enumerate(round.votes()):
            vote = TAKEN if said is Vote.GONE else int(said)
            is_answered = answered_ms is not None
            if not (is_answered or is_over):
                continue
            asked = process.index, index, question
            heard = all_heard.get(asked, NOTHING)
            known = heard
            if operation != RELEASE and asked in self._unknown:
                known = [*heard, FAILED]  # asked no more, where nobody waits for it
            if operation == RELEASE and process.losses and TAKEN in heard:
                known = [*heard, GRANTED]  # deleted by the same on a lost connection
            is_lost = is_over and operation == ACQUIRE and heard
            if is_lost and process.settings.fencing:
                # Asked a second time, and perhaps too late for NOSCRIPT to be answered.
                # It is gone, and never confirmed its number: FAILED, without an answer.
                is_lost = vote not in (SILENT, PENDING) and asked not in self._unknown
                is_lost = is_lost and (is_answered or vote != FAILED)
                heard = heard[-1:]
            if (is_answered and vote not in known) or (is_lost and [vote] != heard):
                self.fail(
                    "I2",
                    f"{Operation(operation).name} {token.decode()} counts "
                    f"{Vote(vote).name} of server {index}, which answered "
                    f"{[Vote(each).name for each in heard] or 'nothing'}",
                )

    def check_all_votes(self) -> None:
        """Compare everything that was ever heard with what was counted."""
        for process, operation, round in self.rounds:
            self._check_votes(process, operation, round, not process.is_gone)

    # --- I3 ---------------------------------------------------------------------------

    def on_command(self, connection: Connection, words: object) -> Question | None:
        """A server is about to execute a command; return what it asks."""
        if type(words) is not list or not words:
            self.fail("I2", f"server {connection.server.index} was sent {words!r}")
        for word in words:  # type: ignore[attr-defined]  # it is a list
            if type(word) is not bytes:
                self.fail("I2", f"server {connection.server.index} was sent {words!r}")
        return question_of(words)  # type: ignore[arg-type]  # checked above

    def on_executed(
        self, connection: Connection, question: Question, reply: bytes
    ) -> None:
        operation, token, _ = question
        at = (connection.server.index, token)
        if self.world.log is not None:
            where = " on a closed connection" if connection.is_given_up else ""
            name = "second write of"
            if operation != WRITE_FENCE:
                name = Operation(operation).name
            self.world.tell(
                f"server {at[0]}: {name} {token.decode()} -> {reply!r}{where}"
            )
        if reply.startswith(b"-NOSCRIPT"):
            if operation == RELEASE:
                self.unknown_script.add(at)
            return  # it has done nothing
        if operation == ACQUIRE:
            # Asked again on the next connection, it may be executed on both.
            first = self._sets.get(at)
            if first is not None and not (first.is_given_up or connection.is_given_up):
                self.fail("I3", f"server {at[0]} got SET {token.decode()} twice")
            self._sets[at] = connection
            is_set = vote_of(operation, reply) == GRANTED
            if is_set and at in self._released:
                if not connection.is_given_up:
                    text = f"server {at[0]} got {token.decode()} after its release"
                    self.fail("I3", text)
                self.set_behind.add(at)
            later_ns = connection.process.shook_ns[connection.index]
            if is_set and connection.is_given_up and later_ns > connection.ready_ns:
                self.set_late[at] = later_ns
        elif operation == RELEASE:
            self._released.add(at)
            self.unknown_script.discard(at)
            self.refused.discard(at)
            if reply.startswith(b"-"):
                self.refused.add(at)
        elif connection.is_given_up and operation != WRITE_FENCE:
            self.extended_late.add(at)

    def on_ended(
        self, process: Process, token: bytes, how: str, is_undone: bool
    ) -> None:
        if token not in self.ended:
            self.ended[token] = Ended(process, how, is_undone, self.world.now_ns)

    def on_close(self, process: Process) -> None:
        process.closed_ns = now_ns = self.world.now_ns
        process.well_at_close = {
            index
            for index, path in enumerate(process.paths)
            if process.is_calm_with(index) < now_ns - 10 * path.delay_ns - CALM_NS
        }

    def on_shut(self, process: Process) -> None:
        """A close takes effect: acquires that are under way now will be undone."""
        for worker in process.workers:
            round = worker.round
            if round is None or worker.is_done or int(round.operation) != ACQUIRE:
                continue
            if round.is_won:  # a lease, whose holder has not gone on yet
                continue
            self.on_ended(process, round.token, "under way at close()", True)

    # --- I9 ---------------------------------------------------------------------------

    def on_not_extended(self, lease: BaseLease, error: Exception) -> None:
        """An extension has raised; no lease of the simulator is adopted."""
        is_lost = isinstance(error, LeaseLostError)
        if is_lost is lease.is_valid:
            self.fail("I9", f"{name_of(lease)}: {type(error).__name__}: {error}")

    # --- I10 --------------------------------------------------------------------------

    def on_renewed(self, process: Process, limit_ns: int) -> None:
        """A renewal has ended, undisturbed by pauses of its process (its own time)."""
        if process.engine.is_closed:
            limit_ns += CLOSE_MOST_NS  # spent by the leader for another's close()
        if process.now_ns() > limit_ns:
            late_ns = process.now_ns() - limit_ns
            self.fail("I10", f"a renewal ended {late_ns / 1e6:.1f} ms too late")

    def on_due(self, process: Process, lease: BaseLease | None, late_ns: int) -> None:
        """A loss is about to be told, so much too late."""
        if process.engine.is_closed:
            late_ns -= CLOSE_MOST_NS
        if lease is not None and late_ns > 0:
            text = f"the loss of {name_of(lease)} is told"
            self.fail("I10", f"{text} {late_ns / 1e6:.1f} ms too late")

    def on_looked_at(self, lease: BaseLease, now_ns: int) -> None:
        """A keeper has told what was lost at a time of its own; here is a lease that
        it keeps."""
        kept = lease._round.lease_state
        is_told = kept.error is not None
        if end_of(kept) <= now_ns and not is_told:
            self.fail("I10", f"{name_of(lease)} is over, and not told lost")

    def on_told(self, process: Process, lease: BaseLease) -> None:
        self.on_validity(process, lease)
        if lease.is_valid:
            self.fail("I10", f"{name_of(lease)} is told lost, and valid")

    # --- I4, I5 -----------------------------------------------------------------------

    def on_returned(self, process: Process, took_ns: int, limit_ns: int) -> None:
        """A call has returned, undisturbed by pauses of its process."""
        if process.engine.is_closed:
            limit_ns += CLOSE_MOST_NS  # spent by the leader for another's close()
        slack_ns = 20_000_000 + limit_ns // 50  # wake-ups, and the rates of the clocks
        if took_ns > limit_ns + slack_ns:
            text = f"a call of process {process.index} took {took_ns / 1e6:.1f} ms"
            self.fail("I4", f"{text} instead of {limit_ns / 1e6:.1f}")

    def on_release_called(self, process: Process, lease: BaseLease) -> None:
        if not process.engine.is_closed:  # else the call raises, and says so
            self.on_ended(process, lease._round.token, "released", is_undone=False)
        self.on_validity(process, lease)

    def on_released(
        self, process: Process, lease: BaseLease, status: ReleaseStatus
    ) -> None:
        if status is ReleaseStatus.UNKNOWN:
            return
        for key in keys_of(lease):
            token = lease._round.token
            standing = [
                s.index for s in process.servers if s.token_at(key, token) == token
            ]
            # While the list changes: released on a quorum of each list, gone on one.
            quorums = [
                sum(server.index in standing for server in each) > len(each) // 2
                for each in process.lists
            ]
            how = any if status is ReleaseStatus.RELEASED else all
            if how(quorums):
                text = f"{key.decode()} stands on {standing}"
                self.fail("I5", f"{name_of(lease)} is {status.name}, {text}")
