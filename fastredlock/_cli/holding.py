"""Who holds a lock, from the reply of each master: for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from .. import Vote
from .._options.keys import MOST_PERMITS
from .._reports.votes import (
    NOT_OURS,
    electorate_of,
    in_utc,
    is_quorum,
    lives_ms,
    printable,
    quorum_left_ms,
)

if TYPE_CHECKING:
    from .. import FastRedlock
    from .._reports.votes import MasterVote, Resource

ANSWERS = Vote.GRANTED, Vote.TAKEN
MOST_OWNERS = 5  # that a line names
NO_OWNER = "a client that names no owner"
SHOWN = (
    "owner",
    "since",
    "token_hash",
    "remaining_ms",
    "waiting",
    "is_shared",
    "text",
)  # of each vote


class Holding:
    """The view of a quorum on one lock."""

    def __init__(self, resource: Resource, votes: Sequence[MasterVote]) -> None:
        self.resource = resource
        self.votes = votes
        # Of those with several readers the last row, which has the same vote.
        self.masters = [*{vote.master: vote for vote in votes}.values()]
        tokens: dict[str, list[MasterVote]] = {}
        for vote in votes:
            if vote.token_hash is not None:
                tokens.setdefault(vote.token_hash, []).append(vote)
        if len(tokens) > 1:
            tokens = dict(sorted(tokens.items(), key=lambda item: -len(item[1])))
        self.tokens = tokens  # by their hashes, most votes first
        self.holders = [each for each in tokens if self._has_quorum(tokens[each])]

    @property
    def answered(self) -> int:
        return sum(vote.vote in ANSWERS for vote in self.masters)

    @property
    def is_known(self) -> bool:
        return is_quorum(self.votes, lambda vote: vote.vote in ANSWERS)

    @property
    def holder(self) -> str | None:
        """The token that a quorum has; of several readers, one of them."""
        return next(iter(self.holders), None)

    @property
    def readers(self) -> int:
        """How many share it, each by a quorum."""
        return sum(self.tokens[each][0].is_shared for each in self.holders)

    def _has_quorum(self, rows: list[MasterVote]) -> bool:
        having = {vote.master for vote in rows}
        return is_quorum(self.masters, lambda vote: vote.master in having)

    @property
    def is_held(self) -> bool:
        return self.holder is not None

    def owner(self, token_hash: str) -> str | None:
        return self.tokens[token_hash][0].owner

    def since(self, token_hash: str) -> int | None:
        return self.tokens[token_hash][0].since

    def remaining_ms(self, token_hash: str) -> int | None:
        """How long its quorum, or all it has, lives; None: until it is released."""
        first = quorum_left_ms(self.votes, token_hash)
        if first is None:
            first = min(map(lives_ms, self.tokens[token_hash]))
        return None if first == inf else int(first)

    @property
    def waiting(self) -> int | None:
        """How many processes wait for it, as far as a master knows."""
        known = [vote.waiting for vote in self.votes if vote.waiting is not None]
        return max(known, default=None)

    def describe(self, token_hash: str) -> str:
        owner = self.owner(token_hash) or NO_OWNER
        count = f"{len(self.tokens[token_hash])} of {len(self.masters)} masters"
        left = self.left(token_hash)
        if (since := self.since(token_hash)) is not None:
            left = f"since {in_utc(since)}, {left}"
        return f"{owner} (token {token_hash}, {count}, {left})"

    def left(self, token_hash: str) -> str:
        left_ms = self.remaining_ms(token_hash)
        if left_ms is not None:
            return f"{left_ms / 1e3:.1f} s left"
        if self.owner(token_hash):
            return "no expiry"
        known = (vote.text for vote in self.votes if vote.token_hash == token_hash)
        return next(filter(None, known), NOT_OURS)

    def __str__(self) -> str:
        name = printable(self.resource)
        if (holder := self.holder) is not None:
            waiting = f", {self.waiting} waiting" if self.waiting else ""
            if (readers := self.readers) > 1:
                owners = counted(map(self.owner, self.holders))
                return f"{name} is read by {readers}: {owners}{waiting}"
            how = "read" if readers else "held"
            return f"{name} is {how} by {self.describe(holder)}{waiting}"
        if not self.is_known:
            return (
                f"{name}: not known: {self.answered} of {len(self.masters)} masters "
                f"answered, {electorate_of(self.votes).needed} are needed"
            )
        if not self.tokens:
            return f"{name} is free"
        each = "; ".join(map(self.describe, self.tokens))
        return f"{name} is held by nobody: no token has a quorum: {each}"

    def as_json(self) -> dict[str, Any]:
        holder = self.holder
        left_ms = None if holder is None else self.remaining_ms(holder)
        return {
            "resource": _text(self.resource),
            "is_known": self.is_known,
            "is_held": self.is_held,
            "readers": self.readers,
            "owner": None if holder is None else self.owner(holder),
            "since": None if holder is None else self.since(holder),
            "token_hash": holder,
            "remaining": None if left_ms is None else left_ms / 1e3,
            "waiting": self.waiting,
            "masters": [
                {"master": vote.master, "vote": vote.vote.name}
                | {name: getattr(vote, name) for name in SHOWN}
                for vote in self.votes
            ],
        }


class Slots:
    """The view of a quorum on each slot of a semaphore."""

    def __init__(
        self,
        resource: Resource,
        slots: Sequence[Sequence[MasterVote]],
        permits: int | None,
    ) -> None:
        self.resource = resource
        self.permits = permits  # None: not known, `slots` are those up to the last held
        self.slots = [Holding(resource, votes) for votes in slots]
        self.votes = self.slots[0].votes  # where none answers, each says why

    @property
    def is_known(self) -> bool:
        return all(slot.is_known for slot in self.slots)

    @property
    def held(self) -> int:
        return sum(slot.is_held for slot in self.slots)

    @property
    def is_held(self) -> bool:
        return self.held > 0

    @property
    def waiting(self) -> int | None:
        """How many processes wait for any of them, as far as a master knows."""
        return self.slots[0].waiting

    def __str__(self) -> str:
        if not self.is_known:
            return str(next(slot for slot in self.slots if not slot.is_known))
        name, count = printable(self.resource), len(self.slots)
        if self.permits is None:
            held = f"{self.held} of its slots are held"
            return f"{name} is no lock: {held} (--permits K: each of its K)"
        taken = [slot.holder or next(iter(slot.tokens), None) for slot in self.slots]
        if None in taken:
            return f"{name}: {self.held} of {count} slots are held"
        all_ = "its slot is taken" if count == 1 else f"all {count} are taken"
        owners = counted(
            slot.owner(token)
            for slot, token in zip(self.slots, taken, strict=True)
            if token is not None
        )
        return f"{name}: {all_}, by {owners}"

    def as_json(self) -> dict[str, Any]:
        slots = [slot.as_json() for slot in self.slots]
        for number, slot in enumerate(slots):
            slot["resource"] += f"#{number}"
        return {
            "resource": _text(self.resource),
            "permits": self.permits,
            "is_known": self.is_known,
            "held": self.held,
            "waiting": self.waiting,
            "slots": slots,
        }


def counted(owners: Iterable[str | None]) -> str:
    """Name the owners, each with how many it has; of many, the first."""
    counts = Counter(owner or NO_OWNER for owner in owners)
    each = [f"{owner} ({n})" if n > 1 else owner for owner, n in counts.items()]
    if len(each) > MOST_OWNERS:
        each[MOST_OWNERS:] = [f"{len(each) - MOST_OWNERS} others"]
    return ", ".join(each)


def _text(name: Resource) -> str:
    return name if isinstance(name, str) else printable(name)


def seen(locks: FastRedlock, name: str | bytes, permits: int | None) -> Holding | Slots:
    if permits is None:
        return Holding(name, locks.holders(name))
    return Slots(name, locks.holders(name, permits=permits), permits)


def lock_or_slots(
    locks: FastRedlock, name: str | bytes, permits: int | None = None
) -> Holding | Slots:
    """Ask who holds a lock; where it is free, also of what semaphore it is the name."""
    holding = seen(locks, name, permits)
    if isinstance(holding, Slots) or holding.tokens or not holding.is_known:
        return holding
    found = [*locks.holders(name, permits=MOST_PERMITS)]
    while found and not any(vote.token_hash for vote in found[-1]):
        del found[-1]
    return Slots(name, found, None) if found else holding
