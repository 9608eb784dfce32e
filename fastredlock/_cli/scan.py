"""The locks whose names match a pattern, as all masters know them, step by step.

A step is one SCAN on each master that has more, then who holds the names that are new:
scripts.INSPECT for many keys at once, on all masters. What is under way is a few
thousand locks, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import hiredis

from .. import Vote
from .._options.keys import OWN, RESERVED, used_in
from .._options.masters import Endpoint, parse_masters
from .._options.scripts import INSPECT, with_prefix
from .._reports.votes import MasterVote, reading_of
from .holding import Holding
from .server import Server, ServerError

COUNT = 1000  # keys that a server looks at in one step
INSPECTED = 250  # keys of one script: a server does nothing else meanwhile, 1 ms
UNREAD = (b"", Vote.PENDING, None, None, None)


class Scan:
    """The locks that match; `failures` has, by its name, why a master cannot list."""

    def __init__(self, options: dict[str, Any], pattern: str) -> None:
        self._prefix = str(options.get("key_prefix", "")).encode()
        self._pattern = _quoted(self._prefix) + os.fsencode(pattern)
        endpoints = parse_masters(options["masters"])
        self._masters = [_Master(each, self._prefix) for each in endpoints]

    @property
    def failures(self) -> dict[str, str]:
        """Why a master cannot be asked, of those that failed until now."""
        return {each.name: each.failure for each in self._masters if each.failure}

    @property
    def is_of_quorum(self) -> bool:
        """Whether a quorum was asked."""
        return len(self._masters) - len(self.failures) > len(self._masters) // 2

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
        """Close all connections."""
        for master in self._masters:
            master.close()

    def _holding(self, name: bytes, replies: Sequence[object]) -> Holding:
        votes = []
        read: tuple[bytes | None, Vote, str | None, str | None, str | None] = UNREAD
        for master, reply in zip(self._masters, replies, strict=True):
            if not isinstance(reply, list):
                votes.append(MasterVote(master.name, Vote.FAILED, str(reply)))
                continue
            value, remaining_ms, waiting = reply
            if value != read[0]:  # masters mostly have the same
                vote = Vote.GRANTED if value is None else Vote.TAKEN
                read = value, vote, *reading_of(value)
            _, vote, text, token_hash, owner = read
            here = token_hash, remaining_ms, None if waiting < 0 else waiting, owner
            votes.append(MasterVote(master.name, vote, text, None, *here))
        return Holding(_text(name.removeprefix(self._prefix)), votes)


class _Master:
    """One master, and how far it has walked through its keys."""

    def __init__(self, endpoint: Endpoint, prefix: bytes) -> None:
        self.name = endpoint.name
        self.failure = ""
        self._endpoint = endpoint
        self._server: Server | None = None
        self._cursor: object = 0
        inspect = with_prefix(INSPECT, prefix).replace(b"KEYS[1]", b"key")
        self._script = (
            b"local function inspect(key)\n%b\nend\nlocal found = {}\nfor i, key in "
            b"ipairs(KEYS) do found[i] = inspect(key) end\nreturn found" % inspect
        )

    @property
    def has_more(self) -> bool:
        """Whether there are keys that it was not asked for."""
        return not self.failure and self._cursor != b"0"

    def scan(self, pattern: bytes) -> list[bytes]:
        """Return the names of one step; none after a failure, or the end."""
        if not self.has_more:
            return []
        options = ("MATCH", pattern, "COUNT", COUNT, "TYPE", "string")
        reply = self._ask("SCAN", self._cursor, *options)
        if reply is None:
            return []
        names: list[bytes]
        self._cursor, names = reply
        return names

    def inspect(self, names: list[bytes]) -> list[object]:
        """Return the reply of INSPECT for each name, or the error."""
        found: list[object] = []
        for start in range(0, len(names), INSPECTED):
            part = names[start : start + INSPECTED]
            found += self._ask("EVAL", self._script, len(part), *part) or ()
        return found if not self.failure else [self.failure] * len(names)

    def _ask(self, *words: object) -> Any:
        """Return the reply; None where it fails, or has failed: see `failure`."""
        if self.failure:
            return None
        try:
            if self._server is None:
                self._server = Server(self._endpoint)
            reply = self._server.ask(*words)
        except ServerError as error:
            self.failure = str(error)
            return None
        if isinstance(reply, hiredis.ReplyError):
            grant = "scan" if words[0] == "SCAN" else "eval +get +pttl"
            self.failure = f"{words[0]}: {reply} (grant its user +{grant})"
            return None
        return reply

    def close(self) -> None:
        """Close its connection."""
        if self._server is not None:
            self._server.close()


def is_lock(name: bytes) -> bool:
    """Return whether a key is none of fastredlock's own."""
    return OWN not in name or (name not in RESERVED and used_in(name) is None)


def _quoted(prefix: bytes) -> bytes:
    """Return a pattern that matches the prefix alone."""
    special = b"*?[]^-\\"
    parts = (b"\\%c" % byte if byte in special else b"%c" % byte for byte in prefix)
    return b"".join(parts)


def _text(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name
