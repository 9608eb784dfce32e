"""What lies between a client and a server: delay, pieces, holes, resets.

Bytes of one connection arrive in order and each at most once, as TCP promises; bytes of
different connections in any order, those of an old connection of the same two machines
among them: what a closed one had sent may be executed after what its successor sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .world import World

if TYPE_CHECKING:
    from .process import Process
    from .server import Server


class Path:
    """The way between one client and one server."""

    def __init__(self, world: World, delay_ns: int) -> None:
        self.world = world
        self.delay_ns = delay_ns
        self.hole_until_ns = 0  # nothing arrives before
        self.is_slicing = False

    def arrival_ns(self) -> int:
        """Draw when something sent now arrives."""
        leaves_ns = max(self.world.now_ns, self.hole_until_ns)
        return leaves_ns + self.world.between(self.delay_ns // 2, 2 * self.delay_ns)


class Pipe:
    """One direction of a connection."""

    def __init__(self, world: World, path: Path) -> None:
        self.world = world
        self.path = path
        self.hole_until_ns = 0
        self.last_ns = 0
        self.may_deliver: int | None = None  # bytes, after a cut; None: all

    def pieces(self, data: bytes) -> list[tuple[int, bytes]]:
        """Cut what is sent into pieces; return when each arrives."""
        if not self.path.is_slicing:
            return [(self._next_ns(), data)]
        size = 1 if self.world.chance(0.03) else self.world.random.randrange(2, 99)
        cuts = range(0, len(data), size)
        return [(self._next_ns(), data[at : at + size]) for at in cuts]

    def _next_ns(self) -> int:
        arrival_ns = max(self.path.arrival_ns(), self.hole_until_ns)
        self.last_ns = max(self.last_ns + 1, arrival_ns)
        return self.last_ns

    def arriving(self, data: bytes) -> bytes:
        """Return what of a piece comes out at the other end."""
        if self.may_deliver is None:
            return data
        data = data[: self.may_deliver]
        self.may_deliver -= len(data)
        return data


class Connection:
    """One TCP connection, from connect to the last byte that is still under way."""

    def __init__(self, path: Path, process: Process, server: Server) -> None:
        self.world = path.world
        self.path = path
        self.process = process
        self.server = server
        self.up, self.down = Pipe(self.world, path), Pipe(self.world, path)
        self.reader = server.new_reader()
        self.is_open = False  # connect(2) succeeded
        self.is_told = False  # ...and the client knows
        self.is_given_up = False  # the client has closed it
        self.is_cut = False
        self.is_readable = False  # poll(2) would say that something happened
        self.inbox: list[bytes] = []
        self.error = ""
        self.answered = self.taken = 0  # bytes
        self.replies: list[tuple[int, list[bytes], bytes]] = []  # end, command, reply
        self.world.at(path.arrival_ns(), self._on_syn)

    # --- the client's end -------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Hand bytes to the kernel."""
        if self.is_cut:
            return
        for when_ns, piece in self.up.pieces(data):
            self.world.at(when_ns, self._on_up, piece)

    def receive(self) -> tuple[bytes, list[tuple[list[bytes], bytes]]]:
        """Take what has come; and which commands are answered in whole by it."""
        data = b"".join(self.inbox)
        self.inbox.clear()
        self.taken += len(data)
        heard = []
        while self.replies and self.replies[0][0] <= self.taken:
            _, words, reply = self.replies.pop(0)
            heard.append((words, reply))
        return data, heard

    def give_up(self) -> None:
        """Close it: what was sent goes on its way, or does not."""
        self.is_given_up = True
        if self.is_cut:
            return
        if self.world.chance(0.5):
            self.up.may_deliver = 0
        self.down.may_deliver = 0

    # --- what happens to it -----------------------------------------------------------

    def cut(self, up_bytes: int, down_bytes: int) -> None:
        """Reset it, once; of what is under way so many bytes still arrive."""
        if self.is_cut:
            return
        self.is_cut = True
        self.up.may_deliver, self.down.may_deliver = up_bytes, down_bytes
        self.world.at(self.path.arrival_ns(), self._on_error, "connection reset")

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
        self.is_open = self.is_readable = True
        self.process.on_readable(self)

    def _on_error(self, error: str) -> None:
        self.error = self.error or error
        self.is_readable = True
        self.process.on_readable(self)

    def _on_up(self, data: bytes) -> None:
        data = self.up.arriving(data)
        if data:
            self.server.on_bytes(self, data)

    def answer(self, words: list[bytes], reply: bytes) -> None:
        """Send a server's reply to a command."""
        self.answered += len(reply)
        self.replies.append((self.answered, words, reply))
        for when_ns, piece in self.down.pieces(reply):
            self.world.at(when_ns, self._on_down, piece)

    def _on_down(self, data: bytes) -> None:
        data = self.down.arriving(data)
        if data and not self.is_given_up:
            self.inbox.append(data)
            self.is_readable = True
            self.process.on_readable(self)
