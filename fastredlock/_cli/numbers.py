"""`fastredlock renumber`: the numbers of a lock (`fencing=True`) that cannot go on.

A number that no clock gives, of a write by hand or a bug, is counted on from like any
other, up to 2^53 - 1. Where a quorum has that, no acquire gets a number any more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import NamedTuple

import hiredis

from .._options.keys import encode_resource, utf8_or_bytes
from .._options.masters import Endpoint, parse_masters
from .._options.scripts import with_prefix
from .holding import Holding
from .server import Server, ServerError
from .setup import MASTERS_END, Parser, agrees, given_options, new_reader
from .status import Status

LAST = 2**53 - 1  # fence_scripts counts no further
LARGEST = 2**52  # us; beyond the year 2112, which no client's clock gives
LIFE_MS = 86_400_000  # a day; the next acquire renews it

_TEXT = """\
Let the numbers of a lock (fencing) begin anew, where they have come to 2^53 - 1 and no
number is left to be given: no client with fencing gets the lock then. Shows the number
on each master. Where one is at its end, asks, and sets each number that no clock can
have given to the largest other one that a master has, or to 0: clients count on from
there, or from their clocks. Nothing is changed while the lock is held, nor where its
numbers can go on.

THE NEXT NUMBER IS SMALLER than those before. First end every process that was granted
one of them, even if it holds the lock no longer: its late writes would be taken, and it
would count on from there. Then let each storage that compares forget the largest number
it has seen, or it refuses all writes.
"""
_END = f"""\
exit status:
  {Status.OK:<4} a quorum of the masters can give numbers again
  {Status.NOT_HELD:<4} nothing was to be done, the lock is held, or you said no
  {Status.USAGE:<4} wrong arguments
  {Status.UNREACHABLE:<4} fewer than a quorum of the masters can give numbers by now
  {Status.SYSTEM:<4} an error of the system, as a full disk

{MASTERS_END}"""

# ARGV: the number that was shown, the new one, its life (ms). Nothing is changed beside
# a holder, or where the number is another by now.
_RENUMBER = b"""\
if redis.call("exists", KEYS[1]) == 1 then return "the lock is held by now" end
local name = "fastredlock:fence:" .. KEYS[1]
if redis.call("zscore", name, "f") ~= ARGV[1] then return "another number by now" end
redis.call("zadd", name, ARGV[2], "f")
redis.call("pexpire", name, ARGV[3])
return 1"""


class Number(NamedTuple):
    """The number that one master has, or why that is not known."""

    endpoint: Endpoint
    score: bytes | None = None  # as the server writes it; None: it has none
    error: str | None = None

    @property
    def value(self) -> float:
        """The number; 0 where there is none."""
        return 0.0 if self.score is None else float(self.score)

    @property
    def can_go_on(self) -> bool:
        """Whether acquires can count on it for long: so it is left as it is."""
        return self.error is None and self.value < LARGEST

    @property
    def is_at_its_end(self) -> bool:
        """Whether no number is left."""
        return self.error is None and not self.value < LAST

    def __str__(self) -> str:
        text = self.error or "no number"
        if self.score is not None:
            text = f"{self.value:.0f}" + ("" if self.can_go_on else "  too large")
        return f"  {self.endpoint.name}  {text}"


def renumber(words: Sequence[str]) -> int:
    """Run `fastredlock renumber` with these arguments; return the exit status."""
    parser = Parser("renumber", _TEXT, _END)
    parser.add_name()
    parser.add_yes()
    parser.add_masters()
    asked = parser.parse_args(words)
    with new_reader(asked) as locks:
        holding = Holding(asked.name, locks.holders(asked.name))
    options = given_options(asked)
    prefix = utf8_or_bytes(options.get("key_prefix", "")) or b""
    name = _Name(prefix, prefix + encode_resource(asked.name))
    endpoints = parse_masters(options["masters"])
    with ThreadPoolExecutor(len(endpoints)) as pool:
        numbers = [*pool.map(name.number, endpoints)]
        print(holding, *numbers, sep="\n")
        if (status := _refusal(holding, numbers)) is not None:
            return status
        if not (asked.yes or agrees("Let them begin anew, and smaller (see --help)?")):
            return Status.NOT_HELD
        last = max([0, *(int(each.value) for each in numbers if each.can_go_on)])
        failures = [*filter(None, pool.map(name.renumber, numbers, repeat(last)))]
    print(f"numbers go on from {last or 'the clocks of the clients'}")
    print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
    are_enough = len(numbers) - len(failures) >= holding.quorum
    return Status.OK if are_enough else Status.UNREACHABLE


def _refusal(holding: Holding, numbers: list[Number]) -> int | None:
    """Print why nothing is to be done, and return the exit status; None: go on."""
    if not holding.is_known:
        return Status.UNREACHABLE
    if holding.tokens:
        print("nothing was changed: it is held, or a key is left over: see `break`")
        return Status.NOT_HELD
    if sum(each.error is None for each in numbers) < holding.quorum:
        print("nothing was changed: too few masters say which number they have")
        return Status.UNREACHABLE
    if not any(each.is_at_its_end for each in numbers):
        print("nothing was changed: the numbers can go on")
        return Status.NOT_HELD
    return None


class _Name(NamedTuple):
    """The key of a lock, and what the names of its client begin with."""

    prefix: bytes
    key: bytes

    def number(self, endpoint: Endpoint) -> Number:
        """Ask a master for its number."""
        name = self.prefix + b"fastredlock:fence:" + self.key
        try:
            with Server(endpoint) as server:
                score = server.ask("ZSCORE", name, "f")
        except ServerError as error:
            return Number(endpoint, error=str(error))
        if isinstance(score, hiredis.ReplyError):
            return Number(endpoint, error=f"ZSCORE: {score}")
        return Number(endpoint, score)

    def renumber(self, number: Number, last: int) -> str | None:
        """Set the number of a master where it is too large; return what failed."""
        if number.can_go_on:
            return None
        reply: object = number.error
        if reply is None:
            source = with_prefix(_RENUMBER, self.prefix)
            words = (1, self.key, number.score, last, LIFE_MS)
            try:
                with Server(number.endpoint) as server:
                    reply = server.ask("EVAL", source, *words)
            except ServerError as error:
                reply = error
        if reply == 1:
            return None
        text = reply.decode() if isinstance(reply, bytes) else str(reply)
        return f"  {number.endpoint.name}: not changed: {text}"
