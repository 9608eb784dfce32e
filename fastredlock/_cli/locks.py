"""`fastredlock who`, `list` and `break`: locks as the masters know them, for people.

A list is made step by step. A step is one SCAN on each master that has more, by
redis-py, and then a batch of rounds: who holds the names that are new. What is under
way is a few thousand locks, however many there are.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fnmatch import fnmatchcase
from heapq import nsmallest
from itertools import islice, repeat
from typing import TYPE_CHECKING

from .. import ReleaseStatus, Vote
from .._core import Batch, Operation, Round, has_quorum, is_foreign
from .._options.keys import OWN, RESERVED, encode_slots, used_in
from .._options.masters import Endpoint
from .._reports.votes import MOST_READERS, holders_of
from . import CommandError, Status
from .connection import Server, ServerError, need_redis_py, shards_of
from .holding import Holding, Slots, lock_or_slots
from .parser import (
    MASTERS_END,
    Parser,
    agrees,
    new_reader,
    number,
)
from .waiting import Waiting, queue_of

if TYPE_CHECKING:
    from .. import FastRedlock


MOST = 1000  # locks in a list
COUNT = 1000  # keys that a server looks at in one step
INSPECT = int(Operation.INSPECT)

_ERRORS = f"""\
  {Status.USAGE:<4} wrong arguments
  {Status.UNREACHABLE:<4} fewer than a quorum of the masters could answer
  {Status.SYSTEM:<4} an error of the system, as a full disk

