"""The queue of one key: the scripts of `_options/scripts` that know of queues.

They follow those line by line, and their theory is there; `redis` is the keyspace.
"""

from __future__ import annotations

import re
from math import inf

from ._keyspace import Keyspace, ReplyError
from ._pushes import Pushes
from ._replies import Reply

QUEUE_MS, TURN_MS, YOUNG_MS, PAUSE_MS = 60_000, 10_000, 9_950, 300
MOVED, MOVED_MS = b">", 10_000  # the mark that the queue is at the next master
LINGERING = re.compile(rb"~([0-9a-fA-F]+)~")  # a value that names its process
OLD_US = 100_000  # of a first that may be gone
MOST_ASKED = 4  # to look whether it is
MOST_NOTIFIED = 100  # in one call


class Queue:
    """The functions of `scripts._NOTIFY`, and the scripts around them."""

    def __init__(
        self, redis: Keyspace, pushes: Pushes, prefix: bytes, key: bytes,
        leaving: bytes | None, of: bytes | None = None,
    ) -> None:  # fmt: skip
        self._redis, self._pushes = redis, pushes
        self._key, self._leaving = key, leaving
        self._of = of or key  # what its queue is of: of a slot its semaphore
        self._name = prefix + b"fastredlock:queue:" + self._of
        self._turn = prefix + b"fastredlock:turn:" + self._of
        self._channel = prefix + b"fastredlock:waiter:"

    def exists(self) -> bool:
        """Return whether there is something under its name."""
        return bool(self._redis.exists(self._name))

    def _first(self) -> bytes | None:
        head = self._redis.pcall(self._redis.zfirst, self._name)
        return None if isinstance(head, ReplyError) else head

    def _ticket(self, process: bytes, waited_us: int = 0) -> float:
        """Return the ticket of a process, or that of a caller who waits longer."""
        ticket = self._redis.now_us - waited_us
        entered = self._redis.zscore(self._name, process)
        return ticket if entered is None else min(ticket, entered)

    def _call(self, process: bytes, how: bytes) -> int:
        return self._pushes.publish(self._channel + process, how + self._of)

    def _is_notified(self, process: bytes) -> bool:
        score = self._redis.pcall(self._redis.zscore, self._turn, process)
        return isinstance(score, int | float)

    def _is_moved(self) -> bool:
        score = self._redis.pcall(self._redis.zscore, self._name, MOVED)
        return isinstance(score, int | float)

    def _is_late(self, process: bytes) -> bool:
        return self._is_notified(process) and self._redis.pttl(self._turn) <= YOUNG_MS

    def _forget(self) -> None:
        self._redis.pcall(self._redis.zempty, self._turn)

    def _note(self, process: bytes) -> None:
        redis = self._redis
        self._forget()
        if redis.pcall(redis.zadd, self._turn, 0, process) == 1:
            redis.pcall(redis.pexpire, self._turn, TURN_MS)

    def _come(self, process: bytes) -> None:
        if self._is_notified(process):
            self._redis.pcall(self._redis.zrem, self._turn, process)

    def notify(self, asks: bytes | None = None) -> bool:
        """Notify the first of the free lock; drop those that do not hear."""
        has_passed = False
        for _ in range(MOST_NOTIFIED):
            first = self._first()
            if first is None or first == MOVED:
                return False
            is_late = self._is_late(first)
            if first == asks:
                return False
            is_called = first != self._leaving and not is_late
            if is_called and self._pushes.publish(self._channel + first, self._key):
                self._on_notified(first, asks, has_passed)
                return True
            has_passed = has_passed or is_late
            self._redis.pcall(self._redis.zrem, self._name, first)
        return False

    def _on_notified(self, first: bytes, asks: bytes | None, has_passed: bool) -> None:
        redis = self._redis
        if not self._is_notified(first):
            self._note(first)
        order = redis.zrange(self._name)
        if asks is None and order[-1] != first:
            if redis.now_us - self._ticket(first) > OLD_US:
                for process in order[-MOST_ASKED:]:
                    if process != first:
                        self._call(process, b"?")
        elif asks is not None and has_passed:
            for process in order[1 : 1 + MOST_NOTIFIED]:
                if process == asks:
                    break
                redis.pcall(redis.zadd, self._turn, 0, process)
                self._call(process, b"~")

    def ask(self, process: bytes, waited_us: bytes, how: bytes) -> list[Reply]:
        """ASK_TURN, of one key."""
        redis, name = self._redis, self._name
        ticket = redis.now_us - int(waited_us)
        how, _, permits = how.partition(b"#")
        if how == b"4":
            self._move(process)
        if self._is_moved():
            return [4, redis.pttl(name), 0, 0]
        if how == b"2" and not isinstance(redis.pcall(redis.zcard, name), ReplyError):
            redis.pexpire(name, QUEUE_MS)
        redis.zadd(name, ticket, process, nx=how == b"0")
        redis.pexpire(name, QUEUE_MS)
        self._come(process)
        left, whose = redis.pttl(self._key), 0
        slot, expiries = -1, list[int]()
        if permits:
            left, slot, expiries = self._look(int(permits))
        elif left != -2:
            self._recall()
        head = redis.zfirst(name) or process  # it has entered: there is a first
        if left == -2 and head == process and how == b"3":
            self._note(b"~" + process)
            if self._is_notified(b"~" + process):
                redis.pcall(redis.pexpire, self._turn, PAUSE_MS)
        elif (
            left == -2
            and head != process
            and (how == b"3" or self._is_notified(b"~" + head))
        ):
            left = -1
        elif left == -2:
            whose = self._give(process, head)
        elif how == b"0":
            self._drop_before(process)
        count = redis.zcard(name) if whose == 1 else 0
        order = redis.zrange(name)
        place = order.index(process) if process in order else 0
        if permits and whose == 1:
            left = slot
        elif permits and left == 0:
            left = expiries[min(place, len(expiries) - 1)]
            count = max(expiries[0], 1) if expiries[0] >= 0 else -1
        return [whose, left, place, count]

    def _look(self, permits: int) -> tuple[int, int, list[int]]:
        """Return -2 and a slot that is free; or 0, and when they expire."""
        expiries = []
        for i in range(permits):
            slot = (self._redis.now_us % 1_000_000 + i + 1) % permits
            left = self._redis.pttl(b"%b%d" % (self._of, slot))
            if left == -2:
                self._key = b"%b%d" % (self._of, slot)
                return -2, slot, []
            expiries.append(left)
        return 0, -1, sorted(expiries, key=lambda ms: inf if ms < 0 else ms)

    def _recall(self) -> None:
        held = self._redis.pcall(self._redis.get, self._key)
        named = LINGERING.match(held) if isinstance(held, bytes) else None
        if named:
            self._call(named[1], b"!fastredlock:")

    def _move(self, process: bytes) -> None:
        redis, name = self._redis, self._name
        redis.zadd(name, -inf, MOVED)
        redis.pexpire(name, MOVED_MS)
        called = redis.zrange(name)[1:]
        for each in called[:MOST_NOTIFIED]:
            if each != process:
                self._call(each, b"~")
        for each in called:
            redis.zrem(name, each)

    def _give(self, process: bytes, head: bytes) -> int:
        whose = 0
        if head != process and self._is_notified(head) and not self._is_late(head):
            whose = 2
        elif head != process and self.notify(process):
            whose = 3
        if self._redis.zfirst(self._name) == process:
            self._note(process)
            return 1
        return whose

    def _drop_before(self, process: bytes) -> None:
        for _ in range(MOST_NOTIFIED):
            head = self._redis.zfirst(self._name)
            if head is None or head == process:
                break
            is_heard = self._pushes.count(self._channel + head)
            if is_heard and not self._is_late(head):
                break
            self._redis.pcall(self._redis.zrem, self._name, head)

    # --- the other scripts ------------------------------------------------------------

    def release(self, token: bytes) -> int:
        """RELEASE_AND_NOTIFY."""
        redis, held, deleted = self._redis, self._redis.get(self._key), 0
        if held == token:
            deleted = redis.delete(self._key)
        elif held is not None and self._leaving is None:
            return 0
        if not self.exists():
            return deleted
        if self._leaving:
            self._redis.pcall(self._redis.zrem, self._name, self._leaving)
        if self._is_moved():
            return 4 + deleted
        return 3 - deleted if self.notify() else deleted

    def take(
        self, token: bytes, ttl_ms: bytes, process: bytes, waited_us: bytes,
        next_waited_us: bytes, permits: bytes = b"0",
    ) -> int:  # fmt: skip
        """TAKE_TURN."""
        redis, name, head = self._redis, self._name, self._first()
        moved = 4 if head == MOVED else 0
        if (
            not moved
            and head is not None
            and head != process
            and self._ticket(head) < self._ticket(process, int(waited_us))
        ):
            self._come(process)
            if redis.exists(self._key):
                return 0
            self.notify()
            return 2
        if not redis.set(self._key, token, int(ttl_ms), nx=True):
            self._come(process)
            return moved
        self._forget()
        if moved:
            return 5
        if next_waited_us == b"-1":
            redis.pcall(redis.zrem, name, process)
            self._notify_next_slot(int(permits))
            return 1
        ticket = redis.now_us - int(next_waited_us)
        entered = redis.pcall(redis.zadd, name, ticket, process)
        if not isinstance(entered, ReplyError):
            redis.pcall(redis.pexpire, name, QUEUE_MS)
        self._notify_next_slot(int(permits))
        return 3 if self._first() == process else 1

    def _notify_next_slot(self, permits: int) -> None:
        for slot in range(permits):
            key = b"%b%d" % (self._of, slot)
            if not self._redis.exists(key):
                self._key = key
                self.notify()
                return

    def leave(self, process: bytes) -> int:
        """LEAVE_QUEUE."""
        self._recall()
        self._redis.pcall(self._redis.zrem, self._name, process)
        if self._is_notified(process):
            self._come(process)
            self.notify()
        return 1
