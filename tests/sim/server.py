"""A model Redis in the simulated world: the model server, and what goes wrong with it.

`fastredlock.testing._model` answers whole commands in the order they came. Here is the
rest: a paused one answers later, a restarted one is another process with another
run_id, without its scripts, and without its keys if they are lost; an old one has no
HELLO; an ACL refuses commands; a broken one deletes any token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hiredis import Reader

from fastredlock._options import scripts
from fastredlock.testing._model import Model

from .question import RELEASE
from .world import FOREVER_NS, Clock, World

if TYPE_CHECKING:
    from .judge import Judge
    from .network import Connection
    from .question import Question

INCOMPLETE = object()

WRITES_REFUSED = b"-MISCONF Redis is configured to save RDB snapshots\r\n"
SETS_REFUSED = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
DELIFEQ, DELEX = b"DELIFEQ", b"DELEX"
NATIVE = frozenset((DELIFEQ, DELEX))
VOTER = b"fastredlock:voter"
OWN = b"fastredlock:"
QUEUE, TURN = b"fastredlock:queue:", b"fastredlock:turn:"
CHANNEL = b"fastredlock:waiter:"
MOVED = b">"  # the mark that a queue is at the next master
UNKNOWN_HELLO = b"-ERR unknown command 'HELLO'\r\n"
FORBIDDEN = b"-NOPERM User default has no permissions to run the command\r\n"


class Server:
    """One master as its clients see it."""

    def __init__(self, world: World, index: int, clock: Clock, judge: Judge) -> None:
        self.world = world
        self.index = index
        self.clock = clock
        self.judge = judge
        self.model = Model()
        self.is_old = False  # before Redis 6: no HELLO
        self.is_without_queues = False  # its ACL forbids SUBSCRIBE
        self.is_native_forbidden = False  # by its ACL, which SET ... IFEQ is not
        self.is_exists_forbidden = False  # by its ACL
        self.is_down = False
        self.is_compare_broken = False  # release deletes whatever is there
        self.paused_until_ns = 0
        self.calm_from_ns = 0  # nothing has been wrong with it since
        self.connections: list[Connection] = []
        self._waiting: list[tuple[Connection, bytes]] = []  # b"": it is closed
        self._starts = 0
        self.age_s = 0  # of the process that starts next
        self.start()

    @property
    def refuses(self) -> bytes:
        """An error reply to writes; or, of memory, to those that need it."""
        return self.model.keys.writes_refused or self.model.keys.memory_refused

    def refuse(self, reply: bytes) -> None:
        """Refuse so from now on, b"" nothing."""
        self.model.keys.writes_refused = reply if reply == WRITES_REFUSED else b""
        self.model.keys.memory_refused = reply if reply == SETS_REFUSED else b""

    def now_us(self) -> int:
        """Read the wall clock, by which keys expire."""
        return self.clock.read(self.world.now_ns) // 1000

    def start(self) -> None:
        self._starts += 1
        run_id = b"%020x%020x" % (self.index, self._starts)
        self.model.start(run_id, self.now_us() // 1_000_000 - self.age_s)
        self.age_s = 0
        self.is_down = False
        calm_ns = max(self.paused_until_ns, self.world.now_ns)
        self.calm_from_ns = FOREVER_NS if self.refuses else calm_ns

    def stop(self, is_losing: bool) -> None:
        self.world.tell(f"server {self.index} stops, loses keys: {is_losing}")
        self.is_down = True
        self.calm_from_ns = FOREVER_NS
        self._waiting.clear()
        for connection in self.connections:
            connection.on_server_stopped()
        self.connections.clear()
        if is_losing:
            self.model.keys.clear()

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
            self.model.forget(connection)
            return
        reader = connection.reader
        reader.feed(data)
        while (words := reader.gets()) is not INCOMPLETE:
            if connection in self.model.killed:
                return
            question = self.judge.on_command(connection, words)
            reply = self._refusal(words) or self._execute(connection, question, words)
            if question is not None:
                self.judge.on_executed(connection, question, reply)
            self._answer(connection, question, reply)

    def _refusal(self, words: list[bytes]) -> bytes:
        name = words[0]
        if name == b"HELLO":
            return UNKNOWN_HELLO if self.is_old else b""
        is_forbidden = self.is_without_queues and name == b"SUBSCRIBE"
        is_forbidden |= self.is_exists_forbidden and name == b"EXISTS"
        if is_forbidden or (self.is_native_forbidden and name == self.model.native):
            return FORBIDDEN
        return b""

    def _execute(
        self, connection: Connection, question: Question | None, words: list[bytes]
    ) -> bytes:
        if self.is_compare_broken and question is not None and question[0] == RELEASE:
            self._give_away(words, question[1])
        if words[0] == b"CLIENT" and words[1] == b"KILL":
            self.world.tell(f"server {self.index} kills client {words[3]!r}")
        return self.model.execute(words, connection, self.now_us())

    def _give_away(self, words: list[bytes], token: bytes) -> None:
        # Whatever is there gets the token that is released.
        is_script = words[0] not in NATIVE
        for key in words[3 : 3 + int(words[2])] if is_script else words[1:2]:
            if self.token_at(key) is not None:
                self.put(key, token)

    def _answer(
        self, connection: Connection, question: Question | None, reply: bytes
    ) -> None:
        # A push to the connection that caused it comes before the reply, or, from
        # Redis 7.2 on, behind it.
        pushes = self.model.pushes.take()
        own = [push for receiver, push in pushes if receiver is connection]
        is_behind = not own or self.world.chance(0.5)
        if is_behind:
            connection.answer(question, reply)
        for receiver, push in pushes:
            receiver.answer(None, push)
        if not is_behind:
            connection.answer(question, reply)

    def new_reader(self) -> Reader:
        return Reader(notEnoughData=INCOMPLETE)

    # --- its keys, for the judges and the faults --------------------------------------

    def token_at(self, key: bytes, of: bytes = b"") -> bytes | None:
        """Return the value of a key; of readers this one if it reads, or another."""
        self.model.keys.now_us = self.now_us()
        value = self.model.keys.value(key)
        if isinstance(value, bytes) or value is None:
            return value
        reading = self._reading(value)
        return of if of in reading else next(iter(reading), None)

    def tokens(self) -> list[tuple[bytes, bytes]]:
        found = []
        for key, value in self._items():
            if isinstance(value, bytes):
                found.append((key, value))
            elif isinstance(value, dict) and not key.startswith(OWN):
                found += [(key, token) for token in self._reading(value)]
        return found

    def _reading(self, ends: dict[bytes, float]) -> list[bytes]:
        now_ms = self.now_us() // 1000
        return [token for token, end_ms in ends.items() if end_ms > now_ms]

    def _items(self) -> list[tuple[bytes, object]]:
        self.model.keys.now_us = self.now_us()
        return self.model.keys.items()

    def put(self, key: bytes, value: bytes, ttl_ms: int = 0) -> None:
        """Set a key, whoever has it; of a ttl of 0, for ever."""
        self.model.keys.now_us = self.now_us()
        self.model.keys.put(key, value, ttl_ms)

    def mark(self) -> None:
        """Have the marker of a master that has voted for long."""
        self.put(VOTER, self.model.run_id)

    def waiting(self, resource: bytes) -> list[bytes]:
        """Return the processes that wait here, the first one first."""
        self.model.keys.now_us = self.now_us()
        members = self._members(QUEUE + resource)
        return [process for process in members if process != MOVED]

    def told(self, resource: bytes) -> list[bytes]:
        """Return the processes that were told last that the lock is free."""
        self.model.keys.now_us = self.now_us()
        return self._members(TURN + resource)

    def _members(self, key: bytes) -> list[bytes]:
        value = self.model.keys.value(key)
        return self.model.keys.zrange(key, 0, -1) if isinstance(value, dict) else []

    def queues(self) -> list[bytes]:
        return [
            key.removeprefix(QUEUE)
            for key, value in self._items()
            if key.startswith(QUEUE) and type(value) is not bytes
        ]

    def move(self, resource: bytes) -> None:
        """Mark a queue as moved, as any process may that finds this gate slow."""
        words = [b"EVAL", scripts.ASK_TURN, b"1", resource, b"", b"0", b"4"]
        self.model.execute(words, None, self.now_us())
        self._push()

    def publish(self, channel: bytes, text: bytes) -> None:
        self.model.pushes.publish(channel, text)
        self._push()

    def _push(self) -> None:
        for receiver, push in self.model.pushes.take():
            receiver.answer(None, push)
