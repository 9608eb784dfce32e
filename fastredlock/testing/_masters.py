"""Masters in memory, as a test sees them."""

from __future__ import annotations

from collections.abc import Callable

from .._core import draw_token
from .._options.keys import encode_resource
from .._options.settings import positive_ns
from .._reports.votes import shown
from ..errors import ConfigurationError, FastRedlockError
from ._server import Server
from ._world import EPOCH_NS, World

LONGEST = 1_000_000_000  # s


class MemoryMasters:
    """Hold `n` empty masters in this process, and a virtual clock for their users.

    The clock moves by `advance`, and by a call that has to wait where nobody else can
    act; with `auto_advance` whatever others do. All `MemoryLocks` of these masters see
    the same keys. Any thread may use them; a forked child may not.
    """

    __slots__ = ("_world",)

    def __init__(self, n: int = 3, *, auto_advance: bool = False) -> None:
        if n < 1:
            raise ConfigurationError(f"n={n}: allowed is 1 or more masters")
        self._world = World(n, auto_advance)

    @property
    def auto_advance(self) -> bool:
        """Whether a call that has to wait moves the clock; may be set at any time."""
        return self._world.auto_advance

    @auto_advance.setter
    def auto_advance(self, value: bool) -> None:
        self._world.auto_advance = value

    def time(self) -> float:
        """Return the seconds that have passed since these masters were made."""
        return (self._world.now_ns() - EPOCH_NS) / 1e9

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass: what is due meanwhile is done, each at its time.

        Blocks until threads whose calls end by that have returned from them. `on_lost`
        is called by it.
        """
        until_ns = end_of(self._world, seconds)
        while self._world.advance_once(until_ns):
            pass

    def lose(self, resource: str | bytes) -> None:
        """Delete a key on every master, as an eviction or FLUSHALL does.

        A holder learns of it as in life: at the next renewal, extension or release.
        """
        key = encode_resource(resource)
        self._change(lambda server: server.model.keys.drop(key))

    def steal(self, resource: str | bytes, *, ttl: float = 10.0) -> bytes:
        """Let another client hold a resource, for `ttl` s; return its token."""
        key, token = encode_resource(resource), draw_token()
        ttl_ms = max(positive_ns("ttl", ttl) // 1_000_000, 1)
        self._change(lambda server: server.put(key, token, ttl_ms))
        return token

    def flush(self) -> None:
        """Delete all keys on every master; the masters may vote all the same."""
        self._change(lambda server: server.model.keys.clear())

    def stop(self, i: int | str) -> None:
        """Kill master `i`, or that of a name: its connections end, its keys are lost.

        A name is the address, as messages have it.
        """
        with self._world.changed:
            self._server(i).stop()
            self._world.settle()

    def start(self, i: int | str) -> None:
        """Start master `i`, empty, if it was stopped.

        Its clients connect to it again as in life: when a quorum is missing, or after
        a back-off, by the clock.
        """
        with self._world.changed:
            if self._server(i).is_down:
                self._server(i).start()
            self._world.settle()

    def _server(self, i: int | str) -> Server:
        servers = self._world.servers
        if isinstance(i, int) and -len(servers) <= i < len(servers):
            return servers[i]
        for server in servers:
            if server.name == i:
                return server
        names = ", ".join(server.name for server in servers)
        raise ConfigurationError(f"no master {i!r}: there are {names}")

    def _change(self, change: Callable[[Server], object]) -> None:
        if not self._world.servers:
            raise FastRedlockError("in memory there is no master: make a client first")
        with self._world.changed:
            for server in self._world.servers:
                change(server)
            self._world.settle()

    @shown
    def __repr__(self) -> str:
        count = len(self._world.servers)
        return f"<MemoryMasters {count}, {self.time():.3f} s passed>"


def end_of(world: World, seconds: float) -> int:
    """Return the moment (ns) so far from now."""
    if not 0 <= seconds < LONGEST:
        raise ConfigurationError(
            f"seconds={seconds!r}: allowed is 0 or more, below {LONGEST}"
        )
    return world.now_ns() + int(seconds * 1e9)
