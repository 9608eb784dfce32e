"""The scripts of `_options/scripts` and `_options/fence_scripts`, as functions.

They stand here line by line as there, where their theory is; `redis` is the keyspace.
One test compares the replies, the messages and the keys with those of real servers,
over random sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from .._options import fence_scripts, scripts
from ._keyspace import Keyspace, ReplyError
from ._replies import Reply

if TYPE_CHECKING:
    from ._pushes import Pushes

LONGEST_TOKEN = 262_144
QUEUE_MS, TURN_MS, YOUNG_MS, PAUSE_MS = 60_000, 10_000, 9_950, 300
MOVED, MOVED_MS = b">", 10_000  # the mark that the queue is at the next master
OLD_US = 100_000  # of a first that may be gone
MOST_TOLD = 100  # in one call
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
            scripts.PROBE_CALL_SHA1: lambda keys: 1,
            scripts.MARKER_SHA1: self._marker,
            scripts.RELEASE_AND_TELL_SHA1: self._release_and_tell,
            scripts.ASK_TURN_SHA1: self._ask_turn,
            scripts.TAKE_TURN_SHA1: self._take_turn,
            scripts.LEAVE_QUEUE_SHA1: self._leave_queue,
            fence_scripts.ACQUIRE_ALL_SHA1: self._acquire_all,
            fence_scripts.ACQUIRE_AGAIN_SHA1: self._acquire_again,
            fence_scripts.TAKE_TURN_SHA1: self._take_turn_fenced,
            fence_scripts.WRITE_FENCE_SHA1: self._write_fence,
            fence_scripts.NEXT_FENCE_SHA1: self._next_fence,
            fence_scripts.PROBE_SHA1: self._probe_fenced,
        }

    # --- of locks ---------------------------------------------------------------------

    def _release(self, keys: list[bytes], token: bytes) -> Reply:
        (key,) = keys
        return self._redis.delete(key) if self._redis.get(key) == token else 0

    def _extend(self, keys: list[bytes], token: bytes, ttl_ms: bytes) -> Reply:
        redis, (key,) = self._redis, keys
        return redis.pexpire(key, int(ttl_ms)) if redis.get(key) == token else 0

    def _inspect(self, keys: list[bytes], *_: bytes) -> Reply:
        redis, (key,) = self._redis, keys
        value = redis.get(key)
        told = None if value is None else b"=" + value.replace(b"\n", b"\n=")
        if value is not None and len(value) > LONGEST_TOKEN:
            told = b"#%d" % len(value)
        waiting = redis.pcall(
            redis.zcount_finite, self.prefix + b"fastredlock:queue:" + key
        )
        if isinstance(waiting, ReplyError):
            waiting = -1
        return [told, redis.pttl(key), waiting]

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
        if any(redis.pcall(redis.get, key) != token for key in keys):
            return 0
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
            if redis.exists(queue.name):
                queue.tell()
        return answer

    def _probe(self, keys: list[bytes]) -> list[bytes]:
        redis, name = self._redis, self.prefix + b"fastredlock:probe"
        said = redis.pcall(redis.get, name), redis.pcall(redis.delete, name)
        return [each.text() for each in said if isinstance(each, ReplyError)]

    def _probe_fenced(self, keys: list[bytes]) -> Reply:
        redis, name = self._redis, self.prefix + b"fastredlock:probe"
        refused = self._probe(keys)
        said = (
            redis.pcall(redis.zscore, name, b"f"),
            redis.pcall(redis.check_write, True),  # ZADD XX
            redis.pcall(redis.pexpire, name, 1),
        )
        numbers = [each.text() for each in said if isinstance(each, ReplyError)]
        return [*refused, *(b"fencing: " + text for text in numbers)]

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

    def _queue(self, key: bytes, leaving: bytes | None = None) -> Queue:
        return Queue(self._redis, self._pushes, self.prefix, key, leaving)

    def _release_and_tell(
        self, keys: list[bytes], token: bytes, leaving: bytes | None = None
    ) -> Reply:
        redis, (key,) = self._redis, keys
        held, deleted = redis.get(key), 0
        if held == token:
            deleted = redis.delete(key)
        elif held is not None and leaving is None:
            return 0
        queue = self._queue(key, leaving)
        if not redis.exists(queue.name):
            return deleted
        if queue.is_moved():
            return 4 + deleted
        return 3 - deleted if queue.tell() else deleted

    def _ask_turn(self, keys: list[bytes], process: bytes, *given: bytes) -> Reply:
        if len(keys) == 1:
            return self._queue(keys[0]).ask(process, *given)
        answers: list[Reply] = []
        for key, waited_us, how in zip(keys, given[::2], given[1::2], strict=True):
            ask = self._queue(key).ask
            answer = self._redis.pcall(ask, process, waited_us, how)
            answers += NOT_ASKED if isinstance(answer, ReplyError) else answer
        return answers

    def _take_turn(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes, process: bytes,
        waited_us: bytes, next_waited_us: bytes,
    ) -> int:  # fmt: skip
        redis, (key,) = self._redis, keys
        queue = self._queue(key)
        head, name = queue.first(), queue.name
        moved = 4 if head == MOVED else 0
        if (
            not moved
            and head is not None
            and head != process
            and queue.ticket(head) < queue.ticket(process, int(waited_us))
        ):
            queue.come(process)
            if redis.exists(key):
                return 0
            queue.tell()
            return 2
        if not redis.set(key, token, int(ttl_ms), nx=True):
            queue.come(process)
            return moved
        queue.forget()
        if moved:
            return 5
        if next_waited_us == b"-1":
            redis.pcall(redis.zrem, name, process)
            return 1
        ticket = redis.now_us - int(next_waited_us)
        entered = redis.pcall(redis.zadd, name, ticket, process)
        if not isinstance(entered, ReplyError):
            redis.pcall(redis.pexpire, name, QUEUE_MS)
        return 3 if queue.first() == process else 1

    def _leave_queue(self, keys: list[bytes], process: bytes) -> Reply:
        queue = self._queue(*keys)
        self._redis.pcall(self._redis.zrem, queue.name, process)
        if queue.is_told(process):
            queue.come(process)
            queue.tell()
        return 1

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
            fence = self._number(keys, *given[5:])
        said = self._take_turn(keys, *given[:5])
        return [said, 0 if said % 2 == 0 else fence]

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

    def _next_fence(self, keys: list[bytes], token: bytes, *number: bytes) -> Reply:
        return self._number(keys, *number) if self._redis.get(keys[0]) == token else 0


class Queue:
    """The queue of one key: the functions of `scripts._TELL`, and ASK_TURN."""

    def __init__(
        self, redis: Keyspace, pushes: Pushes, prefix: bytes, key: bytes,
        leaving: bytes | None,
    ) -> None:  # fmt: skip
        self._redis, self._pushes = redis, pushes
        self._key, self._leaving = key, leaving
        self.name = prefix + b"fastredlock:queue:" + key
        self._turn = prefix + b"fastredlock:turn:" + key
        self._channel = prefix + b"fastredlock:waiter:"

    def first(self) -> bytes | None:
        """Return the first of the queue, None also where it is no queue."""
        head = self._redis.pcall(self._redis.zfirst, self.name)
        return None if isinstance(head, ReplyError) else head

    def ticket(self, process: bytes, waited_us: int = 0) -> float:
        """Return the ticket of a process, or that of one who has waited so long."""
        ticket = self._redis.zscore(self.name, process)
        return self._redis.now_us - waited_us if ticket is None else ticket

    def _call(self, process: bytes, how: bytes) -> int:
        return self._pushes.publish(self._channel + process, how + self._key)

    def is_told(self, process: bytes) -> bool:
        """Return whether a process has a turn, and has not come."""
        score = self._redis.pcall(self._redis.zscore, self._turn, process)
        return isinstance(score, int | float)

    def is_moved(self) -> bool:
        """Return whether the queue is at the next master."""
        score = self._redis.pcall(self._redis.zscore, self.name, MOVED)
        return isinstance(score, int | float)

    def _is_late(self, process: bytes) -> bool:
        return self.is_told(process) and self._redis.pttl(self._turn) <= YOUNG_MS

    def forget(self) -> None:
        """Delete the note of who was told."""
        self._redis.pcall(self._redis.zempty, self._turn)

    def _note(self, process: bytes) -> None:
        redis = self._redis
        self.forget()
        if redis.pcall(redis.zadd, self._turn, 0, process) == 1:
            redis.pcall(redis.pexpire, self._turn, TURN_MS)

    def come(self, process: bytes) -> None:
        """Note that a process has come."""
        if self.is_told(process):
            self._redis.pcall(self._redis.zrem, self._turn, process)

    def tell(self, asks: bytes | None = None) -> bool:
        """Tell the first that the lock is free; drop those that do not hear."""
        has_passed = False
        for _ in range(MOST_TOLD):
            first = self.first()
            if first is None or first == MOVED:
                return False
            is_late = self._is_late(first)
            if first == asks:
                return False
            is_called = first != self._leaving and not is_late
            if is_called and self._call(first, b"") > 0:
                self._on_told(first, asks, has_passed)
                return True
            has_passed = has_passed or is_late
            self._redis.pcall(self._redis.zrem, self.name, first)
        return False

    def _on_told(self, first: bytes, asks: bytes | None, has_passed: bool) -> None:
        redis = self._redis
        if not self.is_told(first):
            self._note(first)
        order = redis.zrange(self.name)
        if asks is None and order[-1] != first:
            if redis.now_us - self.ticket(first) > OLD_US:
                self._call(order[-1], b"?")
        elif asks is not None and has_passed:
            for process in order[1 : 1 + MOST_TOLD]:
                if process == asks:
                    break
                redis.pcall(redis.zadd, self._turn, 0, process)
                self._call(process, b"~")

    def ask(self, process: bytes, waited_us: bytes, how: bytes) -> list[Reply]:
        """Do ASK_TURN for this key."""
        redis, name = self._redis, self.name
        ticket = redis.now_us - int(waited_us)
        if how == b"4":
            self._move(process)
        if self.is_moved():
            return [4, redis.pttl(name), 0, 0]
        if how == b"2" and not isinstance(redis.pcall(redis.zcard, name), ReplyError):
            redis.pexpire(name, QUEUE_MS)
        redis.zadd(name, ticket, process, nx=how == b"0")
        redis.pexpire(name, QUEUE_MS)
        self.come(process)
        left, whose = redis.pttl(self._key), 0
        head = redis.zfirst(name) or process  # it has entered: there is a first
        if left == -2 and head == process and how == b"3":
            self._note(b"~" + process)
            if self.is_told(b"~" + process):
                redis.pcall(redis.pexpire, self._turn, PAUSE_MS)
        elif (
            left == -2
            and head != process
            and (how == b"3" or self.is_told(b"~" + head))
        ):
            left = -1
        elif left == -2:
            whose = self._give(process, head)
        elif how == b"0":
            self._drop_before(process)
        count = redis.zcard(name) if whose == 1 else 0
        order = redis.zrange(name)
        return [whose, left, order.index(process) if process in order else 0, count]

    def _move(self, process: bytes) -> None:
        redis, name = self._redis, self.name
        redis.zadd(name, -inf, MOVED)
        redis.pexpire(name, MOVED_MS)
        called = redis.zrange(name)[1:]
        for each in called[:MOST_TOLD]:
            if each != process:
                self._call(each, b"~")
        for each in called:
            redis.zrem(name, each)

    def _give(self, process: bytes, head: bytes) -> int:
        whose = 0
        if head != process and self.is_told(head) and not self._is_late(head):
            whose = 2
        elif head != process and self.tell(process):
            whose = 3
        if self._redis.zfirst(self.name) == process:
            self._note(process)
            return 1
        return whose

    def _drop_before(self, process: bytes) -> None:
        for _ in range(MOST_TOLD):
            head = self._redis.zfirst(self.name)
            if head is None or head == process:
                break
            is_heard = self._pushes.count(self._channel + head)
            if is_heard and not self._is_late(head):
                break
            self._redis.pcall(self._redis.zrem, self.name, head)
