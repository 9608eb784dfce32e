"""A model of one master: commands as lists of words and a time in, replies out.

It has the commands that we send, and that our scripts call, and no others, no clock and
no socket. A connection is any object; pushes are taken with `pushes.take`. A test
compares all of it with real servers. Scripts run as they ship: one runtime of Lua runs
those of all models, each compiled once; `redis` is an argument of a script, and has the
keys of its model.

A server that refuses writes (disk, replicas, memory) refuses only the first one of a
script: behind it the script must go on (redis/src/script.c, SCRIPT_WRITE_DIRTY).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any
from weakref import proxy

from .._options.scripts import hashed

OK = b"+OK\r\n"
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
SYNTAX = b"-ERR syntax error\r\n"
UNKNOWN = b"-ERR unknown command\r\n"
WRONG_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
NEVER_US = 1 << 62

Word = bytes | int
Reply = int | bytes | list[Any] | bool | None  # True: OK; False, as None: nil

# --- replies --------------------------------------------------------------------------


class ReplyError(Exception):
    """An error reply to a command."""

    def __init__(self, reply: bytes) -> None:
        self.reply = reply

    def text(self) -> bytes:
        return self.reply[1:-2]


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def push(kind: bytes, channel: bytes, last: bytes) -> bytes:
    """Encode what a subscriber is sent; `last` is encoded already."""
    return b">3\r\n" + bulk(kind) + bulk(channel) + last


def encode(reply: Reply, nil: bytes) -> bytes:
    """Encode what a script returns; `nil` is None, by the connection's protocol."""
    if reply is None or reply is False:
        return nil
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return bulk(reply)
    return b"*%d\r\n" % len(reply) + b"".join([encode(each, nil) for each in reply])


# --- messages -------------------------------------------------------------------------


class Pushes:
    """Hold the subscribers of one server; a subscriber is any object."""

    def __init__(self) -> None:
        self.channels: dict[bytes, list[Any]] = {}
        self._sent: list[tuple[Any, bytes]] = []

    def subscribe(self, listener: object, channel: bytes) -> bytes:
        """Let a connection listen; return the push that confirms it."""
        listeners = self.channels.setdefault(channel, [])
        if listener not in listeners:
            listeners.append(listener)
        return push(b"subscribe", channel, b":1\r\n")

    def forget(self, listener: object) -> None:
        """Remove a connection that is closed from all channels."""
        for channel, listeners in tuple(self.channels.items()):
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                del self.channels[channel]

    def publish(self, channel: bytes, text: bytes) -> int:
        """Send a message; return the number of its receivers."""
        listeners = self.channels.get(channel, ())
        message = push(b"message", channel, bulk(text))
        self._sent += [(listener, message) for listener in listeners]
        return len(listeners)

    def take(self) -> list[tuple[Any, bytes]]:
        """Return the messages since the last call, each with its receiver."""
        sent, self._sent = self._sent, []
        return sent


# --- keys -----------------------------------------------------------------------------


