"""A master in memory: a model server with a virtual clock, and its connections."""

from __future__ import annotations

from collections.abc import Callable

from hiredis import Reader

from .._options import scripts
from ._model import Model

INCOMPLETE = object()
MARKERS = scripts.MARKER, scripts.MARKER_SHA1
UPTIME_S = 100_000_000


class Connection:
    """One client's connection: the bytes on their way to the client, and its end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.inbox = b""
        self.error = ""
        self.is_reported = False  # that it is open
        self._reader = Reader(notEnoughData=INCOMPLETE)

    def send(self, data: bytes) -> None:
        """Have the server execute all whole commands in the client's bytes."""
        if self.error:
            return
        self._reader.feed(data)
        while (words := self._reader.gets()) is not INCOMPLETE:
            self.inbox += self.server.execute(words, self)
            for connection, push in self.server.model.pushes.take():
                connection.inbox += push

    def drop(self) -> None:
        """Close it from the client's end."""
        self.error = self.error or "closed"
        self.server.model.forget(self)


class Server:
    """One master; `clock` gives its wall clock in ns."""

    def __init__(self, name: str, index: int, clock: Callable[[], int]) -> None:
        self.name, self._index, self._clock = name, index, clock
        self.model = Model()
        self.connections: list[Connection] = []
        self._starts = 0
        self.start()
        self._has_voted_for_long = True

    def start(self) -> None:
        """Begin a process: a new run id, no scripts, no keys."""
        self._starts += 1
        run_id = b"%020x%020x" % (self._index, self._starts)
        self.model.start(run_id, self._clock() // 10**9 - UPTIME_S)
        self.model.keys.clear()
        self._has_voted_for_long = False
        self.is_down = False

    def stop(self) -> None:
        """End the process, with its connections."""
        self.is_down = True
        for connection in self.connections:
            connection.error = connection.error or "connection reset by peer"
        self.connections.clear()

    def connect(self) -> Connection:
        """Open a connection."""
        connection = Connection(self)
        self.connections = [each for each in self.connections if not each.error]
        self.connections.append(connection)
        return connection

    def put(self, key: bytes, token: bytes, ttl_ms: int) -> None:
        """Set a key, whoever has it."""
        self.model.keys.now_us = self._clock() // 1000
        self.model.keys.put(key, token, ttl_ms)

    def _keep_marker(self, marker: bytes) -> None:
        # No client has to wait for masters that were never restarted.
        if not self.model.keys.exists(marker):
            self.model.keys.put(marker, self.model.run_id)

    def execute(self, words: list[bytes], speaker: object = None) -> bytes:
        """Do one command; return its reply."""
        if self._has_voted_for_long and words[1:2] and words[1] in MARKERS:
            self._keep_marker(words[3])
        return self.model.execute(words, speaker, self._clock() // 1000)
