"""A master in memory: keys with a ttl by the virtual clock, and the commands we send.

Each script of `_options/scripts` is known by its SHA1 and stands here as a function; no
other script runs. A test compares the replies with a real server's, over random
sequences of commands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from hiredis import Reader

from .._options import scripts
from ._fences import Fences
from ._queue import Queue
from ._replies import NIL, NOSCRIPT, OK, ONE, ZERO, bulk, keys_and_arguments

INCOMPLETE = object()
NEVER_MS = 1 << 62  # of a key without expiry
NAMED = re.compile(rb'"((?:\\\d{3})*)fastredlock:')


@cache
def digest_of(source: bytes) -> bytes:
    """Return the SHA1 of a script, in hex."""
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


@cache
def without_prefix(source: bytes) -> tuple[bytes, bytes]:
    """Return the SHA1 of a script without a prefix to its own names; and that prefix.

    In a script the prefix stands as escapes of three digits.
    """
    found = NAMED.search(source)
    quoted = found[1] if found else b""
    plain = source.replace(b'"' + quoted + b"fastredlock:", b'"fastredlock:')
    prefix = bytes(int(byte) for byte in quoted.split(b"\\")[1:])
    return digest_of(plain), prefix


class Connection:
    """One client's connection: the bytes on their way to the client, and its end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.inbox = b""
        self.error = ""
        self.is_told = False  # that it is open
        self._reader = Reader(notEnoughData=INCOMPLETE)

    def send(self, data: bytes) -> None:
        """Have the server execute all whole commands in the client's bytes."""
        if self.error:
            return
        self._reader.feed(data)
        while (words := self._reader.gets()) is not INCOMPLETE:
            self.server.speaker = self
            self.inbox += self.server.execute(words)
            self.inbox += self.server.queue.pushes_to_speaker()

    def drop(self) -> None:
        """Close it from the client's end."""
        self.error = self.error or "closed"
        self.server.queue.forget(self)


