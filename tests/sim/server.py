"""A model Redis: keys with a ttl by its own wall clock, and the commands we send.

What it imitates is checked against a real server in test_model.py. It answers whole
commands in the order they came; a paused one answers later, a restarted one is another
process with another run_id, without its scripts, and without its keys if they are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha1
from typing import TYPE_CHECKING

from hiredis import Reader

from fastredlock._options import scripts

from . import fences
from .queues import Queues
from .replies import (
    NIL,
    NOSCRIPT,
    OK,
    ONE,
    SUBSCRIBE_REFUSED,
    WRITES_REFUSED,
    ZERO,
    bulk,
    keys_and_arguments,
)
from .world import FOREVER_NS, Clock, S, World

if TYPE_CHECKING:
    from .judge import Judge
    from .network import Connection
    from .question import Question

INCOMPLETE = object()


DELIFEQ, DELEX = b"DELIFEQ", b"DELEX"


@cache
def digest_of(source: bytes) -> bytes:
    """Return the SHA1 of a script, in hex."""
    return sha1(source).hexdigest().encode()


class Server:
    """One master as its clients see it."""

    def __init__(self, world: World, index: int, clock: Clock, judge: Judge) -> None:
        self.world = world
        self.index = index
        self.clock = clock
        self.judge = judge
        self.keys: dict[bytes, tuple[bytes, int]] = {}  # token, expires at (wall ms)
        self.is_old = False  # before Redis 6: no HELLO
        self.is_without_queues = False  # its ACL forbids SUBSCRIBE
        self.native = b""  # DELIFEQ (Valkey 9.0) or DELEX (Redis 8.4), where it has one
        self.is_native_forbidden = False  # by its ACL, which SET ... IFEQ is not
        self.is_down = False
        self.is_compare_broken = False  # release deletes whatever is there
        self.refuses = b""  # an error reply to SET, and to scripts where MISCONF
        self.paused_until_ns = 0
        self.calm_from_ns = 0  # nothing has been wrong with it since
        self.connections: list[Connection] = []
        self.queues = Queues(self)
        self._waiting: list[tuple[Connection, bytes]] = []  # b"": it is closed
        self._starts = 0
        self.age_s = 0  # of the process that starts next
        self._commands: dict[bytes, Callable[[list[bytes]], bytes]] = {
            b"SET": self._set, b"EVALSHA": self._script, b"EVAL": self._script,
            b"HELLO": self._hello, b"INFO": self._info, b"TIME": self._time,
            b"SCRIPT": self._script_load, b"AUTH": self._ok, b"SELECT": self._ok,
            b"CLIENT": self._client, b"SUBSCRIBE": self._subscribe,
            b"COMMAND": self._command_info,
            b"DELIFEQ": self._delete_native, b"DELEX": self._delete_native,
            b"EXISTS": self._exists, b"ZADD": self._zadd, b"PEXPIRE": self._pexpire,
        }  # fmt: skip
        self.start()

    def wall_ms(self) -> int:
        """Read the wall clock, by which keys expire."""
        return self.clock.read(self.world.now_ns) // 1_000_000

    def start(self) -> None:
        """Begin a process: new run_id, no scripts."""
        self._starts += 1
        self.run_id = f"{self.index:020x}{self._starts:020x}"
        self.started_s = self.wall_ms() // 1000 - self.age_s
        self.age_s = 0
        self.loaded: set[bytes] = set()
        self.clients: list[Connection] = []  # by client id, from 1
        self.killed: set[Connection] = set()
        self.is_down = False
        calm_ns = max(self.paused_until_ns, self.world.now_ns)
        self.calm_from_ns = FOREVER_NS if self.refuses else calm_ns

    def stop(self, is_losing: bool) -> None:
        """End the process, with its connections; with its keys where is_losing."""
        self.world.tell(f"server {self.index} stops, loses keys: {is_losing}")
        self.is_down = True
        self.calm_from_ns = FOREVER_NS
        self._waiting.clear()
        for connection in self.connections:
            connection.on_server_stopped()
        self.connections.clear()
        self.queues.stop(is_losing)
        if is_losing:
            self.keys.clear()

    def pause(self, for_ns: int) -> None:
        """Stop the process for a while (SIGSTOP): nothing is lost, all is late."""
        self.world.tell(f"server {self.index} pauses for {for_ns / 1e6:.0f} ms")
        self.paused_until_ns = max(self.paused_until_ns, self.world.now_ns + for_ns)
        self.calm_from_ns = max(self.calm_from_ns, self.paused_until_ns)
        self.world.at(self.paused_until_ns, self._catch_up)

    def _catch_up(self) -> None:
        if self.world.now_ns < self.paused_until_ns or self.is_down:
            return
        # In any order of the connections, each in its own: as poll(2) names them.
        waiting, self._waiting = self._waiting, []
        turn: dict[Connection, float] = {}
        for connection, _ in waiting:
            turn.setdefault(connection, self.world.fraction())
        waiting.sort(key=lambda each: turn[each[0]])
        for connection, data in waiting:
            self.on_bytes(connection, data)

    def on_bytes(self, connection: Connection, data: bytes) -> None:
        """Take bytes, answer every whole command in them; b"" is their end."""
        if self.is_down:
            return
        if self.world.now_ns < self.paused_until_ns or self._waiting:
            self._waiting.append((connection, data))
            return
        if not data:
            self.queues.forget(connection)
            return
        reader = connection.reader
        reader.feed(data)
        while (words := reader.gets()) is not INCOMPLETE:
            if connection in self.killed:
                return
            question = self.judge.on_command(connection, words)
            self.queues.speaker = connection
            reply = self.execute(words)
            self.queues.speaker = None
            if words[0] == b"HELLO" and reply.startswith(b"%"):
                self.clients.append(connection)
                reply = reply.replace(b"%2", b"%3") + (
                    b"+id\r\n:%d\r\n" % len(self.clients)
                )
            if question is not None:
                self.judge.on_executed(connection, question, reply)
            self._answer(connection, question, reply)

    def _answer(
        self, connection: Connection, question: Question | None, reply: bytes
    ) -> None:
        # A push to the connection that caused it stands in front of the reply, or, from
        # Redis 7.2 on, behind it.
        pushes = self.queues.pushes_to_speaker()
        is_behind = not pushes or self.world.chance(0.5)
        if is_behind:
            connection.answer(question, reply)
        for push in pushes:
            connection.answer(None, push)
        if not is_behind:
            connection.answer(question, reply)

    def _subscribe(self, words: list[bytes]) -> bytes:
        if self.is_without_queues or self.queues.speaker is None:
            return SUBSCRIBE_REFUSED
        return self.queues.subscribe(self.queues.speaker, words[1])

    def _client(self, words: list[bytes]) -> bytes:
        """End a connection, of which nothing more is executed; or take a name."""
        if words[1:3] != [b"KILL", b"ID"]:
            return OK
        client_id = int(words[3])
        if client_id > len(self.clients):
            return ZERO
        victim = self.clients[client_id - 1]
        self.world.tell(f"server {self.index} kills client {client_id}")
        self.killed.add(victim)
        self.queues.forget(victim)
        return ONE

    def new_reader(self) -> Reader:
        """Return a parser for one connection's commands."""
        return Reader(notEnoughData=INCOMPLETE)

    def token_at(self, key: bytes) -> bytes | None:
        """Return whose key stands, if one does."""
        entry = self.keys.get(key)
        if entry is None:
            return None
        if self.wall_ms() > entry[1]:  # redis/src/db.c, keyIsExpired: now > when
            del self.keys[key]
            return None
        return entry[0]

    def execute(self, words: list[bytes]) -> bytes:
        """Do one command; return its reply."""
        command = self._commands.get(words[0])
        return b"-ERR unknown command\r\n" if command is None else command(words)

    def _ok(self, words: list[bytes]) -> bytes:
        return OK

    def _hello(self, words: list[bytes]) -> bytes:
        if self.is_old:
            return b"-ERR unknown command 'HELLO'\r\n"
        return b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n"

    def _time(self, words: list[bytes]) -> bytes:
        micros = self.clock.read(self.world.now_ns) // 1000
        seconds, rest = b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)
        return b"*2\r\n" + bulk(seconds) + bulk(rest)

    def _script_load(self, words: list[bytes]) -> bytes:
        if words[1] != b"LOAD":
            return b"-ERR unknown subcommand\r\n"
        return bulk(self._load(words[2]))

    def _command_info(self, words: list[bytes]) -> bytes:
        told = (b"*1\r\n" + bulk(n) if n == self.native else NIL for n in words[2:])
        return b"*%d\r\n" % (len(words) - 2) + b"".join(told)

    def _delete_native(self, words: list[bytes]) -> bytes:
        # What the script of a release does, in one command.
        if words[0] != self.native or len(words) != (3 if words[0] == DELIFEQ else 4):
            return b"-ERR unknown command\r\n"
        if self.is_native_forbidden:
            return b"-NOPERM User default has no permissions to run the command\r\n"
        return self.release([words[1]], words[-1])

    def _exists(self, words: list[bytes]) -> bytes:
        # Of queues alone: does anybody wait?
        if self.is_without_queues:
            return b"-NOPERM User default has no permissions to access the key\r\n"
        return b":%d\r\n" % sum(self.queues.stands(word) for word in words[1:])

    def _extend_native(self, words: list[bytes]) -> bytes:
        _, key, token, _, compared, _, ttl = words
        if self.refuses:  # also where there is no memory, unlike the script
            return self.refuses
        if not self.native:
            return b"-ERR syntax error\r\n"
        extended = self._extend([key], compared, int(ttl)) == ONE
        return OK if extended and token == compared else NIL

    def _set(self, words: list[bytes]) -> bytes:
        if len(words) == 7 and (words[3], words[5]) == (b"IFEQ", b"PX"):
            return self._extend_native(words)
        if len(words) != 6 or words[3:5] != [b"NX", b"PX"]:
            return b"-ERR syntax error\r\n"
        _, key, token, _, _, ttl = words
        if self.refuses:
            return self.refuses
        if self.token_at(key) is not None:
            return NIL
        self.keys[key] = (token, self.wall_ms() + int(ttl))
        return OK

    def _zadd(self, words: list[bytes]) -> bytes:
        _, key, *how, score, member = words
        if (how, member) != ([b"GT", b"CH"], b"f"):
            return b"-ERR syntax error\r\n"
        return self.refuses or fences.count(self, key, int(score))

    def _pexpire(self, words: list[bytes]) -> bytes:
        _, key, ttl = words
        if self.refuses == WRITES_REFUSED:
            return WRITES_REFUSED
        token = self.token_at(key)
        if token is None:
            return ZERO
        self.keys[key] = (token, self.wall_ms() + int(ttl))
        return ONE

    def _load(self, source: bytes) -> bytes:
        digest = digest_of(source)
        self.loaded.add(digest)
        return digest

    def _script(self, words: list[bytes]) -> bytes:
        digest = self._load(words[1]) if words[0] == b"EVAL" else words[1]
        if digest not in self.loaded:
            return NOSCRIPT
        if digest == scripts.PROBE_SHA1 or digest == fences.PROBE:
            return b"*0\r\n"
        if digest == scripts.MARKER_SHA1:
            return self._mark(*keys_and_arguments(words))
        if digest in fences.NUMBERED:
            return fences.run(self, digest, *keys_and_arguments(words))
        if digest == fences.GATE:
            keys, arguments = keys_and_arguments(words)
            return fences.take_turn(self, keys[0], arguments)
        if self.queues.knows(digest):
            keys, arguments = keys_and_arguments(words)
            return self.queues.run(digest, keys, arguments)
        keys, (token, *ttl) = keys_and_arguments(words)
        if digest == scripts.INSPECT_SHA1:
            return self._inspect(keys[0])
        if digest == scripts.ACQUIRE_ALL_SHA1:
            return self._acquire_all(keys, (None,), token, int(ttl[0]))
        if digest == scripts.ACQUIRE_AGAIN_SHA1:
            return self._acquire_all(keys, (None, token), token, int(ttl[0]))
        if digest == scripts.RELEASE_SHA1:
            return self.release(keys, token)
        if digest == scripts.RELEASE_ALL_SHA1:
            return self.queues.release_all(keys, token)
        return self._extend(keys, token, int(ttl[0]))

    def mark(self) -> None:
        """Have the marker of a master that has voted for long."""
        self.keys[b"fastredlock:voter"] = (self.run_id.encode(), 1 << 62)

    def _mark(self, keys: list[bytes], words: list[bytes]) -> bytes:
        # As scripts.MARKER, line by line; the model's clients all tell a run id.
        (marker, quarantine), (name, wanted, _) = keys, words
        span, left = int(wanted), -2
        if (old := self.token_at(quarantine)) is not None:
            left = self.keys[quarantine][1] - self.wall_ms()
        is_known = self.token_at(marker) == name
        if self.refuses and (not is_known or (old and span > int(old))):
            return self.refuses
        if not is_known:
            left = span = max(left, span)
            self.keys[marker] = (name, 1 << 62)
        elif old is None or span <= int(old):
            return b"*2\r\n:%d\r\n" % left + bulk(name)
        else:
            left += span - int(old)
        self.keys[quarantine] = (b"%d" % span, self.wall_ms() + left)
        return b"*2\r\n:%d\r\n" % left + bulk(name)

    def _inspect(self, key: bytes) -> bytes:
        standing, waiting = self.token_at(key), self.queues.size(key)
        if standing is None:
            return b"*3\r\n" + NIL + b":-2\r\n:%d\r\n" % waiting
        left_ms = self.keys[key][1] - self.wall_ms()
        return b"*3\r\n" + bulk(b"=" + standing) + b":%d\r\n:%d\r\n" % (
            left_ms, waiting,
        )  # fmt: skip

    def _acquire_all(
        self, keys: list[bytes], free: tuple[object, ...], token: bytes, ttl_ms: int
    ) -> bytes:
        if any(self.token_at(key) not in free for key in keys):
            return ZERO
        if self.refuses:
            return self.refuses
        for key in keys:
            self.keys[key] = (token, self.wall_ms() + ttl_ms)
        return ONE

    def _extend(self, keys: list[bytes], token: bytes, ttl_ms: int) -> bytes:
        if any(self.token_at(key) != token for key in keys):
            return ZERO
        if self.refuses == WRITES_REFUSED:
            return WRITES_REFUSED
        for key in keys:
            self.keys[key] = (token, self.wall_ms() + ttl_ms)
        return ONE

    def release(self, keys: list[bytes], token: bytes) -> bytes:
        """Delete keys with this token, as the scripts of a release do."""
        standing = [key for key in keys if self.token_at(key) is not None]
        if not self.is_compare_broken:
            standing = [key for key in standing if self.token_at(key) == token]
        if standing and self.refuses == WRITES_REFUSED:
            return WRITES_REFUSED
        for key in standing:
            del self.keys[key]
        return ONE if len(standing) == len(keys) else ZERO

    def _info(self, words: list[bytes]) -> bytes:
        # redis/src/server.c: uptime is the wall clock minus the wall clock at the start
        uptime_s = max(0, self.clock.read(self.world.now_ns) // S - self.started_s)
        text = (
            f"redis_version:7.2.0\r\nredis_mode:standalone\r\nrun_id:{self.run_id}\r\n"
            f"uptime_in_seconds:{uptime_s}\r\nrole:master\r\n"
        )
        return bulk(text.encode())