class Set(dict[bytes, float]):
    """Members with their scores, whole numbers or -inf, and all of them in order."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[float, bytes]] = []

    def put(self, member: bytes, score: float) -> None:
        self.drop(member)
        self[member] = score
        insort(self.order, (score, member))

    def drop(self, member: bytes) -> bool:
        score = self.pop(member, None)
        if score is not None:
            del self.order[bisect_left(self.order, (score, member))]
        return score is not None


class Keyspace:
    """Hold the keys of one server: strings and sorted sets, and who listens.

    A method of NAMES is the command of that name: it takes the words behind it, numbers
    as such or as text, at the time `now_us` of the server's wall clock.
    """

    NAMES = (
        *("exists", "type", "pttl", "pexpire", "pexpireat", "get", "strlen", "set"),
        *("zadd", "zrem", "zremrangebyrank", "zremrangebyscore", "zcount", "zscore"),
        *("zcard", "zrank", "zrange", "time", "publish", "pubsub"),
    )

    def __init__(self) -> None:
        self.now_us = 0
        self.writes_refused = b""  # an error reply to each write
        self.memory_refused = b""  # an error reply to those that need memory
        self.has_written: bool = False  # the script that runs
        self.pushes: Pushes = Pushes()
        self._entries: dict[bytes, tuple[bytes | Set, int]] = {}  # value, gone at (us)

    def items(self) -> list[tuple[bytes, bytes | Set]]:
        entries, now_us = self._entries.items(), self.now_us
        return [(key, value) for key, (value, gone_us) in entries if now_us < gone_us]

    def clear(self) -> None:
        """FLUSHALL."""
        self._entries.clear()

    def commands(self) -> dict[bytes, Callable[..., Any]]:
        """Return the commands by name, in small and in large letters."""
        named = {name.encode(): getattr(self, name) for name in self.NAMES}
        named[b"del"] = self.delete
        return named | {name.upper(): command for name, command in named.items()}

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
        self._entries.pop(key, None)

    def _gone_us(self, ttl_ms: int) -> int:
        # redis/src/db.c, keyIsExpired: in ms, now > when
        return (self.now_us // 1000 + ttl_ms + 1) * 1000

    def exists(self, *keys: bytes) -> int:
        return sum(self.value(key) is not None for key in keys)

    def type(self, key: bytes) -> dict[bytes, bytes]:
        value = self.value(key)
        kind = b"string" if isinstance(value, bytes) else b"zset"
        return {b"ok": b"none" if value is None else kind}  # as Lua has a status

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

    def pexpire(self, key: bytes, ttl_ms: Word) -> int:
        self.check_write(needs_memory=False)
        value = self.value(key)
        if value is None:
            return 0
        self._entries[key] = value, self._gone_us(int(ttl_ms))
        return 1

    def pexpireat(self, key: bytes, gone_ms: Word) -> int:
        return self.pexpire(key, int(gone_ms) - self.now_us // 1000)

    # --- strings ----------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        value = self.value(key)
        if isinstance(value, dict):
            raise ReplyError(WRONG_TYPE)
        return value

    def strlen(self, key: bytes) -> int:
        return len(self.get(key) or b"")

    def set(self, key: bytes, value: Word, *how: Word) -> bool | None:
        """SET [NX] [PX ms]; None: NX, and the key exists."""
        self.check_write(needs_memory=True)
        is_new = how[:1] in ((b"nx",), (b"NX",))
        if is_new and self.value(key) is not None:
            return None
        text = value if isinstance(value, bytes) else b"%d" % value
        self.put(key, text, int(how[-1]) if len(how) > 1 else None)
        return True

    def put(self, key: bytes, value: bytes, ttl_ms: int | None = None) -> None:
        """Set a key, whatever this server refuses."""
        self._entries[key] = value, self._gone_us(ttl_ms) if ttl_ms else NEVER_US

    # --- sorted sets ------------------------------------------------------------------

    def _set(self, key: bytes) -> Set:
        value = self.value(key)
        if isinstance(value, bytes):
            raise ReplyError(WRONG_TYPE)
        return Set() if value is None else value

    def zadd(self, key: bytes, *words: Any) -> int:
        """ZADD [NX] [XX] [GT] [CH] score member; return how many were added."""
        self.check_write(needs_memory=True)
        *how, score, member = words
        members = self._set(key)
        before = members.get(member)
        is_new = before is None
        if b"xx" in how if is_new else b"nx" in how:
            return 0
        if before is not None and b"gt" in how and float(score) <= before:
            return 0
        members.put(member, float(score))
        self._entries.setdefault(key, (members, NEVER_US))
        return int(is_new or (b"ch" in how and before != members[member]))

    def zrem(self, key: bytes, member: bytes) -> int:
        self.check_write(needs_memory=False)
        members = self._set(key)
        if not members.drop(member):
            return 0
        if not members:
            self.drop(key)
        return 1

    def zremrangebyrank(self, key: bytes, first: int, last: int) -> int:
        self.check_write(needs_memory=False)
        members, found = self._set(key), self.zrange(key, first, last)
        for member in found:
            members.drop(member)
        if not members:
            self.drop(key)
        return len(found)

    def zremrangebyscore(self, key: bytes, low: bytes, high: Word) -> int:
        """ZREMRANGEBYSCORE key -inf high, and no other range."""
        self.check_write(needs_memory=False)
        above = bisect_right(self._set(key).order, (float(high), b"\xff"))
        return self.zremrangebyrank(key, 0, above - 1) if above else 0

    def zcount(self, key: bytes, low: bytes, high: bytes) -> int:
        """ZCOUNT key (-inf inf, and no other range."""
        return sum(score > -inf for score in self._set(key).values())

    def zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = self._set(key).get(member)
        return None if score is None else text_of(score)

    def zcard(self, key: bytes) -> int:
        return len(self._set(key))

    def zrank(self, key: bytes, member: bytes) -> int | None:
        members = self._set(key)
        score = members.get(member)
        return None if score is None else bisect_left(members.order, (score, member))

    def zrange(
        self, key: bytes, first: int, last: int, withscores: bytes = b""
    ) -> list[bytes]:
        found = self._set(key).order[first : last + 1 or None]
        if withscores:
            return [each for score, m in found for each in (m, text_of(score))]
        return [member for _, member in found]

    # --- of the server ----------------------------------------------------------------

    def time(self) -> list[bytes]:
        seconds, micros = divmod(self.now_us, 1_000_000)
        return [b"%d" % seconds, b"%d" % micros]

    def publish(self, channel: bytes, text: bytes) -> int:
        return self.pushes.publish(channel, text)

    def pubsub(self, numsub: bytes, channel: bytes) -> list[Word]:
        """PUBSUB NUMSUB channel."""
        return [channel, len(self.pushes.channels.get(channel, ()))]


def text_of(score: float) -> bytes:
    return b"-inf" if score == -inf else b"%d" % score


# --- scripts --------------------------------------------------------------------------

# A table comes back as `true` and its values; an error as nil and its text.
COMPILE = b"""\
local function flat(reply)
  if type(reply) ~= "table" then return reply end
  if reply.err then return nil, reply.err end
  return true, unpack(reply)
end
return function(source)
  local script = assert(loadstring("local redis, KEYS, ARGV = ...\\n" .. source))
  return function(redis, count, ...)
    local all = {...}
    return flat(script(redis, {unpack(all, 1, count)}, {unpack(all, count + 1)}))
  end
end"""


@cache
def runtime() -> tuple[Any, Callable[[bytes], Any]]:
    """Return the runtime, and its function that compiles a script."""
    try:
        from lupa.lua51 import LuaRuntime
    except ImportError as error:
        raise ImportError(
            "masters in memory run the Lua scripts by lupa: "
            "pip install 'fastredlock[memory]'"
        ) from error
    lua = LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
    return lua, cache(lua.execute(COMPILE))


def unfold(value: Any) -> Reply:
    """Return what is in a script's table; a table in it, as a list of plain values."""
    return value if isinstance(value, bytes | int) else [*value.values()]


class Lua:
    """Run scripts of one server, which call its commands: these raise ReplyError.

    Lua holds the commands, which must not hold this: such a circle is never freed.
    """

    def __init__(self, commands: dict[bytes, Callable[..., Any]]) -> None:
        lua, self.compile = runtime()

        def call(name: bytes, *words: Any) -> Any:
            command = commands.get(name)
            if command is None:
                raise ReplyError(UNKNOWN)
            reply = command(*words)
            if type(reply) in (list, dict):
                return lua.table_from(reply)
            return False if reply is None else reply

        def pcall(*words: Any) -> Any:
            try:
                return call(*words)
            except ReplyError as error:
                return error_reply(error.text())

        def error_reply(text: bytes) -> Any:
            return lua.table_from({b"err": text})

        def sha1hex(text: bytes) -> bytes:
            return hashed(text).sha1

        redis = {b"call": call, b"pcall": pcall, b"error_reply": error_reply}
        redis[b"sha1hex"] = sha1hex
        self._redis = lua.table_from(redis)

    def run(self, script: Any, count: int, words: list[bytes]) -> Reply:
        """Run a compiled script, `words` being its `count` keys and its arguments."""
        reply = script(self._redis, count, *words)
        if type(reply) is tuple:
            first, *values = reply
            if first is None:
                raise ReplyError(b"-%b\r\n" % values[0])
            return [unfold(each) for each in values]
        return [] if reply is True else reply


# --- the server -----------------------------------------------------------------------


class Model:
    def __init__(self) -> None:
        self.keys: Keyspace = Keyspace()
        self._lua = Lua(self.keys.commands())
        self.native = b""  # DELIFEQ (Valkey 9.0) or DELEX (Redis 8.4), where it has one
        self._commands: dict[bytes, Callable[[list[bytes]], bytes]] = {
            b"SET": self._set, b"EVAL": self._eval, b"EVALSHA": self._eval,
            b"SCRIPT": self._script, b"HELLO": self._hello, b"INFO": self._info,
            b"COMMAND": self._command_info, b"CLIENT": self._client,
            b"DELIFEQ": self._delete_native, b"DELEX": self._delete_native,
            b"AUTH": lambda _: OK, b"SELECT": lambda _: OK,
            b"EXISTS": lambda words: b":%d\r\n" % self.keys.exists(*words[1:]),
            b"TIME": lambda _: encode(self.keys.time(), b""),
            b"SUBSCRIBE": lambda words: self.pushes.subscribe(self._speaker, words[1]),
        }  # fmt: skip
        self.start(b"", 0)

    def start(self, run_id: bytes, started_s: int) -> None:
        """Begin a process that has the same keys: no scripts, no connections."""
        self.run_id: bytes = run_id
        self.started_s: int = started_s
        self.loaded: dict[bytes, Callable[..., Any]] = {}  # by SHA1
        self.pushes: Pushes = Pushes()
        self.keys.pushes = proxy(self.pushes)  # listeners hold this model: see Lua
        self.killed: set[object] = set()  # connections
        self._clients: dict[int, object] = {}  # connections, by client id
        self._names: dict[object, bytes] = {}  # of connections
        self._ids = 0
        self._speaker: object = None

    def execute(self, words: list[bytes], speaker: object, now_us: int) -> bytes:
        self._speaker = speaker
        self.keys.now_us, self.keys.has_written = now_us, False
        try:
            command = self._commands.get(words[0])
            return UNKNOWN if command is None else command(words)
        except ReplyError as error:
            return error.reply

    def forget(self, speaker: object) -> None:
        """Remove a connection that is closed."""
        self.pushes.forget(speaker)
        self._names.pop(speaker, None)
        for client_id in [i for i, each in self._clients.items() if each is speaker]:
            del self._clients[client_id]

    def _nil(self) -> bytes:
        is_resp3 = self._speaker in self._clients.values()
        return b"_\r\n" if is_resp3 else b"$-1\r\n"

    # --- of connections ---------------------------------------------------------------

    def _hello(self, words: list[bytes]) -> bytes:
        self._ids += 1
        self._clients[self._ids] = self._speaker
        fields = b"%3\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n+id\r\n"
        return fields + b":%d\r\n" % self._ids

    def _client(self, words: list[bytes]) -> bytes:
        if words[1] == b"SETNAME":
            self._names[self._speaker] = words[2]
        elif words[1] == b"LIST":
            lines = (b"name=%b age=0 db=0\n" % name for name in self._names.values())
            return bulk(b"".join(lines))
        if words[1:3] != [b"KILL", b"ID"]:
            return OK
        victim = self._clients.get(int(words[3]))
        if victim is None:
            return b":0\r\n"
        self.forget(victim)
        self.killed.add(victim)
        return b":1\r\n"

    # --- of the server ----------------------------------------------------------------

    def _info(self, words: list[bytes]) -> bytes:
        # redis/src/server.c: uptime is the wall clock minus the wall clock at the start
        uptime_s = max(0, self.keys.now_us // 1_000_000 - self.started_s)
        return bulk(
            b"redis_version:7.2.0\r\nredis_mode:standalone\r\nrole:master\r\n"
            b"uptime_in_seconds:%d\r\nrun_id:%b\r\n" % (uptime_s, self.run_id)
        )

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
            how = how[2:]
        elif how[:1] != [b"NX"] or how[1:2] not in ([], [b"PX"]):
            return SYNTAX
        return OK if self.keys.set(key, token, *how) else self._nil()

    def _delete_native(self, words: list[bytes]) -> bytes:
        name, key, token = words[0], words[1], words[-1]
        if name != self.native:
            return UNKNOWN
        self.keys.check_write(needs_memory=False)
        return b":%d\r\n" % (self.keys.get(key) == token and self.keys.delete(key))

    # --- of scripts -------------------------------------------------------------------

    def _script(self, words: list[bytes]) -> bytes:
        if words[1] == b"EXISTS":
            return encode([int(digest in self.loaded) for digest in words[2:]], b"")
        return bulk(self._load(words[2])) if words[1] == b"LOAD" else SYNTAX

    def _load(self, source: bytes) -> bytes:
        digest = hashed(source).sha1
        self.loaded[digest] = self._lua.compile(source)
        return digest

    def _eval(self, words: list[bytes]) -> bytes:
        digest = self._load(words[1]) if words[0] == b"EVAL" else words[1]
        if digest not in self.loaded:
            return NOSCRIPT
        reply = self._lua.run(self.loaded[digest], int(words[2]), words[3:])
        return encode(reply, self._nil())
