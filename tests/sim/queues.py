"""The queues of a model Redis: those who wait at one master, and who listens to it.

The scripts of the queue stand here line by line as in _options/scripts; what they
say is checked against a real server in test_queues.py. A script that has written may go
on writing, as redis/src/script.c has it (SCRIPT_WRITE_DIRTY).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastredlock._options import fence_scripts, scripts

from .replies import (
    FIVE,
    FOUR,
    ONE,
    THREE,
    TWO,
    WRITES_REFUSED,
    WRONG_TYPE,
    ZERO,
    bulk,
)

if TYPE_CHECKING:
    from .network import Connection
    from .server import Server

QUEUE, TURN = b"fastredlock:queue:", b"fastredlock:turn:"
CHANNEL = b"fastredlock:waiter:"
QUEUE_MS, TURN_MS, YOUNG_MS, PAUSE_MS = 60_000, 10_000, 9_950, 300
MOVED, MOVED_MS = b">", 10_000  # the mark that the queue is at the next master
OLD_US = 100_000  # of a first that may be gone
NEVER_MS = 1 << 62
MOST_TOLD = 100  # in one call


def message_of(channel: bytes, text: bytes) -> bytes:
    """Encode what a subscriber is sent."""
    return b">3\r\n" + bulk(b"message") + bulk(channel) + bulk(text)


class Queues:
    """The queues of one server, and the connections that have subscribed."""

    def __init__(self, server: Server) -> None:
        self.speaker: Connection | None = None  # whose command is executed
        self._server = server
        self._tickets: dict[bytes, dict[bytes, int]] = {}  # resource: process: us
        self._until_ms: dict[bytes, int] = {}  # of a queue's key
        self._turns: dict[bytes, tuple[set[bytes], int]] = {}  # processes, until ms
        self._listeners: dict[bytes, list[Connection]] = {}  # by channel
        self._to_speaker: list[bytes] = []
        self._has_written = False
        self._scripts: dict[bytes, Callable[..., bytes]] = {
            scripts.ASK_TURN_SHA1: self._ask_turn,
            scripts.TAKE_TURN_SHA1: self._take_turn,
            scripts.RELEASE_AND_TELL_SHA1: self._release_and_tell,
            scripts.LEAVE_QUEUE_SHA1: self._leave_queue,
        }
        self._around = {fence_scripts.TAKE_TURN_SHA1: self._take_turn}

    # --- what others see and do -------------------------------------------------------

    def content(self, resource: bytes) -> list[tuple[bytes, int]]:
        """Return (process, ticket) of those who wait, the first one first."""
        queue = self._queue(resource) or {}
        waiting = [entry for entry in queue.items() if entry[0] != MOVED]
        return sorted(waiting, key=lambda entry: (entry[1], entry[0]))

    def is_moved(self, resource: bytes) -> bool:
        """Whether the mark is here that the queue is at the next master."""
        return MOVED in (self._queue(resource) or {})

    def size(self, resource: bytes) -> int:
        """Count those who wait; -1 where the key is of another type."""
        return -1 if self._is_of_another_type(resource) else len(self.content(resource))

    def stands(self, key: bytes) -> bool:
        """Return whether a queue, or a lock of its name, stands under a key."""
        resource = key.removeprefix(QUEUE)
        return self.size(resource) != 0 or self.is_moved(resource)

    def move(self, resource: bytes, process: bytes) -> None:
        """Mark a queue as moved; call all that were entered but this process."""
        called = self.content(resource)[:MOST_TOLD]
        self._tickets[resource] = {MOVED: 0}
        self._until_ms[resource] = self._server.wall_ms() + MOVED_MS
        for each, _ in called:
            if each != process:
                self.publish(CHANNEL + each, b"~" + resource)

    def resources(self) -> list[bytes]:
        """List the resources that have a queue."""
        return list(self._tickets)

    def channels(self) -> list[bytes]:
        """List the channels that somebody listens to."""
        return list(self._listeners)

    def lose(self, resource: bytes) -> None:
        """Delete a queue's key."""
        self._tickets.pop(resource, None)
        self._until_ms.pop(resource, None)

    def told(self, resource: bytes) -> set[bytes]:
        """Return the processes that were told last that the lock is free."""
        processes, until_ms = self._turns.get(resource, (set(), 0))
        if self._server.wall_ms() > until_ms:
            self._turns.pop(resource, None)
            return set()
        is_of_another_type = self._server.token_at(TURN + resource) is not None
        return set() if is_of_another_type else processes

    def set_left(self, resource: bytes, left_ms: int) -> None:
        """Give the note of who was told another ttl, where there is one."""
        if told := self.told(resource):
            self._turns[resource] = told, self._server.wall_ms() + left_ms

    def forget_told(self, resource: bytes) -> None:
        """Delete the note of who was told."""
        self._turns.pop(resource, None)

    def stop(self, is_losing: bool) -> None:
        """End the process of the server; with its keys where is_losing."""
        self._listeners.clear()
        if is_losing:
            self._turns.clear()
            self._tickets.clear()
            self._until_ms.clear()

    def subscribe(self, connection: Connection, channel: bytes) -> bytes:
        """Let a connection listen; return the push that says so."""
        listeners = self._listeners.setdefault(channel, [])
        if connection not in listeners:
            listeners.append(connection)
        return b">3\r\n" + bulk(b"subscribe") + bulk(channel) + ONE

    def forget(self, connection: Connection) -> None:
        """Take a connection that is closed from all channels."""
        for channel, listeners in tuple(self._listeners.items()):
            if connection in listeners:
                listeners.remove(connection)
            if not listeners:
                del self._listeners[channel]

    def publish(self, channel: bytes, text: bytes) -> int:
        """Send a message; return how many connections were sent it."""
        listeners = self._listeners.get(channel, [])
        for connection in listeners:
            push = message_of(channel, text)
            if connection is self.speaker:
                self._to_speaker.append(push)
            else:
                connection.answer(None, push)
        return len(listeners)

    def pushes_to_speaker(self) -> list[bytes]:
        """Take the pushes to the connection whose command published them."""
        pushes, self._to_speaker = self._to_speaker, []
        return pushes

    # --- the scripts ------------------------------------------------------------------

    def knows(self, digest: bytes) -> bool:
        """Whether this is a script of the queue."""
        return digest in self._scripts

    def run(self, digest: bytes, keys: list[bytes], arguments: list[bytes]) -> bytes:
        """Run one of the four scripts; return its reply."""
        self._has_written = False
        if len(keys) > 1:
            return self._ask_turns(keys, *arguments)
        return self._scripts[digest](keys[0], *arguments)

    def run_as(
        self, digest: bytes, resource: bytes, arguments: list[bytes], has_written: bool
    ) -> bytes:
        """Run the script that another one, of this hash, is around."""
        self._has_written = has_written
        return self._around[digest](resource, *arguments)

    def _tell(
        self, resource: bytes, leaving: bytes | None = None, asks: bytes | None = None
    ) -> bool:
        has_passed = False
        for _ in range(MOST_TOLD):
            first = self._head(resource)
            if first is None or first == asks:
                return False
            is_late = self._is_late(resource, first)
            if not (is_late or first == leaving) and (
                self.publish(CHANNEL + first, resource) > 0
            ):
                self._on_told(resource, first, asks, has_passed)
                return True
            has_passed = has_passed or is_late
            self._remove(resource, first)
        return False

    def _on_told(
        self, resource: bytes, first: bytes, asks: bytes | None, has_passed: bool
    ) -> None:
        if first not in self.told(resource):
            self._set_turn(resource, first)
        content = self.content(resource)
        if asks is None and content[-1][0] != first:
            if self._now_us() - content[0][1] > OLD_US:
                self.publish(CHANNEL + content[-1][0], b"?" + resource)
        elif asks is not None and has_passed:
            for process, _ in content[1 : 1 + MOST_TOLD]:
                if process == asks:
                    break
                if not self._is_refused(needs_memory=True):
                    self.told(resource).add(process)
                self.publish(CHANNEL + process, b"~" + resource)

    def _is_late(self, resource: bytes, head: bytes) -> bool:
        if head not in self.told(resource):
            return False
        return self._turns[resource][1] - self._server.wall_ms() <= YOUNG_MS

    def _come(self, resource: bytes, process: bytes) -> None:
        told = self.told(resource)
        if process in told and not self._is_refused(needs_memory=False):
            told.discard(process)

    def _release_and_tell(
        self, resource: bytes, token: bytes, process: bytes | None = None
    ) -> bytes:
        is_free = self._server.token_at(resource) is None
        reply = self._server.release([resource], token)
        if reply != ONE and not (reply == ZERO and (is_free or process is not None)):
            return reply
        self._has_written = self._has_written or reply == ONE
        if self.is_moved(resource):
            return FIVE if reply == ONE else FOUR
        if self._head(resource) is None:
            return reply
        if not self._tell(resource, process):
            return reply
        return TWO if reply == ONE else THREE

    def release_all(self, keys: list[bytes], token: bytes) -> bytes:
        """Release several keys, and tell the first of each queue that is kept here."""
        held = [key for key in keys if self._server.token_at(key) is not None]
        reply = self._server.release(keys, token)
        if reply not in (ONE, ZERO):
            return reply
        free = [key for key in keys if self._server.token_at(key) is None]
        self._has_written = any(key in free for key in held)
        for key in free:
            self._tell(key)
        return reply

    def _ask_turn(
        self, resource: bytes, process: bytes, waited_us: bytes, is_new: bytes
    ) -> bytes:
        if self._is_refused(needs_memory=True):
            return self._server.refuses
        if self._is_of_another_type(resource):
            return WRONG_TYPE
        if is_new == b"4":
            self.move(resource, process)
        if self.is_moved(resource):
            left_ms = self._until_ms[resource] - self._server.wall_ms()
            return b"*4\r\n:4\r\n:%d\r\n:0\r\n:0\r\n" % left_ms
        queue = self._tickets.get(resource, {}) if self._queue(resource) else {}
        if is_new != b"0" or process not in queue:
            queue[process] = self._now_us() - int(waited_us)
        self._tickets[resource] = queue
        self._until_ms[resource] = self._server.wall_ms() + QUEUE_MS
        self._come(resource, process)
        left_ms, whose, head = self._left_ms(resource), 0, self._head(resource)
        if left_ms == -2 and head == process and is_new == b"3":
            self._set_turn(resource, b"~" + head, PAUSE_MS)
        elif (
            left_ms == -2
            and head is not None
            and head != process
            and (is_new == b"3" or b"~" + head in self.told(resource))
        ):
            left_ms = -1
        elif left_ms == -2:
            if head != process:
                told = self.told(resource)
                if head in told and not self._is_late(resource, head):
                    whose = 2
                elif self._tell(resource, asks=process):
                    whose = 3
            if self._head(resource) == process:
                self._set_turn(resource, process)
                whose = 1
        elif is_new == b"0":
            while (head := self._head(resource)) not in (None, process):
                is_heard = self._listeners.get(CHANNEL + head)
                if is_heard and not self._is_late(resource, head):
                    break
                self._remove(resource, head)
        order = [each for each, _ in self.content(resource)]
        place = order.index(process) if process in order else 0
        return b"*4\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n" % (
            whose, left_ms, place, len(order) if whose == 1 else 0,
        )  # fmt: skip

    def _ask_turns(self, keys: list[bytes], process: bytes, *told: bytes) -> bytes:
        answers = b""
        for resource, waited_us, is_new in zip(
            keys, told[::2], told[1::2], strict=True
        ):
            answer = self._ask_turn(resource, process, waited_us, is_new)
            is_done = answer.startswith(b"*4\r\n")
            answers += answer[4:] if is_done else b":-1\r\n:-2\r\n:0\r\n:0\r\n"
        return b"*%d\r\n%b" % (4 * len(keys), answers)

    def _take_turn(
        self, resource: bytes, token: bytes, ttl_ms: bytes, process: bytes,
        waited_us: bytes, next_waited_us: bytes,
    ) -> bytes:  # fmt: skip
        server, now_us, head = self._server, self._now_us(), self._head(resource)
        is_moved = self.is_moved(resource)
        if head is not None and head != process:
            queue = self._tickets[resource]
            ticket = queue.get(process, now_us - int(waited_us))
            if queue[head] < ticket:
                self._come(resource, process)
                if server.token_at(resource) is not None:
                    return ZERO
                self._tell(resource)
                return TWO
        if self._is_refused(needs_memory=True):
            return server.refuses
        if server.token_at(resource) is not None:
            self._come(resource, process)
            return FOUR if is_moved else ZERO
        until_ms = server.wall_ms() + int(ttl_ms) if int(ttl_ms) else NEVER_MS
        server.keys[resource] = (token, until_ms)
        self._forget_turn(resource)
        if is_moved:
            return FIVE
        if next_waited_us == b"-1":
            self._remove(resource, process)
            return ONE
        if self._is_of_another_type(resource):
            return ONE
        if self._queue(resource) is None:
            self._tickets[resource] = {}
        self._tickets[resource][process] = now_us - int(next_waited_us)
        self._until_ms[resource] = server.wall_ms() + QUEUE_MS
        return THREE if self._head(resource) == process else ONE

    def _leave_queue(self, resource: bytes, process: bytes) -> bytes:
        self._remove(resource, process)
        if process in self.told(resource):
            self._come(resource, process)
            self._tell(resource)
        return ONE

    # --- the commands in them ---------------------------------------------------------

    def _is_refused(self, needs_memory: bool) -> bool:
        # A write, by what the server refuses now; it is allowed behind another write.
        refuses = self._server.refuses
        is_meant = refuses == WRITES_REFUSED or (refuses and needs_memory)
        if is_meant and not self._has_written:
            return True
        self._has_written = True
        return False

    def _now_us(self) -> int:
        return self._server.clock.read(self._server.world.now_ns) // 1000

    def _is_of_another_type(self, resource: bytes) -> bool:
        return self._server.token_at(QUEUE + resource) is not None

    def _queue(self, resource: bytes) -> dict[bytes, int] | None:
        queue = self._tickets.get(resource)
        if queue and self._server.wall_ms() > self._until_ms[resource]:
            self.lose(resource)
            return None
        if self._is_of_another_type(resource):
            return None
        return queue or None

    def _head(self, resource: bytes) -> bytes | None:
        content = self.content(resource)
        return content[0][0] if content else None

    def _remove(self, resource: bytes, process: bytes) -> None:
        queue = self._queue(resource)
        if self._is_refused(needs_memory=False) or queue is None:
            return
        queue.pop(process, None)
        if not queue:
            self.lose(resource)

    def _set_turn(self, resource: bytes, process: bytes, for_ms: int = TURN_MS) -> None:
        self._forget_turn(resource)
        is_of_another_type = self._server.token_at(TURN + resource) is not None
        if not self._is_refused(needs_memory=True) and not is_of_another_type:
            self._turns[resource] = {process}, self._server.wall_ms() + for_ms

    def _forget_turn(self, resource: bytes) -> None:
        if not self._is_refused(needs_memory=False):
            self._turns.pop(resource, None)

    def _left_ms(self, key: bytes) -> int:
        if self._server.token_at(key) is None:
            return -2
        until_ms = self._server.keys[key][1]
        return -1 if until_ms == NEVER_MS else until_ms - self._server.wall_ms()