class Server:
    """One master; `clock` gives its wall clock in ns."""

    def __init__(self, index: int, clock: Callable[[], int]) -> None:
        self._index, self._clock = index, clock
        self.keys: dict[bytes, tuple[bytes, int]] = {}  # token, until (ms)
        self.queue = Queue(self)
        self.connections: list[Connection] = []
        self.speaker: Connection | None = None
        self.is_down = False
        self._starts = self._clients = 0
        self._commands: dict[bytes, Callable[[list[bytes]], bytes]] = {
            b"SET": self._set, b"EVAL": self._script, b"EVALSHA": self._script,
            b"SCRIPT": self._load, b"HELLO": self._hello, b"INFO": self._info,
            b"TIME": self._time, b"SUBSCRIBE": self._subscribe,
            b"COMMAND": self._command_info, b"CLIENT": self._client,
            b"AUTH": self._ok, b"SELECT": self._ok, b"PEXPIRE": self._pexpire,
        }  # fmt: skip
        self._scripts: dict[bytes, Callable[..., bytes]] = {
            scripts.ACQUIRE_ALL_SHA1: self._acquire_all,
            scripts.ACQUIRE_AGAIN_SHA1: self._acquire_again,
            scripts.EXTEND_SHA1: self._extend,
            scripts.EXTEND_ALL_SHA1: self._extend,
            scripts.RELEASE_SHA1: self.release,
            scripts.RELEASE_ALL_SHA1: self._release_all,
            scripts.INSPECT_SHA1: self._inspect,
            scripts.MARKER_SHA1: self._mark,
            scripts.PROBE_SHA1: lambda *_: b"*0\r\n",
            scripts.PROBE_CALL_SHA1: lambda *_: ONE,
            **self.queue.scripts,
        }
        fences = Fences(self)
        self._commands[b"ZADD"] = fences.count
        self._scripts.update(fences.scripts)
        self.start()
        self._has_voted_for_long = True

    # --- its process ------------------------------------------------------------------

    def start(self) -> None:
        """Begin a process: a new run id, no scripts, no keys."""
        self._starts += 1
        self._run_id = b"%020x%020x" % (self._index, self._starts)
        self._loaded: dict[bytes, tuple[bytes, bytes]] = {}  # SHA1: ours, prefix
        self._has_voted_for_long = False
        self.flush()
        self.is_down = False

    def flush(self) -> None:
        """Delete all keys."""
        self.keys.clear()
        self.queue.clear()

    def stop(self) -> None:
        """End the process, with its connections."""
        self.is_down = True
        for connection in self.connections:
            connection.error = connection.error or "connection reset by peer"
        self.connections.clear()

    def connect(self) -> Connection:
        """Open a connection."""
        connection = Connection(self)
        self.connections = [each for each in self.connections if not each.error]
        self.connections.append(connection)
        return connection

    # --- its keys ---------------------------------------------------------------------

    def now_ms(self) -> int:
        """Read the wall clock, by which keys expire."""
        return self._clock() // 1_000_000

    def now_us(self) -> int:
        """Read the wall clock, by which tickets are given."""
        return self._clock() // 1000

    def token_at(self, key: bytes) -> bytes | None:
        """Return the value of a key that has not expired."""
        token, until_ms = self.keys.get(key, (None, 0))
        if token is not None and self.now_ms() > until_ms:  # redis/src/db.c
            del self.keys[key]
            return None
        return token

    def left_ms(self, key: bytes) -> int:
        """Return what PTTL says."""
        if self.token_at(key) is None:
            return -2
        until_ms = self.keys[key][1]
        return -1 if until_ms == NEVER_MS else until_ms - self.now_ms()

    def put(self, key: bytes, token: bytes, ttl_ms: int | None) -> None:
        """Set a key; without a ttl it never expires."""
        until_ms = NEVER_MS if ttl_ms is None else self.now_ms() + ttl_ms
        self.keys[key] = (token, until_ms)

    # --- commands ---------------------------------------------------------------------

    def execute(self, words: list[bytes]) -> bytes:
        """Do one command; return its reply."""
        command = self._commands.get(words[0].upper())
        return b"-ERR unknown command\r\n" if command is None else command(words)

    def _ok(self, words: list[bytes]) -> bytes:
        return OK

    def _client(self, words: list[bytes]) -> bytes:
        # KILL ID: of a connection that was lost, of which nothing more is executed here
        return ZERO if words[1:2] == [b"KILL"] else OK

    def _hello(self, words: list[bytes]) -> bytes:
        self._clients += 1
        fields = b"%3\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n+id\r\n"
        return fields + b":%d\r\n" % self._clients

    def _info(self, words: list[bytes]) -> bytes:
        return bulk(
            b"redis_version:7.2.0\r\nredis_mode:standalone\r\nrole:master\r\n"
            b"uptime_in_seconds:100000000\r\nrun_id:" + self._run_id + b"\r\n"
        )

    def _time(self, words: list[bytes]) -> bytes:
        seconds, micros = divmod(self.now_us(), 1_000_000)
        return b"*2\r\n" + bulk(b"%d" % seconds) + bulk(b"%d" % micros)

    def _command_info(self, words: list[bytes]) -> bytes:
        return b"*%d\r\n" % (len(words) - 2) + NIL * (len(words) - 2)

    def _subscribe(self, words: list[bytes]) -> bytes:
        if self.speaker is None:
            return b"-ERR no connection\r\n"
        return self.queue.subscribe(self.speaker, words[1])

    def _set(self, words: list[bytes]) -> bytes:
        if words[3:4] != [b"NX"] or words[4:5] not in ([], [b"PX"]):
            return b"-ERR syntax error\r\n"
        if self.token_at(words[1]) is not None:
            return NIL
        self.put(words[1], words[2], int(words[5]) if len(words) == 6 else None)
        return OK

    def _pexpire(self, words: list[bytes]) -> bytes:
        token = self.token_at(words[1])
        if token is None:
            return ZERO
        self.put(words[1], token, int(words[2]))
        return ONE

    # --- scripts ----------------------------------------------------------------------

    def _load(self, words: list[bytes]) -> bytes:
        digest = digest_of(words[2])
        self._loaded[digest] = without_prefix(words[2])
        return bulk(digest)

    def _script(self, words: list[bytes]) -> bytes:
        digest = words[1]
        if words[0].upper() == b"EVAL":
            digest = digest_of(words[1])
            self._loaded[digest] = without_prefix(words[1])
        if digest not in self._loaded:
            return NOSCRIPT
        known, self.queue.prefix = self._loaded[digest]
        script = self._scripts.get(known)
        if script is None:
            return b"-ERR MemoryLocks run the scripts of fastredlock alone\r\n"
        keys, arguments = keys_and_arguments(words)
        return script(keys, *arguments)

    def _acquire_all(self, keys: list[bytes], token: bytes, ttl_ms: bytes) -> bytes:
        if any(self.token_at(key) is not None for key in keys):
            return ZERO
        for key in keys:
            self.put(key, token, int(ttl_ms))
        return ONE

    def _acquire_again(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes | None = None
    ) -> bytes:
        if any(self.token_at(key) not in (None, token) for key in keys):
            return ZERO
        for key in keys:
            self.put(key, token, None if ttl_ms is None else int(ttl_ms))
        return ONE

    def _extend(self, keys: list[bytes], token: bytes, ttl_ms: bytes) -> bytes:
        if any(self.token_at(key) != token for key in keys):
            return ZERO
        for key in keys:
            self.put(key, token, int(ttl_ms))
        return ONE

    def release(self, keys: list[bytes], token: bytes, *_: Any) -> bytes:
        """Delete the keys that have this token; ONE where all had it."""
        ours = [key for key in keys if self.token_at(key) == token]
        for key in ours:
            del self.keys[key]
        return ONE if len(ours) == len(keys) else ZERO

    def _release_all(self, keys: list[bytes], token: bytes) -> bytes:
        reply = self.release(keys, token)
        for key in keys:
            if self.token_at(key) is None:
                self.queue.tell(key)
        return reply

    def _inspect(self, keys: list[bytes], *_: bytes) -> bytes:
        token = self.token_at(keys[0])
        told = NIL if token is None else bulk(b"=" + token.replace(b"\n", b"\n="))
        left_ms, waiting = self.left_ms(keys[0]), self.queue.size(keys[0])
        return b"*3\r\n" + told + b":%d\r\n:%d\r\n" % (left_ms, waiting)

    def _mark(self, keys: list[bytes], name: bytes, span: bytes, how: bytes) -> bytes:
        # As scripts.MARKER, line by line; every client knows the run id here, and no
        # client has to wait for masters that were never restarted.
        marker, quarantine = keys
        if self._has_voted_for_long and self.token_at(marker) is None:
            self.put(marker, name, None)
        wanted, left, old = int(span), self.left_ms(quarantine), 0
        if left != -2:
            old = int(self.token_at(quarantine) or 0)
        if self.token_at(marker) != name:
            left = wanted = max(left, wanted)
            self.put(marker, name, None)
        elif left == -2 or wanted <= old:
            return b"*2\r\n:%d\r\n" % left + bulk(name)
        else:
            left += wanted - old
        self.put(quarantine, b"%d" % wanted, left)
        return b"*2\r\n:%d\r\n" % left + bulk(name)
