"""A model of one master: commands as lists of words and a time in, replies out.

It has the commands and the scripts that we send, and no others, no clock and no socket:
around it `MemoryMasters` have a virtual clock, and the simulator of tests/sim delays,
restarts and losses. A connection is any object; pushes are taken with `pushes.take`.
A test compares all of it with real servers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache

from ._keyspace import Keyspace, ReplyError
from ._pushes import Pushes
from ._replies import OK, Reply, bulk, encode, keys_and_arguments
from ._scripts import Scripts

NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
UNKNOWN = b"-ERR unknown command\r\n"
NOT_OURS = b"-ERR this model runs the scripts of fastredlock alone\r\n"
SYNTAX = b"-ERR syntax error\r\n"
NAMED = re.compile(rb'"((?:\\\d{3})*)fastredlock:')


@cache
def digest_of(source: bytes) -> bytes:
    """Return the SHA1 of a script, in hex."""
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


@cache
def without_prefix(source: bytes) -> tuple[bytes, bytes]:
    """Return the SHA1 of a script without a prefix to its own names; and that prefix.

    In a script the prefix is escapes of three digits.
    """
    found = NAMED.search(source)
    quoted = found[1] if found else b""
    plain = source.replace(b'"' + quoted + b"fastredlock:", b'"fastredlock:')
    prefix = bytes(int(byte) for byte in quoted.split(b"\\")[1:])
    return digest_of(plain), prefix


class Model:
    """One master."""

    def __init__(self) -> None:
        self.keys = Keyspace()
        self.native = b""  # DELIFEQ (Valkey 9.0) or DELEX (Redis 8.4), where it has one
        self._commands: dict[bytes, Callable[[list[bytes]], bytes]] = {
            b"SET": self._set, b"EVAL": self._eval, b"EVALSHA": self._evalsha,
            b"SCRIPT": self._script, b"HELLO": self._hello, b"INFO": self._info,
            b"TIME": self._time, b"SUBSCRIBE": self._subscribe,
            b"COMMAND": self._command_info, b"CLIENT": self._client,
            b"AUTH": self._ok, b"SELECT": self._ok, b"EXISTS": self._exists,
            b"DELIFEQ": self._delete_native, b"DELEX": self._delete_native,
        }  # fmt: skip
        self.start(b"", 0)

    def start(self, run_id: bytes, started_s: int) -> None:
        """Begin a process that has the same keys: no scripts, no connections."""
        self.run_id, self.started_s = run_id, started_s
        self.loaded: dict[bytes, tuple[bytes, bytes]] = {}  # SHA1: ours, prefix
        self.pushes = Pushes()
        self.killed: set[object] = set()  # connections
        self._scripts = Scripts(self.keys, self.pushes)
        self._clients: dict[int, object] = {}  # connections, by client id
        self._ids = 0
        self._speaker: object = None

    def execute(self, words: list[bytes], speaker: object, now_us: int) -> bytes:
        """Do one command of a connection; return its reply."""
        self._speaker = speaker
        self.keys.now_us, self.keys.has_written = now_us, False
        try:
            return self._commands.get(words[0], self._unknown)(words)
        except ReplyError as error:
            return error.reply

    def forget(self, speaker: object) -> None:
        """Remove a connection that is closed."""
        self.pushes.forget(speaker)
        for client_id in [i for i, each in self._clients.items() if each is speaker]:
            del self._clients[client_id]

    def _nil(self) -> bytes:
        is_resp3 = self._speaker in self._clients.values()
        return b"_\r\n" if is_resp3 else b"$-1\r\n"

    def _unknown(self, words: list[bytes]) -> bytes:
        return UNKNOWN

    def _ok(self, words: list[bytes]) -> bytes:
        return OK

    # --- of connections ---------------------------------------------------------------

    def _hello(self, words: list[bytes]) -> bytes:
        self._ids += 1
        self._clients[self._ids] = self._speaker
        fields = b"%3\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n+id\r\n"
        return fields + b":%d\r\n" % self._ids

    def _client(self, words: list[bytes]) -> bytes:
        if words[1:3] != [b"KILL", b"ID"]:
            return OK
        victim = self._clients.get(int(words[3]))
        if victim is None:
            return b":0\r\n"
        self.forget(victim)
        self.killed.add(victim)
        return b":1\r\n"

    def _subscribe(self, words: list[bytes]) -> bytes:
        return self.pushes.subscribe(self._speaker, words[1])

    # --- of the server ----------------------------------------------------------------

    def _info(self, words: list[bytes]) -> bytes:
        # redis/src/server.c: uptime is the wall clock minus the wall clock at the start
        uptime_s = max(0, self.keys.now_us // 1_000_000 - self.started_s)
        return bulk(
            b"redis_version:7.2.0\r\nredis_mode:standalone\r\nrole:master\r\n"
            b"uptime_in_seconds:%d\r\nrun_id:%b\r\n" % (uptime_s, self.run_id)
        )

    def _time(self, words: list[bytes]) -> bytes:
        seconds, micros = divmod(self.keys.now_us, 1_000_000)
        return encode([b"%d" % seconds, b"%d" % micros], b"")

    def _command_info(self, words: list[bytes]) -> bytes:
        nil = self._nil()
        found = [
            b"*1\r\n" + bulk(name) if name == self.native else nil for name in words[2:]
        ]
        return b"*%d\r\n" % len(found) + b"".join(found)

    # --- of keys ----------------------------------------------------------------------

    def _set(self, words: list[bytes]) -> bytes:
        _, key, token, *how = words
        self.keys.check_write(needs_memory=True)
        if how[:1] == [b"IFEQ"] and self.native:
            if self.keys.get(key) != how[1]:
                return self._nil()
            self.keys.set(key, token, int(how[3]))
            return OK
        if how[:1] != [b"NX"] or how[1:2] not in ([], [b"PX"]):
            return SYNTAX
        ttl_ms = int(how[2]) if how[1:] else None
        return OK if self.keys.set(key, token, ttl_ms, nx=True) else self._nil()

    def _delete_native(self, words: list[bytes]) -> bytes:
        name, key, token = words[0], words[1], words[-1]
        if name != self.native:
            return UNKNOWN
        self.keys.check_write(needs_memory=False)
        return b":%d\r\n" % (self.keys.get(key) == token and self.keys.delete(key))

    def _exists(self, words: list[bytes]) -> bytes:
        return b":%d\r\n" % sum(map(self.keys.exists, words[1:]))

    # --- of scripts -------------------------------------------------------------------

    def _script(self, words: list[bytes]) -> bytes:
        return bulk(self._load(words[2])) if words[1] == b"LOAD" else SYNTAX

    def _load(self, source: bytes) -> bytes:
        digest = digest_of(source)
        self.loaded[digest] = without_prefix(source)
        return digest

    def _eval(self, words: list[bytes]) -> bytes:
        return self._run(self._load(words[1]), words)

    def _evalsha(self, words: list[bytes]) -> bytes:
        return self._run(words[1], words)

    def _run(self, digest: bytes, words: list[bytes]) -> bytes:
        if digest not in self.loaded:
            return NOSCRIPT
        known, self._scripts.prefix = self.loaded[digest]
        script = self._scripts.by_sha1.get(known)
        if script is None:
            return NOT_OURS
        keys, arguments = keys_and_arguments(words)
        reply: Reply = script(keys, *arguments)
        return encode(reply, self._nil())
