"""What must never be: invariants I1-I5, judged by one who sees everything.

Of a lease on several keys each promise holds for every key.

I1  No two leases on one key are valid at the same true time. A lease is valid from
    the return of its acquire until its release is called or its own clock says so.
    None is granted that is over already.
I2  No reply is taken for the answer to another command: what a round was told by a
    master is what that master answered to that command, and all that was heard counts.
I3  No key with the token of an acquire that failed, or of a lease that was released,
    stands on a reachable master once its release has been answered. A SET is executed
    once at the most, and never behind its release. Excused is a key whose SET came out
    of a connection that had been closed before (it lives for its ttl), or whose release
    was refused; not looked at are those of the calls that only make a client read what
    has come.
I4  Nothing hangs: an acquire returns within its timeout and two round timeouts, and
    once the faults are over every client reconnects and takes the lock (schedule).
I5  RELEASED or GONE is never said while the key stands on a quorum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastredlock import scripts
from fastredlock._core import Operation, Round, Verdict
from fastredlock.lease import BaseLease, ReleaseStatus

from .server import NIL, OK, ONE, ZERO, keys_and_arguments
from .world import World

if TYPE_CHECKING:
    from .network import Connection
    from .process import Process
    from .server import Server

FOREVER_NS = 1 << 62
SCRIPT_OF = {
    text: operation
    for operation, texts in (
        (Operation.ACQUIRE, (scripts.ACQUIRE_ALL, scripts.ACQUIRE_ALL_SHA1)),
        (Operation.ACQUIRE, (scripts.ACQUIRE_AGAIN, scripts.ACQUIRE_AGAIN_SHA1)),
        (Operation.EXTEND, (scripts.EXTEND, scripts.EXTEND_SHA1)),
        (Operation.EXTEND, (scripts.EXTEND_ALL, scripts.EXTEND_ALL_SHA1)),
        (Operation.RELEASE, (scripts.RELEASE, scripts.RELEASE_SHA1)),
        (Operation.RELEASE, (scripts.RELEASE_ALL, scripts.RELEASE_ALL_SHA1)),
    )
    for text in texts
}
VOTE_OF = {OK: "GRANTED", ONE: "GRANTED", NIL: "TAKEN", ZERO: "TAKEN"}


class Violation(Exception):  # noqa: N818 - it is what we look for, not an error of ours
    """Report that a promise was broken."""


Question = tuple[Operation, bytes, int]


def question_of(words: list[bytes]) -> Question | None:
    """Return (operation, token, ttl in ms or 0) of a command, None for others."""
    if words[0] == b"SET":
        return Operation.ACQUIRE, words[2], int(words[5])
    if words[0] in (b"EVALSHA", b"EVAL") and words[1] in SCRIPT_OF:
        _, (token, *ttl) = keys_and_arguments(words)
        return SCRIPT_OF[words[1]], token, int(ttl[0]) if ttl else 0
    return None


def keys_of(lease: BaseLease) -> tuple[bytes, ...]:
    """Return the keys of a lease, be it one or several."""
    return lease._round.keys or (lease._round.resource,)


class Hold:
    """A stretch of true time in which a lease is valid."""

    def __init__(self, lease: BaseLease, owner: int, until_ns: int) -> None:
        self.lease = lease
        self.owner = owner
        self.until_ns = until_ns


class Judge:
    """See everything, forget nothing, and say so at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.servers: list[Server] = []
        self.unseen: set[bytes] = set()  # keys that are not looked at
        self.is_naive = False  # a holder that never asks whether its lease is valid
        self.leases = 0
        self.rounds: list[tuple[Process, Round]] = []
        self._holds: dict[bytes, list[Hold]] = {}
        self._heard: dict[tuple[int, int, Question], list[str]] = {}
        self._unknown: set[tuple[int, int, Question]] = set()  # answered NOSCRIPT
        self._sets: dict[tuple[int, bytes], Connection] = {}
        self._released: set[tuple[int, bytes]] = set()
        self._excused: dict[tuple[int, bytes], str] = {}
        self._ended: dict[bytes, tuple[Process, str]] = {}

    def fail(self, promise: str, text: str) -> None:
        """End the run."""
        self.world.tell(f"{promise}: {text}")
        raise Violation(f"{promise} at {self.world.now_ns / 1e9:.6f} s: {text}")

    # --- I1 ---------------------------------------------------------------------------

    def on_validity(self, process: Process, lease: BaseLease) -> None:
        """A lease begins, ends, or has another end than before."""
        now_ns = self.world.now_ns
        until_ns = max(now_ns, process.clock.true_at(lease._valid_until_ns))
        if self.is_naive and lease._status is None:
            until_ns = FOREVER_NS
        self.world.tell(
            f"process {process.index}: {lease.token.decode()} is valid "
            f"until {until_ns / 1e9:.6f} for {b' '.join(keys_of(lease)).decode()}"
        )
        self.leases += until_ns > now_ns
        for key in keys_of(lease):
            self._hold(key, Hold(lease, process.index, until_ns))

    def _hold(self, key: bytes, ours: Hold) -> None:
        now_ns = self.world.now_ns
        others = [
            hold
            for hold in self._holds.get(key, ())
            if hold.until_ns > now_ns and hold.lease is not ours.lease
        ]
        if ours.until_ns > now_ns:
            for hold in others:
                self.fail(
                    "I1",
                    f"process {ours.owner} holds {key.decode()} by "
                    f"{ours.lease.token.decode()}, process {hold.owner} by "
                    f"{hold.lease.token.decode()} until {hold.until_ns / 1e9:.6f} s",
                )
            others.append(ours)
        self._holds[key] = others

    # --- I2 ---------------------------------------------------------------------------

    def on_round(self, process: Process, round: Round) -> None:
        """A round begins."""
        self.rounds.append((process, round))

    def on_heard(
        self, process: Process, index: int, heard: list[tuple[list[bytes], bytes]]
    ) -> None:
        """A process has been handed these answers in whole."""
        for words, reply in heard:
            question = question_of(words)
            if question is None:
                continue
            if reply.startswith(b"-NOSCRIPT"):
                self._unknown.add((process.index, index, question))
                continue
            self._heard.setdefault((process.index, index, question), []).append(
                VOTE_OF.get(reply, "FAILED")
            )

    def on_closed(self, process: Process, round: Round) -> None:
        """A round has its verdict."""
        self._check_votes(process, round, is_over=False)
        is_lease = round.operation in (Operation.ACQUIRE, Operation.EXTEND)
        if is_lease and round.is_won and round.valid_until_ns <= process._now_ns():
            self.fail("I1", f"{round.token.decode()} is granted without validity")
        if round.operation is Operation.ACQUIRE and round.verdict is not Verdict.WON:
            self.on_ended(process, round.token, "not won")

    def _check_votes(self, process: Process, round: Round, is_over: bool) -> None:
        operation = round.operation
        ttl_ms = 0 if operation is Operation.RELEASE else round.terms.ttl_ms
        for index, (vote, _, answered_ms) in enumerate(round.votes()):
            asked = process.index, index, (operation, round.token, ttl_ms)
            heard = self._heard.get(asked, [])
            known = heard
            if operation is Operation.ACQUIRE and asked in self._unknown:
                known = heard or ["FAILED"]  # asked no more, where it was undone
            if (
                operation is Operation.RELEASE
                and process.losses
                and set(heard) == {"TAKEN"}
            ):
                known = ["TAKEN", "GRANTED"]  # deleted by the same on a lost connection
            is_taken_for = answered_ms is not None and vote.name not in known
            is_lost = is_over and operation is Operation.ACQUIRE and heard
            if is_taken_for or (is_lost and [vote.name] != heard):
                self.fail(
                    "I2",
                    f"{operation.name} {round.token.decode()} counts {vote.name} of "
                    f"server {index}, which answered {heard or 'nothing'}",
                )

    def check_all_votes(self) -> None:
        """Compare everything that was ever heard with what was counted."""
        for process, round in self.rounds:
            self._check_votes(process, round, is_over=not process.is_crashed)

    # --- I3 ---------------------------------------------------------------------------

    def on_command(self, connection: Connection, words: object) -> None:
        """A server is about to execute a command."""
        if not isinstance(words, list) or not all(isinstance(w, bytes) for w in words):
            self.fail("I2", f"server {connection.server.index} was sent {words!r}")

    def on_executed(
        self, connection: Connection, words: list[bytes], reply: bytes
    ) -> None:
        """A server has executed a command."""
        question = question_of(words)
        if question is None:
            return
        operation, token, _ = question
        at = (connection.server.index, token)
        if self.world.log is not None:
            self.world.tell(
                f"server {at[0]}: {operation.name} {token.decode()} -> {reply!r}"
                f"{' on a closed connection' if connection.is_given_up else ''}"
            )
        if reply.startswith(b"-NOSCRIPT"):
            return  # it has done nothing
        if operation is Operation.ACQUIRE:
            if at in self._sets and not self._sets[at].is_given_up:
                self.fail("I3", f"server {at[0]} got SET {token.decode()} twice")
            self._sets[at] = connection
            is_set = reply in (OK, ONE)
            if is_set and at in self._released and not connection.is_given_up:
                self.fail(
                    "I3", f"server {at[0]} got {token.decode()} after its release"
                )
        if operation is Operation.RELEASE:
            self._released.add(at)
            if reply.startswith(b"-"):
                self._excused[at] = "its release was refused"
        elif connection.is_given_up:
            self._excused[at] = f"{operation.name} out of a closed connection"

    def on_ended(self, process: Process, token: bytes, how: str) -> None:
        """A token has no more right to a key."""
        self._ended[token] = (process, how)

    def check_orphans(self) -> None:
        """Look for keys that nobody will release."""
        for server in self.servers:
            for key in [key for key in server.keys if key not in self.unseen]:
                token = server.token_at(key)
                if token is None or token not in self._ended:
                    continue
                process, how = self._ended[token]
                if not process.is_crashed and (server.index, token) not in (
                    self._excused
                ):
                    self.fail(
                        "I3",
                        f"{token.decode()}, {how}, stands on server {server.index}",
                    )

    # --- I4, I5 -----------------------------------------------------------------------

    def on_returned(self, process: Process, took_ns: int, limit_ns: int) -> None:
        """An acquire with a timeout has returned, undisturbed by pauses."""
        slack_ns = 5_000_000 + limit_ns // 100  # wake-ups, and the rates of the clocks
        if len(process.workers) == 1 and took_ns > limit_ns + slack_ns:
            self.fail(
                "I4",
                f"an acquire of process {process.index} took {took_ns / 1e6:.1f} ms "
                f"instead of {limit_ns / 1e6:.1f}",
            )

    def on_release_called(self, process: Process, lease: BaseLease) -> None:
        """A lease is being released."""
        self.on_ended(process, lease.token, "released")
        self.on_validity(process, lease)

    def on_released(
        self, process: Process, lease: BaseLease, status: ReleaseStatus
    ) -> None:
        """A release has told its outcome."""
        if status is ReleaseStatus.UNKNOWN:
            return
        for key in keys_of(lease):
            standing = [s.index for s in self.servers if s.token_at(key) == lease.token]
            if len(standing) > len(self.servers) // 2:
                self.fail(
                    "I5",
                    f"{lease.token.decode()} is {status.name}, "
                    f"{key.decode()} stands on {standing}",
                )
