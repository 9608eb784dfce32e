"""`fastredlock who`, `list` and `break`: locks as the masters know them, for people.

A list is made step by step. A step is one SCAN on each master that has more, then who
holds the names that are new: scripts.INSPECT for many keys at once, on all masters.
What is under way is a few thousand locks, however many there are.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fnmatch import fnmatchcase
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from .. import ReleaseStatus, Vote
from .._core import has_quorum, is_foreign
from .._options.keys import OWN, RESERVED, encode_slots, used_in
from .._options.masters import Endpoint, parse_lists
from .._options.scripts import INSPECT, with_prefix, with_tags
from .._options.settings import TAKES_NO_LOCKS
from .._reports.votes import MasterVote, rows_of
from . import CommandError, Status
from .connection import Server, ServerError, need_redis_py, shards_of
from .holding import Holding, Slots, lock_or_slots
from .parser import (
    MASTERS_END,
    Parser,
    agrees,
    given_options,
    new_locks,
    new_reader,
    number,
)
from .waiting import Waiting, queue_of

if TYPE_CHECKING:
    from .. import FastRedlock


MOST = 1000  # locks in a list
COUNT = 1000  # keys that a server looks at in one step
INSPECTED = 250  # keys of one script: a server does nothing else meanwhile, 1 ms

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
    queue, failure = _queue(given_options(asked), asked.name, holding)
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
    options: dict[str, Any], name: str | bytes, holding: Holding | Slots
) -> tuple[list[Waiting], str]:
    """Return the queue, and why it is not known; mostly nobody waits."""
    if not holding.waiting:
        return [], ""
    if isinstance(holding, Slots):
        name = encode_slots(name) + b"#"
    key = name.encode() if isinstance(name, str) else name
    votes = [vote for vote in holding.votes if vote.waiting == holding.waiting]
    endpoints, _ = parse_lists(options["masters"], options.get("changing_to"))
    gate = next(each for each in endpoints if each.name == votes[0].master)
    try:
        need_redis_py()
        return queue_of(gate, str(options.get("key_prefix", "")).encode(), key), ""
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
    options = given_options(asked)
    need_redis_py()
    # Wrong options are refused before any I/O.
    new_locks({**options, "max_ttl": TAKES_NO_LOCKS}).close()
    with closing(Scan(options, asked.pattern)) as scan:
        found = _found(scan, asked.owner)
        show: Callable[[Holding], str] = _json_line if asked.json else str
        lines: Iterator[str] = map(show, found)
        order = _most_waiting if asked.most_waiting_first else _age
        if (
            asked.oldest_first or asked.most_waiting_first
        ):  # of many, only texts are kept
            lines = (line for _, line in sorted((order(x), show(x)) for x in found))
        if asked.json:
            has_more = _stream_json(scan, lines, asked.most)
        else:
            for line in islice(lines, asked.most):
                print(line)
            has_more = next(lines, None) is not None
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


def _json_line(holding: Holding) -> str:
    return json.dumps(holding.as_json())


def _stream_json(scan: Scan, lines: Iterator[str], most: int) -> bool:
    """Print so many at most; return whether there are more."""
    begin = '{"locks": ['
    for line in islice(lines, most):
        print(begin, line, sep="\n", end="")
        begin = ","
    has_more = next(lines, None) is not None
    known, failures = scan.is_of_quorum, scan.failures
    end = {"is_known": known, "has_more": has_more, "failures": failures}
    print("" if begin == "," else begin, f"], {json.dumps(end)[1:]}", sep="\n")
    return has_more


class Scan:
    """The locks that match; `failures` has, by its name, why a master cannot list."""

    def __init__(self, options: dict[str, Any], pattern: str) -> None:
        self._prefix = str(options.get("key_prefix", "")).encode()
        quoted = re.sub(rb"[][*?^\\-]", rb"\\\g<0>", self._prefix)
        self._pattern = quoted + os.fsencode(pattern)
        endpoints, self._electorate = parse_lists(
            options["masters"], options.get("changing_to")
        )
        self._each = {  # a vote of each master, by its name
            each.name: MasterVote(
                each.name, Vote.PENDING, only_in=self._electorate.only_in(vote)
            )
            for vote, each in enumerate(endpoints)
        }
        self._masters = [
            master for each in endpoints for master in _shards(each, self._prefix)
        ]

    @property
    def failures(self) -> dict[str, str]:
        return {each.name: each.failure for each in self._masters if each.failure}

    @property
    def is_of_quorum(self) -> bool:
        failures = self.failures
        return has_quorum(
            (name not in failures for name in self._each), self._electorate
        )

    def steps(self) -> Iterator[list[Holding]]:
        """Yield the locks of each step, by name; blocks, 2 s for each reply at most."""
        seen: set[bytes] = set()
        with ThreadPoolExecutor(len(self._masters)) as pool:
            while any(each.has_more for each in self._masters):
                found = pool.map(_Master.scan, self._masters, repeat(self._pattern))
                new = {name for each in found for name in each} - seen
                names = sorted(filter(is_lock, new))
                seen |= new
                replies = pool.map(_Master.inspect, self._masters, repeat(names))
                yield [*map(self._holding, names, zip(*replies, strict=True))]

    def close(self) -> None:
        for master in self._masters:
            master.server.close()

    def _holding(self, name: bytes, replies: Sequence[object]) -> Holding:
        votes: dict[str, list[MasterVote]] = {}  # of a cluster, that of the key's node
        for master, reply in zip(self._masters, replies, strict=True):
            which = master.name
            if isinstance(reply, list):
                vote = Vote.GRANTED if len(reply) == 1 else Vote.TAKEN
                votes[which] = rows_of(self._each[which]._replace(vote=vote), reply)
            else:
                vote = Vote.TAKEN if is_foreign(str(reply)) else Vote.FAILED
                failed = self._each[which]._replace(vote=vote, text=str(reply))
                votes.setdefault(which, [failed])
        rows = [row for each in votes.values() for row in each]
        return Holding(_text(name.removeprefix(self._prefix)), rows)


def _shards(endpoint: Endpoint, prefix: bytes) -> list[_Master]:
    """Return the primaries of a cluster, all by its name; or the one master."""
    try:
        nodes = [node for node, _ in shards_of(endpoint)]
    except ServerError as error:
        return [_Master(endpoint, endpoint.name, prefix, str(error))]
    return [_Master(node, endpoint.name, prefix) for node in nodes]


class _Master:
    """One master, or a node of it, and how far it has walked through its keys."""

    def __init__(
        self, endpoint: Endpoint, name: str, prefix: bytes, failure: str = ""
    ) -> None:
        self.name = name
        self.failure = failure
        self.place = f" at {endpoint.name[8:]}" if endpoint.seeds else ""
        self.server = Server(endpoint)
        self._cursor = b""  # from the start
        self._types = ["zset", "string"]  # of readers; of locks, which are the last
        source = with_tags(INSPECT) if endpoint.seeds else INSPECT
        inspect = with_prefix(source, prefix).replace(b"KEYS[1]", b"key")
        self._script = (
            b"local function inspect(key)\n%b\nend\nlocal found = {}\nfor i, key in "
            b"ipairs(ARGV) do found[i] = inspect(key) end\nreturn found" % inspect
        )

    @property
    def has_more(self) -> bool:
        """Whether there are keys that it was not asked for."""
        return not self.failure and self._cursor != b"0"

    def scan(self, pattern: bytes) -> list[bytes]:
        """Return the names of one step; none after a failure, or the end."""
        if not self.has_more:
            return []
        options = ("MATCH", pattern, "COUNT", COUNT, "TYPE", self._types[0])
        reply = self._ask("+scan", "SCAN", self._cursor or b"0", *options)
        self._cursor, names = reply or (b"0", [])
        if self._cursor == b"0" and len(self._types) > 1:
            del self._types[0]
            self._cursor = b""
        return names

    def inspect(self, names: list[bytes]) -> list[object]:
        """Return the reply of INSPECT for each name, or the error."""
        found: list[object] = []
        for start in range(0, len(names), INSPECTED):
            part = names[start : start + INSPECTED]
            # Not as KEYS, which have to be of one hash slot.
            found += self._ask("+eval +get +pttl", "EVAL", self._script, 0, *part)
        return found if not self.failure else [self.failure] * len(names)

    def _ask(self, rights: str, *words: object) -> Any:
        """Return the reply; () if it fails, or has failed: see `failure`."""
        try:
            return () if self.failure else self.server.ask(*words)
        except ServerError as error:
            remedy = f" (grant its user {rights})" * ("permission" in str(error))
            self.failure = f"{error}{remedy}{self.place}"
            return ()


def is_lock(name: bytes) -> bool:
    return OWN not in name or (name not in RESERVED and used_in(name) is None)


def _text(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name
