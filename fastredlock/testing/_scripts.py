"""The scripts of `_options/*.lua`, as functions.

They follow those line by line, and their theory is there; `redis` is the keyspace.
One test compares the replies, the messages and the keys with those of real servers,
over random sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._options import scripts
from ._keyspace import Keyspace, ReplyError
from ._pushes import Pushes
from ._queue import Queue
from ._replies import Reply

LONGEST_TOKEN = 262_144
LARGEST = 2**53 - 1  # of Lua's numbers
NO_NUMBER = b"-ERR fastredlock:fence: is no number to count on\r\n"
NOT_ASKED = [-1, -2, 0, 0]

Script = Callable[..., Reply]


class Scripts:
    """The scripts, by their SHA1: each takes a list of keys, then its arguments."""

    def __init__(self, redis: Keyspace, pushes: Pushes) -> None:
        self._redis, self._pushes = redis, pushes
        self.prefix = b""  # of the names in the script that runs
        self.by_sha1: dict[bytes, Script] = {
            scripts.RELEASE_SHA1: self._release,
            scripts.EXTEND_SHA1: self._extend,
            scripts.INSPECT_SHA1: self._inspect,
            scripts.ACQUIRE_ALL_SHA1: self._acquire_all,
            scripts.ACQUIRE_AGAIN_SHA1: self._acquire_again,
            scripts.EXTEND_ALL_SHA1: self._extend_all,
            scripts.RELEASE_ALL_SHA1: self._release_all,
            scripts.PROBE_SHA1: self._probe,
            scripts.hashed(scripts.PROBE_CALL).sha1: lambda keys: 1,
            scripts.MARKER_SHA1: self._marker,
            scripts.RELEASE_AND_NOTIFY_SHA1: self._release_and_notify,
            scripts.ASK_TURN_SHA1: self._ask_turn,
            scripts.TAKE_TURN_SHA1: self._take_turn,
            scripts.LEAVE_QUEUE_SHA1: self._leave_queue,
            scripts.LOOK_SHA1: self._look,
            scripts.FENCED_ACQUIRE_ALL_SHA1: self._acquire_all,
            scripts.FENCED_ACQUIRE_AGAIN_SHA1: self._acquire_again,
            scripts.FENCED_TAKE_TURN_SHA1: self._take_turn_fenced,
            scripts.WRITE_FENCE_SHA1: self._write_fence,
            scripts.FENCED_PROBE_SHA1: self._probe_fenced,
        }

    # --- of locks ---------------------------------------------------------------------

    def _release(self, keys: list[bytes], token: bytes) -> Reply:
        (key,) = keys
        return self._redis.delete(key) if self._redis.get(key) == token else 0

    def _extend(self, keys: list[bytes], token: bytes, ttl_ms: bytes) -> Reply:
        redis, (key,) = self._redis, keys
        held = redis.get(key)
        if held == token:
            return redis.pexpire(key, int(ttl_ms))
        return 2 if held is None else 0

    def _inspect(self, keys: list[bytes], *_: bytes) -> Reply:
        redis, (key,) = self._redis, keys
        value = redis.get(key)
        shown = None if value is None else b"=" + value.replace(b"\n", b"\n=")
        if value is not None and len(value) > LONGEST_TOKEN:
            shown = b"#%d" % len(value)
        waiting = redis.pcall(
            redis.zcount_finite, self.prefix + b"fastredlock:queue:" + key
        )
        if isinstance(waiting, ReplyError):
            waiting = -1
        return [shown, redis.pttl(key), waiting]

    def _acquire_all(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes, *number: bytes
    ) -> Reply:
        if any(self._redis.exists(key) for key in keys):
            return 0
        return self._set_all(keys, token, ttl_ms, *number)

    def _acquire_again(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes = b"0", *number: bytes
    ) -> Reply:
        redis = self._redis
        if any(redis.pcall(redis.get, key) not in (None, token) for key in keys):
            return 0
        return self._set_all(keys, token, ttl_ms, *number)

    def _set_all(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes, *number: bytes
    ) -> Reply:
        fence = self._number(keys, *number) if number else 1
        for key in keys:
            self._redis.set(key, token, int(ttl_ms))
        return fence

    def _extend_all(self, keys: list[bytes], token: bytes, ttl_ms: bytes) -> Reply:
        redis = self._redis
        held = [redis.pcall(redis.get, key) for key in keys]
        if any(each not in (None, token) for each in held):
            return 0
        if None in held:
            return 2
        for key in keys:
            redis.pexpire(key, int(ttl_ms))
        return 1

    def _release_all(self, keys: list[bytes], token: bytes) -> Reply:
        redis, answer, free = self._redis, 1, []
        for key in keys:
            held = redis.pcall(redis.get, key)
            if held == token:
                redis.delete(key)
                free.append(key)
            else:
                answer = 0
                if held is None:
                    free.append(key)
        for key in free:
            queue = self._queue(key)
            if queue.exists():
                queue.notify()
        return answer

    def _probe(self, keys: list[bytes]) -> list[bytes]:
        redis, name = self._redis, self.prefix + b"fastredlock:probe"
        return [
            *self._refused(b"GET", redis.get, name),
            *self._refused(b"DEL", redis.delete, name),
            *self._refused(b"PEXPIRE", redis.pexpire, name, 1),
        ]

    def _probe_fenced(self, keys: list[bytes]) -> list[bytes]:
        redis, name = self._redis, self.prefix + b"fastredlock:probe"
        return [
            *self._refused(b"GET", redis.get, name),
            *self._refused(b"DEL", redis.delete, name),
            *self._refused(b"fencing: ZSCORE", redis.zscore, name, b"f"),
            *self._refused(b"fencing: ZADD", redis.check_write, True),  # XX
            *self._refused(b"fencing: PEXPIRE", redis.pexpire, name, 1),
        ]

    def _refused(
        self, name: bytes, command: Callable[..., Any], *arguments: object
    ) -> list[bytes]:
        reply = self._redis.pcall(command, *arguments)
        return [name + b": " + reply.text()] if isinstance(reply, ReplyError) else []

    def _marker(
        self, keys: list[bytes], name: bytes, wanted: bytes, how: bytes
    ) -> Reply:
        redis, (marker, quarantine) = self._redis, keys
        kept, span, left = redis.get(marker), int(wanted), redis.pttl(quarantine)
        if kept != name and not (kept and how == b"any"):
            left = span = max(left, span)
            redis.set(quarantine, b"%d" % span, left)
            redis.set(marker, name)
            kept = name
        elif left != -2:
            old = redis.get(quarantine) or b""
            if left == -1 or not old.isdigit():
                left = max(left, span)
                redis.set(quarantine, b"%d" % span, left)
            elif span > int(old):
                left += span - int(old)
                redis.set(quarantine, b"%d" % span, left)
        return [left, kept]

    # --- of queues --------------------------------------------------------------------

    def _queue(
        self, key: bytes, leaving: bytes | None = None, of: bytes | None = None
    ) -> Queue:
        return Queue(self._redis, self._pushes, self.prefix, key, leaving, of)

    def _ask_turn(self, keys: list[bytes], process: bytes, *given: bytes) -> Reply:
        if len(keys) == 1:
            return self._queue(keys[0]).ask(process, *given)
        answers: list[Reply] = []
        for key, waited_us, how in zip(keys, given[::2], given[1::2], strict=True):
            ask = self._queue(key).ask
            answer = self._redis.pcall(ask, process, waited_us, how)
            answers += NOT_ASKED if isinstance(answer, ReplyError) else answer
        return answers

    def _release_and_notify(
        self, keys: list[bytes], token: bytes, leaving: bytes | None = None
    ) -> Reply:
        return self._queue(keys[0], leaving, *keys[1:]).release(token)

    def _take_turn(self, keys: list[bytes], *given: bytes) -> int:
        return self._queue(keys[0], None, *keys[1:]).take(*given)

    def _look(self, keys: list[bytes], permits: bytes) -> bytes:
        exists, (name,) = self._redis.exists, keys
        return b"".join(
            b"%d" % exists(b"%b%d" % (name, i)) for i in range(int(permits))
        )

    def _leave_queue(self, keys: list[bytes], process: bytes) -> Reply:
        return self._queue(keys[0]).leave(process)

    # --- of numbers -------------------------------------------------------------------

    def _fence_of(self, key: bytes) -> bytes:
        return self.prefix + b"fastredlock:fence:" + key

    def _number(self, keys: list[bytes], proposed: bytes, life_ms: bytes) -> int:
        redis, fence = self._redis, int(proposed)
        for key in keys:
            last = redis.zscore(self._fence_of(key), b"f")
            if last is not None:
                if last >= LARGEST:
                    raise ReplyError(NO_NUMBER)
                fence = max(fence, int(last) + 1)
        for key in keys:
            redis.zadd(self._fence_of(key), fence, b"f")
            redis.pexpire(self._fence_of(key), int(life_ms))
        return fence

    def _take_turn_fenced(self, keys: list[bytes], *given: bytes) -> Reply:
        fence = 0
        if not self._redis.exists(keys[0]):
            fence = self._number(keys[:1], *given[-2:])
        verdict = self._take_turn(keys, *given[:-2])
        return [verdict, 0 if verdict % 2 == 0 else fence]

    def _write_fence(
        self, keys: list[bytes], token: bytes, number: bytes, life_ms: bytes
    ) -> Reply:
        redis = self._redis
        if any(redis.get(key) != token for key in keys):
            return 0
        for key in keys:
            if (redis.zscore(self._fence_of(key), b"f") or 0) < int(number):
                redis.zadd(self._fence_of(key), int(number), b"f")
                redis.pexpire(self._fence_of(key), int(life_ms))
        return 1
