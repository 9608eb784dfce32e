"""What lies between a client and a server: delay, pieces, holes, resets.

Bytes of one connection arrive in order and each at most once, as TCP promises; bytes of
different connections in any order, those of an old connection of the same two machines
among them: what a closed one had sent may be executed after what its successor sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .world import World

if TYPE_CHECKING:
    from .process import Process
    from .question import Question
    from .server import Server


class Path:
    """The way between one client and one server."""

    __slots__ = (
        *("calm_from_ns", "delay_ns", "hole_until_ns", "is_slicing", "usual_ns"),
        "world",
    )

    def __init__(self, world: World, delay_ns: int) -> None:
        self.world = world
        self.delay_ns = self.usual_ns = delay_ns
        self.calm_from_ns = 0  # nothing of a fault is under way from then on
        self.hole_until_ns = 0  # nothing arrives before
        self.is_slicing = False

    def arrival_ns(self) -> int:
        """Draw when something sent now arrives."""
        leaves_ns = max(self.world.now_ns, self.hole_until_ns)
        return leaves_ns + self.world.between(self.delay_ns // 2, 2 * self.delay_ns)


class Pipe:
    """One direction of a connection."""

    __slots__ = ("hole_until_ns", "last_ns", "may_deliver", "path", "world")

    def __init__(self, world: World, path: Path) -> None:
        self.world = world
        self.path = path
        self.hole_until_ns = 0
        self.last_ns = 0
        self.may_deliver: int | None = None  # bytes, after a cut; None: all

    def send(self, data: bytes, arrive: Callable[[bytes], None]) -> None:
        """Send bytes on their way, in pieces where the path cuts them."""
        world = self.world
        if not self.path.is_slicing:
            world.at(self.next_ns(), arrive, data)
            return
        size = 1 if world.chance(0.03) else world.random.randrange(2, 99)
        for at in range(0, len(data), size):
            world.at(self.next_ns(), arrive, data[at : at + size])

    def next_ns(self) -> int:
        """Draw when something sent now arrives, behind all that was sent before."""
        # As Path.arrival_ns, in line: once for every message.
        path, world = self.path, self.world
        leaves_ns, low_ns, draw = world.now_ns, path.delay_ns // 2, world.fraction()
        if path.hole_until_ns > leaves_ns:
            leaves_ns = path.hole_until_ns
        arrival_ns = leaves_ns + low_ns + int((2 * path.delay_ns - low_ns) * draw**2)
        if arrival_ns < self.hole_until_ns:
            arrival_ns = self.hole_until_ns
        if arrival_ns <= self.last_ns:
            arrival_ns = self.last_ns + 1
        self.last_ns = arrival_ns
        return arrival_ns

    def arriving(self, data: bytes) -> bytes:
        """Return what of a piece comes out at the other end."""
        if self.may_deliver is None:
            return data
        data = data[: self.may_deliver]
        self.may_deliver -= len(data)
        return data


class Connection:
    """One TCP connection, from connect to the last byte that is still under way."""

    __slots__ = (
        *("answered", "down", "error", "inbox", "index", "is_cut", "is_given_up"),
        *("is_open", "is_told", "path", "process", "reader", "replies", "server"),
        *("ready_ns", "taken", "up", "world"),
    )

    def __init__(self, path: Path, process: Process, server: Server) -> None:
        self.world = path.world
        self.path = path
        self.process = process
        self.server = server
        self.index = process.servers.index(server)  # as that process counts them
        self.up, self.down = Pipe(self.world, path), Pipe(self.world, path)
        self.reader = server.new_reader()
        self.is_open = False  # connect(2) succeeded
        self.is_told = False  # ...and the client knows
        self.is_given_up = False  # the client has closed it
        self.is_cut = False
        self.inbox: list[bytes] = []
        self.error = ""
        self.ready_ns = 0  # when it had shaken hands
        self.answered = self.taken = 0  # bytes
        self.replies: list[tuple[int, Question | None, bytes]] = []  # end, to, reply
        self.world.at(path.arrival_ns(), self._on_syn)

    # --- the client's end -------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Hand bytes to the kernel."""
        if self.is_cut:
            return
        self.up.send(data, self._on_up)

    def receive(self) -> tuple[bytes, list[tuple[Question, bytes]]]:
        """Take what has come; and which questions are answered in whole by it."""
        inbox, replies, heard = self.inbox, self.replies, []
        data = inbox[0] if len(inbox) == 1 else b"".join(inbox)
        inbox.clear()
        self.taken += len(data)
        while replies and replies[0][0] <= self.taken:
            _, question, reply = replies.pop(0)
            if question is not None:
                heard.append((question, reply))
        return data, heard

    def give_up(self) -> None:
        """Close it: what was sent goes on its way, or does not, or some of it does."""
        self.is_given_up = True
        if self.is_cut:
            return
        # A server that answers one part of it is told that nobody is there, and drops
        # the rest: redis/src/networking.c, writeToClient.
        self.up.may_deliver = self.world.random.choice(
            (0, None, self.world.random.randrange(400))
        )
        self.down.may_deliver = 0
        self._end()

    def _end(self) -> None:
        # The server learns of it behind the last byte, whatever came of those.
        self.world.at(self.up.next_ns(), self._on_end)

    def on_dropped(self) -> None:
        """Reset it where something is unread (RFC 2525, 2.17), else close it."""
        if self.inbox and not self.is_cut:
            self.up.may_deliver = 0
            self.is_given_up, self.down.may_deliver = True, 0
            self._end()
        else:
            self.give_up()

    # --- what happens to it -----------------------------------------------------------

    def cut(self, up_bytes: int, down_bytes: int) -> None:
        """Reset it, once; of what is under way so many bytes still arrive."""
        if self.is_cut:
            return
        self.is_cut = True
        self.up.may_deliver, self.down.may_deliver = up_bytes, down_bytes
        self.world.at(self.path.arrival_ns(), self._on_error, "connection reset")
        self._end()

    def on_server_stopped(self) -> None:
        """Deliver no more, whatever an earlier cut allowed: its process is gone."""
        self.cut(0, 0)
        self.up.may_deliver = self.down.may_deliver = 0

    def _on_syn(self) -> None:
        if self.is_given_up:
            return
        if self.server.is_down:
            self.world.at(self.path.arrival_ns(), self._on_error, "connection refused")
            return
        self.server.connections.append(self)
        self.world.at(self.path.arrival_ns(), self._on_open)

    def _on_open(self) -> None:
        self.is_open = True
        self.process.on_readable(self)

    def _on_error(self, error: str) -> None:
        self.error = self.error or error
        self.process.on_readable(self)

    def _on_up(self, data: bytes) -> None:
        if self.up.may_deliver is not None:
            data = self.up.arriving(data)
        if data:
            self.server.on_bytes(self, data)

    def _on_end(self) -> None:
        self.server.on_bytes(self, b"")

    def answer(self, question: Question | None, reply: bytes) -> None:
        """Send a server's reply to a command, or a push."""
        self.answered += len(reply)
        self.replies.append((self.answered, question, reply))
        self.down.send(reply, self._on_down)

    def _on_down(self, data: bytes) -> None:
        if self.down.may_deliver is not None:
            data = self.down.arriving(data)
        if data and not self.is_given_up:
            self.inbox.append(data)
            self.process.on_readable(self)
