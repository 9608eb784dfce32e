"""Keys that are no locks: another use of a resource's name, which would be taken for
ever.

The reply to a SET that finds a key has no more. So a resource that was found taken is
looked at once a second has passed, at the end of a failed attempt, and again every ten
seconds: a round of INSPECT, which costs a lock that is merely contended nothing to
speak of. A list, a hash, an empty string and one that is longer than any token are no
locks. Any other string may be another client's token; where it has no expiry and names
no owner, that is a hint of the error, and looked at each second.
"""

from __future__ import annotations

from collections.abc import Iterator

from .._core import Engine, Operation, Round, Vote
from .._reports.log import warn
from .._reports.votes import (
    NO_EXPIRY_MS,
    NOT_OURS,
    MasterVote,
    Resource,
    holders_of,
    printable,
)
from ..errors import ForeignKeyError

Key = bytes | tuple[bytes, ...]

INSPECT = int(Operation.INSPECT)
LOOK_AFTER_NS = 1_000_000_000
LOOK_AGAIN_NS = 10_000_000_000
REMEMBERED = 64  # resources; of more, some are looked at later
EMPTY = "an empty value: no token"


class ForeignKeys:
    """Remember which resources were found taken, and when to look what holds them."""

    __slots__ = ("_due_ns", "_suspects", "_warned")

    def __init__(self) -> None:
        self._due_ns: dict[Key, int] = {}
        self._suspects: dict[Resource, str] = {}  # what each is taken for
        self._warned: set[bytes] = set()

    def is_due(self, key: Key, now_ns: int) -> bool:
        """Note that it was found taken; return whether to look what holds it."""
        due_ns = self._due_ns.get(key)
        if due_ns is None:
            if len(self._due_ns) >= REMEMBERED:
                self._due_ns.clear()
            due_ns = self._due_ns[key] = now_ns + LOOK_AFTER_NS
        if now_ns < due_ns:
            return False
        self._due_ns[key] = now_ns + LOOK_AGAIN_NS
        return True

    def look(
        self, engine: Engine, resource: Resource, key: Key, taken: Round, began_ns: int
    ) -> Iterator[Round]:
        """Yield rounds to run; raise ForeignKeyError where the key is no lock.

        That is where too few masters are left for a quorum.
        """
        self._suspects.pop(resource, None)
        for each in key if isinstance(key, tuple) else (key,):
            round = engine.new_round(INSPECT, each, b"-", taken.terms)
            round.left_ns = taken.terms.last_round_ns(engine.round_trip_ns)
            yield round
            votes = tuple(map(with_emptiness, holders_of(engine, round), round.votes()))
            foreign = [vote for vote in votes if is_foreign(vote)]
            if len(votes) - len(foreign) < len(votes) // 2 + 1:
                self._due_ns[key] = 0  # the next caller gets the error at once
                elapsed = (round.closed_ns - began_ns) / 1e9
                raise ForeignKeyError(resource, votes, taken.attempt, elapsed)
            self._note_no_expiry(resource, each, votes, taken)
            if resource in self._suspects:
                self._due_ns[key] = round.closed_ns + LOOK_AFTER_NS

    def hint(self, resource: Resource) -> str:
        """Return a hint about what holds a resource; may be empty."""
        return self._suspects.get(resource, "")

    def _note_no_expiry(
        self,
        resource: Resource,
        key: bytes,
        votes: tuple[MasterVote, ...],
        taken: Round,
    ) -> None:
        without_expiry = [vote for vote in votes if vote.remaining_ms == NO_EXPIRY_MS]
        if not taken.terms.has_expiry or len(without_expiry) < len(votes) // 2 + 1:
            return
        if without_expiry[0].owner is None and len(self._suspects) < REMEMBERED:
            self._suspects[resource] = without_expiry[0].text or NOT_OURS
        if key not in self._warned:
            if len(self._warned) >= REMEMBERED:
                self._warned.clear()
            self._warned.add(key)
            warn(
                "%s: taken by a key without expiry: if it is no lock (NO_EXPIRY), it "
                "stays until it is deleted",
                printable(resource),
            )


def with_emptiness(vote: MasterVote, found: tuple[Vote, object, object]) -> MasterVote:
    """Return the vote, with a text where the value is empty."""
    details = found[1]
    if isinstance(details, list) and details[0] == b"=":
        return vote._replace(text=EMPTY)
    return vote


def is_foreign(vote: MasterVote) -> bool:
    """Return whether the key on this master is no lock."""
    if vote.vote is Vote.FAILED:
        return (vote.text or "").startswith("WRONGTYPE")
    return vote.vote is Vote.TAKEN and (vote.token_hash is None or vote.text == EMPTY)
