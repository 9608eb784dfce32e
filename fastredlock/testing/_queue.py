"""The queues of those who wait at a master in memory: the four scripts of the queue.

They stand here line by line as in `_options/scripts`, which has their theory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .._options import scripts
from ._replies import FIVE, FOUR, ONE, THREE, TWO, ZERO, bulk, push

if TYPE_CHECKING:
    from ._server import Connection, Server

CHANNEL = b"fastredlock:waiter:"
QUEUE_MS, TURN_MS, YOUNG_MS, PAUSE_MS = 60_000, 10_000, 9_950, 300
MOVED, MOVED_MS = b">", 10_000  # the mark that the queue is at the next master
OLD_US = 100_000  # of a first that may be gone
MOST_TOLD = 100  # in one call


class Queue:
    """Of each resource the processes that wait, by their tickets; and who listens."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listeners: dict[bytes, list[Connection]] = {}  # by channel
        self._to_speaker = b""
        self.prefix = b""  # of the names in the script that runs
        self.scripts: dict[bytes, Callable[..., bytes]] = {
            scripts.ASK_TURN_SHA1: self._ask_turns,
            scripts.TAKE_TURN_SHA1: self._take_turn,
            scripts.RELEASE_AND_TELL_SHA1: self._release_and_tell,
            scripts.LEAVE_QUEUE_SHA1: self._leave_queue,
        }
        self.clear()

    def clear(self) -> None:
        """Forget all who wait."""
        self._tickets: dict[bytes, dict[bytes, int]] = {}  # us, by process
        self._until_ms: dict[bytes, int] = {}
        self._turns: dict[bytes, tuple[set[bytes], int]] = {}  # processes, until ms

    def size(self, resource: bytes) -> int:
        """Count the processes that wait."""
        return len(self._queue(resource)) - self._is_moved(resource)

    # --- publish and subscribe --------------------------------------------------------

    def subscribe(self, connection: Connection, channel: bytes) -> bytes:
        """Let a connection listen; return the push that says so."""
        listeners = self._listeners.setdefault(channel, [])
        if connection not in listeners:
            listeners.append(connection)
        return push(b"subscribe", channel, ONE)

    def forget(self, connection: Connection) -> None:
        """Take a connection that is closed from all channels."""
        for listeners in self._listeners.values():
            if connection in listeners:
                listeners.remove(connection)

    def _listening(self, process: bytes) -> list[Connection]:
        channel = self.prefix + CHANNEL + process
        return [each for each in self._listeners.get(channel, ()) if not each.error]

    def _publish(self, process: bytes, text: bytes) -> int:
        listeners = self._listening(process)
        for connection in listeners:
            channel = self.prefix + CHANNEL + process
            message = push(b"message", channel, bulk(text))
            if connection is self._server.speaker:
                self._to_speaker += message
            else:
                connection.inbox += message
        return len(listeners)

    def pushes_to_speaker(self) -> bytes:
        """Take the pushes to the connection whose command published them."""
        pushes, self._to_speaker = self._to_speaker, b""
        return pushes

    # --- the scripts ------------------------------------------------------------------

    def tell(
        self, resource: bytes, leaving: bytes | None = None, asks: bytes | None = None
    ) -> bool:
        """Tell the first that the lock is free; those that do not hear are dropped."""
        has_passed = False
        for _ in range(MOST_TOLD):
            first = self._head(resource)
            if first in (None, MOVED) or first == asks:
                return False
            is_late = self._is_late(resource, first)
            if not (is_late or first == leaving) and self._publish(first, resource) > 0:
                self._on_told(resource, first, asks, has_passed)
                return True
            has_passed = has_passed or is_late
            self._remove(resource, first)
        return False

    def _on_told(
        self, resource: bytes, first: bytes, asks: bytes | None, has_passed: bool
    ) -> None:
        if first not in self._told(resource):
            self._set_turn(resource, first)
        order = self._order(resource)
        if asks is None and order[-1] != first:
            since_us = self._queue(resource)[first]
            if self._server.now_us() - since_us > OLD_US:
                self._publish(order[-1], b"?" + resource)
        elif asks is not None and has_passed:
            for process in order[1 : order.index(asks)][:MOST_TOLD]:
                self._told(resource).add(process)
                self._publish(process, b"~" + resource)

    def _release_and_tell(
        self, keys: list[bytes], token: bytes, process: bytes | None = None
    ) -> bytes:
        (resource,) = keys
        is_free = self._server.token_at(resource) is None
        reply = self._server.release(keys, token)
        if reply != ONE and not is_free and process is None:
            return reply
        if self._is_moved(resource):
            return FIVE if reply == ONE else FOUR
        if not self.tell(resource, process):
            return reply
        return TWO if reply == ONE else THREE

    def _ask_turns(self, keys: list[bytes], process: bytes, *told: bytes) -> bytes:
        answers = b"".join(
            self._ask_turn(resource, process, waited_us, is_new)
            for resource, waited_us, is_new in zip(
                keys, told[::2], told[1::2], strict=True
            )
        )
        return b"*%d\r\n%b" % (4 * len(keys), answers)

    def _ask_turn(
        self, resource: bytes, process: bytes, waited_us: bytes, is_new: bytes
    ) -> bytes:
        if is_new == b"4":
            self._move(resource, process)
        if self._is_moved(resource):
            left_ms = self._until_ms[resource] - self._server.now_ms()
            return b":4\r\n:%d\r\n:0\r\n:0\r\n" % left_ms
        queue = self._queue(resource)
        if is_new != b"0" or process not in queue:
            queue[process] = self._server.now_us() - int(waited_us)
        self._keep(resource, queue)
        self._come(resource, process)
        left_ms, whose = self._server.left_ms(resource), 0
        head = self._head(resource)
        if left_ms == -2 and head == process and is_new == b"3":
            self._set_turn(resource, b"~" + head, PAUSE_MS)
        elif (
            left_ms == -2
            and head is not None
            and head != process
            and (is_new == b"3" or b"~" + head in self._told(resource))
        ):
            left_ms = -1
        elif left_ms == -2:
            if head != process:
                told = self._told(resource)
                if head in told and not self._is_late(resource, head):
                    whose = 2
                elif self.tell(resource, asks=process):
                    whose = 3
            if self._head(resource) == process:
                self._set_turn(resource, process)
                whose = 1
        elif is_new == b"0":
            while (head := self._head(resource)) is not None and head != process:
                if self._listening(head) and not self._is_late(resource, head):
                    break
                self._remove(resource, head)
        order = self._order(resource)
        place = order.index(process) if process in order else 0
        count = len(order) if whose == 1 else 0
        return b":%d\r\n:%d\r\n:%d\r\n:%d\r\n" % (whose, left_ms, place, count)

    def _take_turn(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes, process: bytes,
        waited_us: bytes, next_waited_us: bytes,
    ) -> bytes:  # fmt: skip
        (resource,) = keys
        server, now_us = self._server, self._server.now_us()
        queue, head = self._queue(resource), self._head(resource)
        is_moved = head == MOVED
        if head is not None and head != process and not is_moved:
            ticket = queue.get(process, now_us - int(waited_us))
            if queue[head] < ticket:
                self._come(resource, process)
                if server.token_at(resource) is not None:
                    return ZERO
                self.tell(resource)
                return TWO
        if server.token_at(resource) is not None:
            self._come(resource, process)
            return FOUR if is_moved else ZERO
        server.put(resource, token, int(ttl_ms) or None)
        self._turns.pop(resource, None)
        if is_moved:
            return FIVE
        if next_waited_us == b"-1":
            self._remove(resource, process)
            return ONE
        queue[process] = now_us - int(next_waited_us)
        self._keep(resource, queue)
        return THREE if self._head(resource) == process else ONE

    def _leave_queue(self, keys: list[bytes], process: bytes) -> bytes:
        (resource,) = keys
        self._remove(resource, process)
        if process in self._told(resource):
            self._come(resource, process)
            self.tell(resource)
        return ONE

    # --- the sorted sets --------------------------------------------------------------

    def _queue(self, resource: bytes) -> dict[bytes, int]:
        if self._server.now_ms() > self._until_ms.get(resource, 0):
            self._tickets.pop(resource, None)
        return self._tickets.get(resource, {})

    def _keep(self, resource: bytes, queue: dict[bytes, int]) -> None:
        self._tickets[resource] = queue
        self._until_ms[resource] = self._server.now_ms() + QUEUE_MS

    def _is_moved(self, resource: bytes) -> bool:
        return MOVED in self._queue(resource)

    def _move(self, resource: bytes, process: bytes) -> None:
        called = [each for each in self._order(resource) if each != MOVED][:MOST_TOLD]
        self._tickets[resource] = {MOVED: -1}
        self._until_ms[resource] = self._server.now_ms() + MOVED_MS
        for each in called:
            if each != process:
                self._publish(each, b"~" + resource)

    def _order(self, resource: bytes) -> list[bytes]:
        queue = self._queue(resource)
        return sorted(queue, key=lambda process: (queue[process], process))

    def _head(self, resource: bytes) -> bytes | None:
        order = self._order(resource)
        return order[0] if order else None

    def _remove(self, resource: bytes, process: bytes) -> None:
        self._queue(resource).pop(process, None)

    def _told(self, resource: bytes) -> set[bytes]:
        processes, until_ms = self._turns.get(resource, (set(), 0))
        return processes if self._server.now_ms() <= until_ms else set()

    def _is_late(self, resource: bytes, head: bytes) -> bool:
        if head not in self._told(resource):
            return False
        return self._turns[resource][1] - self._server.now_ms() <= YOUNG_MS

    def _set_turn(self, resource: bytes, process: bytes, for_ms: int = TURN_MS) -> None:
        self._turns[resource] = {process}, self._server.now_ms() + for_ms

    def _come(self, resource: bytes, process: bytes) -> None:
        self._told(resource).discard(process)
