"""A server's keys: strings and sorted sets, by the commands that our scripts call.

Each method is the Redis command of its name, at the time `now_us` of the server's wall
clock. An error reply is raised as `ReplyError`; `pcall` returns it, as in a script. A
server that refuses writes (disk, replicas, memory) refuses only the first one of a
script: behind it the script must go on (redis/src/script.c, SCRIPT_WRITE_DIRTY).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

WRONG_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"

NEVER_US = 1 << 62

Set = dict[bytes, float]  # member: score; whole numbers, or -inf


class ReplyError(Exception):
    """An error reply to a command."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply

    def text(self) -> bytes:
        """Return the error without its encoding."""
        return self.reply[1:-2]


class Keyspace:
    """Hold the keys of one server."""

    def __init__(self) -> None:
        self.now_us = 0
        self.writes_refused = b""  # an error reply to each write
        self.memory_refused = b""  # an error reply to those that need memory
        self.has_written = False  # the script that runs
        self._entries: dict[bytes, tuple[bytes | Set, int]] = {}  # value, gone at (us)

    def items(self) -> list[tuple[bytes, bytes | Set]]:
        """Return all keys with what is under them."""
        now_us = self.now_us
        return [
            (key, value)
            for key, (value, gone_us) in self._entries.items()
            if now_us < gone_us
        ]

    def clear(self) -> None:
        """FLUSHALL."""
        self._entries.clear()

    def pcall(self, command: Callable[..., Any], *arguments: object) -> Any:
        """Return what a command replies, its error included."""
        try:
            return command(*arguments)
        except ReplyError as error:
            return error

    def check_write(self, needs_memory: bool) -> None:
        """Raise ReplyError where the server refuses a write now."""
        if not self.has_written:
            refused = self.writes_refused or (needs_memory and self.memory_refused)
            if refused:
                raise ReplyError(refused)
            self.has_written = True

    # --- any type ---------------------------------------------------------------------

    def value(self, key: bytes) -> bytes | Set | None:
        """Return what is under a key that has not expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, gone_us = entry
        if self.now_us >= gone_us:
            del self._entries[key]
            return None
        return value

    def drop(self, key: bytes) -> None:
        """Delete a key, as an eviction does."""
        self._entries.pop(key, None)

    def _gone_us(self, ttl_ms: int) -> int:
        # redis/src/db.c, keyIsExpired: in ms, now > when
        return (self.now_us // 1000 + ttl_ms + 1) * 1000

    def exists(self, key: bytes) -> int:
        return int(self.value(key) is not None)

    def delete(self, key: bytes) -> int:
        self.check_write(needs_memory=False)
        existed = self.exists(key)
        self.drop(key)
        return existed

    def pttl(self, key: bytes) -> int:
        if self.value(key) is None:
            return -2
        gone_us = self._entries[key][1]
        return -1 if gone_us == NEVER_US else gone_us // 1000 - 1 - self.now_us // 1000

    def pexpire(self, key: bytes, ttl_ms: int) -> int:
        self.check_write(needs_memory=False)
        value = self.value(key)
        if value is None:
            return 0
        self._entries[key] = value, self._gone_us(ttl_ms)
        return 1

    # --- strings ----------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        value = self.value(key)
        if isinstance(value, dict):
            raise ReplyError(WRONG_TYPE)
        return value

    def set(
        self, key: bytes, value: bytes, ttl_ms: int | None = None, nx: bool = False
    ) -> bool:
        """SET [NX] [PX], the ttl of 0 being none; False: NX, and the key exists."""
        self.check_write(needs_memory=True)
        if nx and self.value(key) is not None:
            return False
        self.put(key, value, ttl_ms)
        return True

    def put(self, key: bytes, value: bytes, ttl_ms: int | None = None) -> None:
        """Set a key, whatever this server refuses."""
        self._entries[key] = value, self._gone_us(ttl_ms) if ttl_ms else NEVER_US

    # --- sorted sets ------------------------------------------------------------------

    def _set(self, key: bytes) -> Set:
        value = self.value(key)
        if isinstance(value, bytes):
            raise ReplyError(WRONG_TYPE)
        return {} if value is None else value

    def zadd(
        self,
        key: bytes,
        score: float,
        member: bytes,
        nx: bool = False,
    ) -> int:
        """ZADD [NX]; return how many were added."""
        self.check_write(needs_memory=True)
        members = self._set(key)
        before = members.get(member)
        if before is not None and nx:
            return 0
        members[member] = score
        self._entries.setdefault(key, (members, NEVER_US))
        return int(before is None)

    def zrem(self, key: bytes, member: bytes) -> int:
        self.check_write(needs_memory=False)
        members = self._set(key)
        if members.pop(member, None) is None:
            return 0
        if not members:
            self.drop(key)
        return 1

    def zempty(self, key: bytes) -> None:
        """ZREMRANGEBYRANK key 0 -1."""
        self.check_write(needs_memory=False)
        if self._set(key):
            self.drop(key)

    def zcount_finite(self, key: bytes) -> int:
        """ZCOUNT key (-inf inf."""
        return sum(score > -inf for score in self._set(key).values())

    def zscore(self, key: bytes, member: bytes) -> float | None:
        return self._set(key).get(member)

    def zcard(self, key: bytes) -> int:
        return len(self._set(key))

    def zrange(self, key: bytes) -> list[bytes]:
        """ZRANGE key 0 -1."""
        members = self._set(key)
        return sorted(members, key=lambda member: (members[member], member))

    def zfirst(self, key: bytes) -> bytes | None:
        """ZRANGE key 0 0."""
        members = self._set(key)
        if not members:
            return None
        return min(members, key=lambda member: (members[member], member))