{MASTERS_END}"""

_WHO = """\
Say who holds a lock, as each of the masters knows it at this moment.
"""
_WHO_END = f"""\
exit status:
  {Status.OK:<4} a quorum of the masters says that it is held (or one of its slots)
  {Status.NOT_HELD:<4} it is not held (single masters may have a key that is left over)
{_ERRORS}"""

_BREAK = """\
Break a lock whose holder is gone: delete its key on all masters, where it still has
the token that was shown. The holder is not asked, and may still be at work: look for
it first. If it runs and renews the lock, it learns of it within a third of its ttl.
"""
_BREAK_END = f"""\
exit status:
  {Status.OK:<4} it was broken: a quorum of the masters is sure not to have it any more
  {Status.NOT_HELD:<4} nothing was broken: free, held by another token, or you said no
{_ERRORS}"""

_LIST = """\
List the locks whose names match a pattern of Redis (*, ?, [ab]): who holds each, on
how many masters, and for how long, as they are found. All keys of the type string are
taken for locks, except fastredlock's own; of those that are shared, it says how many
read. Each master is asked for all of its keys (SCAN), twice.
"""
_LIST_END = f"""\
exit status:
  {Status.OK:<4} also where nothing matches
{_ERRORS}"""


# ---- who


def who(words: Sequence[str]) -> int:
    parser = Parser("who", _WHO, _WHO_END)
    parser.add_name()
    parser.add_permits("it is a semaphore of so many: who holds each of its slots")
    parser.add_json()
    parser.add_masters()
    asked = parser.parse_args(words)
    with new_reader(asked) as locks:
        holding = lock_or_slots(locks, asked.name, asked.permits)
        queue, failure = _queue(locks, asked.name, holding)
    if asked.json:
        shown = [each._asdict() for each in queue]
        print(json.dumps(holding.as_json() | {"queue": shown}, indent=2))
    else:
        _print(holding)
        for place, each in enumerate(queue, 1):
            print(f"  waits {place:<4}  {each}")
    if failure:
        print(f"{parser.prog}: who waits is not known: {failure}", file=sys.stderr)
    if not holding.is_known:
        return Status.UNREACHABLE
    return Status.OK if holding.is_held else Status.NOT_HELD


def _queue(
    locks: FastRedlock, name: str | bytes, holding: Holding | Slots
) -> tuple[list[Waiting], str]:
    """Return the queue, and why it is not known; mostly nobody waits."""
    if not holding.waiting:
        return [], ""
    if isinstance(holding, Slots):
        name = encode_slots(name) + b"#"
    key = name.encode() if isinstance(name, str) else name
    votes = [vote for vote in holding.votes if vote.waiting == holding.waiting]
    settings = locks._driver.settings
    gate = next(each for each in settings.endpoints if each.name == votes[0].master)
    try:
        need_redis_py()
        return queue_of(gate, settings.key_prefix, key), ""
    except (CommandError, ServerError) as error:
        return [], str(error)


def _print(holding: Holding | Slots) -> None:
    print(holding)
    if isinstance(holding, Slots):
        _print_slots(holding)
        return
    for vote in holding.votes:
        shown = vote.text or "no key"
        if vote.token_hash is not None:
            left = vote.remaining_ms or 0
            until = "no expiry" if left < 0 else f"{left / 1e3:.1f} s left"
            how = "  reads" if vote.is_shared else ""
            shown = f"{vote.owner or '-'}  {vote.token_hash}  {until}{how}"
        waiting = f"  {vote.waiting} waiting" if vote.waiting else ""
        print(f"  {vote.master}  {shown}{waiting}")


def _print_slots(semaphore: Slots) -> None:
    for index, slot in enumerate(semaphore.slots):
        shown = "; ".join(map(slot.describe, slot.tokens)) or "free"
        if not slot.is_known:
            shown = "not known"
        print(f"  {index:<4}  {shown}")
    if semaphore.waiting:
        print(f"  {semaphore.waiting} waiting")


# ---- break


def break_(words: Sequence[str]) -> int:
    parser = Parser("break", _BREAK, _BREAK_END)
    parser.add_name()
    parser.add_argument(
        "--token-hash",
        metavar="H",
        help="break it only where this token holds it, as `who` shows it; else it is "
        "asked for each token that a master has (of several readers, give one)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_masters()
    asked = parser.parse_args(words)
    with new_reader(asked) as locks:
        holding = lock_or_slots(locks, asked.name)
        _print(holding)
        if isinstance(holding, Slots):
            text = "nothing was broken: give the name of one slot, as NAME#0"
            raise CommandError(text, Status.NOT_HELD)
        if not holding.is_known:
            return Status.UNREACHABLE
        tokens = _chosen(holding, asked.token_hash)
        agreed = [
            each
            for each in tokens
            if asked.yes or agrees(f"Break the lock of {holding.describe(each)}?")
        ]
        statuses = [_broken(locks, asked.name, token) for token in agreed]
    return max(statuses, default=int(Status.NOT_HELD))


def _chosen(holding: Holding, token_hash: str | None) -> list[str]:
    if token_hash in holding.tokens:
        return [token_hash]
    reads = [rows[0].is_shared for rows in holding.tokens.values()]
    if token_hash is not None:
        text = f"no master has a token {token_hash}"
        if len(holding.tokens) >= MOST_READERS:
            text += f" among the {MOST_READERS} readers that it shows"
    elif len(reads) > 1 and any(reads):
        text = "several read it: give the token of one, by --token-hash"
    else:
        return [*holding.tokens]
    raise CommandError(f"nothing was broken: {text}", Status.NOT_HELD)


def _broken(locks: FastRedlock, name: str | bytes, token_hash: str) -> int:
    status = locks.break_(name, token_hash=token_hash)
    if status is ReleaseStatus.RELEASED:
        print(f"broken: token {token_hash}")
        return Status.OK
    if status is ReleaseStatus.GONE:
        print(f"not broken: token {token_hash} was gone already")
        return Status.NOT_HELD
    print(
        f"not known: fewer than a quorum of the masters answered: token {token_hash} "
        "may still hold it",
        file=sys.stderr,
    )
    return Status.UNREACHABLE


# ---- list


def list_(words: Sequence[str]) -> int:
    parser = Parser("list", _LIST, _LIST_END)
    text = "as of SCAN: 'jobs:*' (default: all)"
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="*", help=text)
    parser.add_argument(
        "--most",
        **number("N", int, 1),
        default=MOST,
        help=f"list so many at most (default: {MOST})",
    )
    parser.add_argument(
        "--owner",
        metavar="PATTERN",
        help="only locks of owners that match, as 'web-7:*'",
    )
    parser.add_argument(
        "--oldest-first",
        action="store_true",
        help="sort all by the time of the grant; first those without one (of other "
        "clients or older versions), by the time that is left",
    )
    parser.add_argument(
        "--most-waiting-first",
        action="store_true",
        help="sort all by the number of processes that wait",
    )
    parser.add_json()
    parser.add_masters()
    asked = parser.parse_args(words)
    need_redis_py()
    with new_reader(asked) as locks, closing(Scan(locks, asked.pattern)) as scan:
        found: Iterator[Holding] = _found(scan, asked.owner)
        if asked.oldest_first or asked.most_waiting_first:
            order = _most_waiting if asked.most_waiting_first else _age
            found = iter(nsmallest(asked.most + 1, found, key=order))
        shown = islice(found, asked.most)
        if asked.json:
            lines = [json.dumps(each.as_json()) for each in shown]
        else:
            for each in shown:
                print(each)
        has_more = next(found, None) is not None
    if asked.json:
        known, failures = scan.is_of_quorum, scan.failures
        end = {"is_known": known, "has_more": has_more, "failures": failures}
        print('{"locks": [', ",\n".join(lines), f"], {json.dumps(end)[1:]}", sep="\n")
    for name, failure in scan.failures.items():
        print(f"{parser.prog}: {name}: {failure}", file=sys.stderr)
    if has_more:
        print(f"{parser.prog}: there are more than {asked.most}", file=sys.stderr)
    return Status.OK if scan.is_of_quorum else Status.UNREACHABLE


def _found(scan: Scan, owner: str | None) -> Iterator[Holding]:
    """Yield what is to be shown; what is printed of a step goes out before the next."""
    for step in scan.steps():
        for holding in step:
            if owner is None:
                is_shown = holding.tokens or not holding.is_known
            else:
                owners = [holding.owner(each) or "" for each in holding.tokens]
                is_shown = any(fnmatchcase(each, owner) for each in owners)
            if is_shown:
                yield holding
        print(end="", flush=True)


def _most_waiting(holding: Holding) -> tuple[int, tuple[int, int]]:
    return -(holding.waiting or 0), _age(holding)


def _age(holding: Holding) -> tuple[int, int]:
    token = next(iter(holding.tokens), None)
    left_ms = holding.remaining_ms(token) if token else None
    since = holding.since(token) if token else None
    return since or 0, -1 if left_ms is None else left_ms


class Scan:
    """The locks that match; `failures` has, by its name, why a master cannot list."""

    def __init__(self, locks: FastRedlock, pattern: str) -> None:
        self._driver = locks._driver
        settings = self._driver.settings
        quoted = re.sub(rb"[][*?^\\-]", rb"\\\g<0>", settings.key_prefix)
        self._pattern = quoted + os.fsencode(pattern)
        self.failures: dict[str, str] = {}
        self._walks: list[_Walk] = []
        for each in settings.endpoints:
            try:
                nodes = [node for node, _ in shards_of(each)]
            except ServerError as error:
                self.failures[each.name] = str(error)
            else:
                walks = (_Walk(node, each.name, self.failures) for node in nodes)
                self._walks.extend(walks)

    @property
    def is_of_quorum(self) -> bool:
        engine = self._driver.engine
        listing = (name not in self.failures for name in engine.master_names)
        return has_quorum(listing, engine.electorate)

    def steps(self) -> Iterator[list[Holding]]:
        """Yield the locks of each step, by name; blocks, 2 s for each reply at most."""
        driver, seen = self._driver, set[bytes]()
        size, terms = len(driver.settings.key_prefix), driver.settings.default_terms
        with ThreadPoolExecutor(len(self._walks) or 1) as pool:
            while walks := [each for each in self._walks if each.has_more]:
                found = pool.map(_Walk.step, walks, repeat(self._pattern))
                new = {name for each in found for name in each} - seen
                seen |= new
                names = [name[size:] for name in sorted(filter(is_lock, new))]
                rounds = [
                    driver.engine.new_round(INSPECT, name, b"-", terms)
                    for name in names
                ]
                if self.is_of_quorum:  # else nothing would be known of any
                    driver.run(Batch(rounds))
                yield [*map(self._holding, names, rounds)]

    def close(self) -> None:
        for walk in self._walks:
            walk.server.close()

    def _holding(self, name: bytes, round: Round) -> Holding:
        votes = [
            vote._replace(vote=Vote.TAKEN) if is_foreign(vote.text or "") else vote
            for vote in holders_of(self._driver.engine, round)
        ]
        for vote in votes:
            if vote.vote in (Vote.FAILED, Vote.SILENT):
                self.failures.setdefault(vote.master, vote.text or "no reply")
        return Holding(_text(name), votes)


class _Walk:
    """How far one master, or one node of it, has walked through its keys."""

    def __init__(self, node: Endpoint, name: str, failures: dict[str, str]) -> None:
        self.server = Server(node)
        self._place = f" at {node.name[8:]}" if node.seeds else ""
        self._name, self._failures = name, failures
        self._cursor = b""  # from the start
        self._types = ["zset", "string"]  # of readers; of locks, which are the last

    @property
    def has_more(self) -> bool:
        """Whether there are keys that it was not asked for."""
        return self._cursor != b"0"

    def step(self, pattern: bytes) -> list[bytes]:
        """Return the names of one step; none after a failure."""
        options = ("MATCH", pattern, "COUNT", COUNT, "TYPE", self._types[0])
        names: list[bytes]
        try:
            reply = self.server.ask("SCAN", self._cursor or b"0", *options)
            self._cursor, names = reply
        except ServerError as error:
            self._cursor = b"0"
            remedy = " (grant its user +scan)" * ("permission" in str(error))
            self._failures[self._name] = f"{error}{remedy}{self._place}"
            return []
        if self._cursor == b"0" and len(self._types) > 1:
            del self._types[0]
            self._cursor = b""
        return names


def is_lock(name: bytes) -> bool:
    return OWN not in name or (name not in RESERVED and used_in(name) is None)


def _text(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name
