"""The names of the keys on all masters that match a pattern."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import hiredis

from .._options.endpoint import Endpoint
from .._options.keys import RESERVED, used_in
from .._options.url import parse_masters
from .server import Server, ServerError

COUNT = 1000  # keys that a server looks at in one step


class Names(NamedTuple):
    """What was found: sorted, and whether there is more, and a quorum was asked."""

    names: list[str | bytes]
    has_more: bool
    is_of_quorum: bool


def names_on_all(
    options: dict[str, Any], pattern: str, most: int
) -> tuple[Names, list[str]]:
    """Ask all masters at once; return the names, and why a master lists none."""
    endpoints = parse_masters(options["masters"])
    prefix = str(options.get("key_prefix", "")).encode()
    wanted = _quoted(prefix) + os.fsencode(pattern)
    with ThreadPoolExecutor(len(endpoints)) as pool:
        lists = [*pool.map(lambda each: _names_or_error(each, wanted, most), endpoints)]
    failures = [each for each in lists if isinstance(each, str)]
    found: set[bytes] = set()
    for each in lists:
        if not isinstance(each, str):
            found |= each
    names = [_text(name.removeprefix(prefix)) for name in sorted(found)[:most]]
    is_of_quorum = len(endpoints) - len(failures) > len(endpoints) // 2
    return Names(names, len(found) > most, is_of_quorum), failures


def _names_or_error(endpoint: Endpoint, pattern: bytes, most: int) -> set[bytes] | str:
    try:
        with Server(endpoint) as server:
            return _names(server, pattern, most)
    except ServerError as error:
        return f"{endpoint.name}: {error}"


def _names(server: Server, pattern: bytes, most: int) -> set[bytes]:
    found: set[bytes] = set()
    cursor: object = 0
    options: Sequence[object] = ("MATCH", pattern, "COUNT", COUNT, "TYPE", "string")
    while True:
        reply = server.ask("SCAN", cursor, *options)
        if isinstance(reply, hiredis.ReplyError):
            raise ServerError(f"SCAN: {reply} (grant its user +scan)")
        cursor, names = reply
        found.update(name for name in names if is_lock(name))
        if cursor == b"0" or len(found) > most:
            return found


def is_lock(name: bytes) -> bool:
    """Return whether a key is none of fastredlock's own."""
    return name not in RESERVED and used_in(name) is None


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
