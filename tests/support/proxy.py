"""A TCP proxy that does to bytes what networks do; between a client and one master.

One thread per proxy moves all bytes. What it does to them is set by attributes of
`faults`, which any thread may change at any time; `until` waits for what happened, so
no test has to sleep. `down` is from the server to the client: the replies.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PATIENCE = 20.0  # s; for what takes milliseconds, on a machine that is loaded
_RST = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close(2) sends RST (socket(7))


@dataclass
class Faults:
    """The faults of a proxy; the defaults are none.

    `delay` (s) is added to every chunk in both directions. `holds_up`, `holds_down`:
    chunks wait until it is False again. `swallows`: what the client says is read and
    thrown away. `drops_replies`: the server has executed, the client never gets
    the reply. (A connection that lost bytes so stays mute after `heal`: TCP has no
    gaps, bytes behind a loss never arrive.) `cut_down_after`: so many more bytes of
    replies pass, then `at_cut` is done: "hold", "reset", "reset once" (and no fault any
    more), "close" or "half-close". `closes_accepted`: new connections are closed.
    """

    delay: float = 0.0
    holds_up: bool = False
    holds_down: bool = False
    swallows: bool = False
    drops_replies: bool = False
    cut_down_after: int | None = None
    at_cut: str = "hold"
    closes_accepted: bool = False


@dataclass(eq=False)
class _Flow:
    client: socket.socket
    server: socket.socket
    up: list[tuple[float, bytes]] = field(default_factory=list)
    down: list[tuple[float, bytes]] = field(default_factory=list)
    is_half_closed: bool = False
    has_lost_up: bool = False
    has_lost_down: bool = False


class Proxy:
    """Stand before one master; a context manager.

    `upstream` is a URL as of `LocalMasters.urls`. The proxy listens on its own
    loopback port, at the address given, or on a unix socket at `path`.
    """

    def __init__(
        self, upstream: str, path: str = "", address: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        parts = urlsplit(upstream)
        self._upstream: str | tuple[str, int] = (
            parts.path if parts.scheme == "unix" else ("127.0.0.1", parts.port or 0)
        )
        self._path = path
        self.faults = Faults()
        self.connections = 0  # accepted so far
        self.sent_up = b""  # what the server was given, of all connections
        self.swallowed = b""  # what the server was not given
        self.came_down = b""  # what the server said, forwarded or not
        self._flows: list[_Flow] = []
        self._orders: list[Callable[[], object]] = []
        self._changed = threading.Condition()
        self._wake, self._woken = socket.socketpair()
        self._is_closing = False
        self._listener: socket.socket | None = None
        self._address = address
        self.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        if self._path:
            return f"unix://{self._path}"
        return f"redis://{self._address[0]}:{self._address[1]}/0"

    # --- control, from any thread -----------------------------------------------------

    def set(self, **faults: object) -> None:
        """Change some of `faults`, for bytes that have not been sent yet as well."""
        with self._changed:
            for name, value in faults.items():
                if not hasattr(self.faults, name):
                    raise AttributeError(name)
                setattr(self.faults, name, value)
        self._poke()

    def heal(self) -> None:
        """Do nothing to bytes any more; what was held goes on its way."""
        with self._changed:
            self.faults = Faults()
        self._poke()

    def reset(self) -> None:
        """Cut all connections with a RST (unix: as a server that crashes)."""
        self._order(lambda: [self._end(flow, True) for flow in list(self._flows)])

    def lead_to(self, upstream: str) -> None:
        """Stand before another master from now on (TCP); all connections are cut."""
        self._upstream = ("127.0.0.1", urlsplit(upstream).port or 0)
        self.reset()

    def refuse(self) -> None:
        """Stop listening: new connections are refused. Open connections stay."""
        self._order(self._stop_listening)

    def listen(self) -> None:
        """Listen (again), on the same address."""
        with self._changed:
            if self._path:
                with suppress(FileNotFoundError):
                    os.unlink(self._path)
                self._listener = socket.socket(socket.AF_UNIX)
                self._listener.bind(self._path)
                self._listener.listen(64)
            else:
                self._listener = socket.create_server(self._address)
                self._address = self._listener.getsockname()
        self._poke()

    def until(self, claim: Callable[[Proxy], object]) -> None:
        """Block until the claim about this proxy is true."""
        with self._changed:
            assert self._changed.wait_for(lambda: claim(self), PATIENCE), "never so"

    # --- the thread -------------------------------------------------------------------

    def _order(self, work: Callable[[], object]) -> None:
        """Have the thread do it, which is not polling then; block until it is done."""
        with self._changed:
            self._orders.append(work)
            self._poke()
            assert self._changed.wait_for(lambda: work not in self._orders, PATIENCE)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._listener = None

    def _poke(self) -> None:
        with suppress(OSError):
            self._wake.send(b"!")

    def _serve(self) -> None:
        while not self._is_closing:
            self._step()

    def _step(self) -> None:
        with self._changed:
            for work in self._orders:
                work()
            self._orders.clear()
            due = self._pump()
            self._changed.notify_all()
            flows = {flow.client: flow for flow in self._flows}
            flows.update({flow.server: flow for flow in self._flows})
            waiting = [self._woken, *flows]
            if self._listener is not None:
                waiting.append(self._listener)
        readable = select.select(waiting, [], [], due)[0]
        with self._changed:
            for ready in readable:
                if ready is self._woken:
                    ready.recv(4096)
                elif ready in flows:
                    self._receive(flows[ready], ready)
                elif ready is self._listener:
                    self._accept()
            self._pump()
            self._changed.notify_all()

    def _accept(self) -> None:
        assert self._listener is not None
        client = self._listener.accept()[0]
        self.connections += 1
        if self.faults.closes_accepted:
            client.close()
            return
        is_unix = isinstance(self._upstream, str)
        server = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
        try:
            server.connect(self._upstream)
        except OSError:
            client.close()
            server.close()
            return
        for each in (client, server):
            if each.family == socket.AF_INET:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._flows.append(_Flow(client, server))

    def _receive(self, flow: _Flow, source: socket.socket) -> None:
        if flow not in self._flows:
            return
        try:
            data = source.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._end(flow, with_rst=False)
        elif source is flow.client:
            flow.has_lost_up = flow.has_lost_up or self.faults.swallows
            if flow.has_lost_up:
                self.swallowed += data
            else:
                flow.up.append((time.monotonic() + self.faults.delay, data))
        else:
            self.came_down += data
            flow.has_lost_down = flow.has_lost_down or self.faults.drops_replies
            if not flow.has_lost_down:
                flow.down.append((time.monotonic() + self.faults.delay, data))

    def _pump(self) -> float | None:
        """Send what is due; return the seconds until something else is."""
        waits: list[float] = []
        for flow in list(self._flows):
            with suppress(OSError):
                if not self.faults.holds_up:
                    self._send_up(flow, waits)
                if not self.faults.holds_down:
                    self._send_down(flow, waits)
        return min(waits) if waits else None

    def _send_up(self, flow: _Flow, waits: list[float]) -> None:
        while flow.up:
            due, data = flow.up[0]
            left = due - time.monotonic()
            if left > 0:
                waits.append(left)
                return
            del flow.up[0]
            self.sent_up += data
            flow.server.sendall(data)

    def _send_down(self, flow: _Flow, waits: list[float]) -> None:
        while flow.down and flow in self._flows and not flow.is_half_closed:
            due, data = flow.down[0]
            left = due - time.monotonic()
            if left > 0:
                waits.append(left)
                return
            size = len(data)
            if self.faults.cut_down_after is not None:
                size = min(size, self.faults.cut_down_after)
                if size == 0:
                    self._cut(flow)
                    return
                self.faults.cut_down_after -= size
            flow.down[0] = (due, data[size:])
            if not flow.down[0][1]:
                del flow.down[0]
            flow.client.sendall(data[:size])
            if self.faults.cut_down_after == 0:
                self._cut(flow)

    def _cut(self, flow: _Flow) -> None:
        if self.faults.at_cut == "half-close":
            self._half_close(flow)
        elif self.faults.at_cut != "hold":
            self._end(flow, with_rst=self.faults.at_cut.startswith("reset"))
        if self.faults.at_cut == "reset once":
            self.faults = Faults()

    def _half_close(self, flow: _Flow) -> None:
        flow.is_half_closed = True
        with suppress(OSError):
            flow.client.shutdown(socket.SHUT_WR)

    def _end(self, flow: _Flow, with_rst: bool) -> None:
        if flow in self._flows:
            self._flows.remove(flow)
        if with_rst and flow.client.family == socket.AF_INET:
            flow.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        # What the client said before is still the server's to execute.
        with suppress(OSError):
            for _, data in [] if self.faults.holds_up else flow.up:
                flow.server.sendall(data)
        flow.client.close()
        flow.server.close()

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._poke()
        self._thread.join()
        for flow in list(self._flows):
            self._end(flow, with_rst=False)
        if self._listener is not None:
            self._listener.close()
        self._wake.close()
        self._woken.close()


@contextmanager
def swallowed_syn() -> Iterator[str]:
    """Yield a URL to which connect(2) gets no answer: its accept queue is full.

    Linux drops the SYN when the queue is full (listen(2), tcp_abort_on_overflow=0).
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        try:
            for _ in range(8):
                filler = socket.socket()
                filler.setblocking(False)
                fillers.append(filler)
                filler.connect_ex(listener.getsockname())
                if not select.select([], [filler], [], 0.05)[1]:
                    break
            yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        finally:
            for filler in fillers:
                filler.close()


def set_each(proxies: Sequence[Proxy], **faults: object) -> None:
    for proxy in proxies:
        proxy.set(**faults)


@contextmanager
def proxied(urls: Sequence[str]) -> Iterator[list[Proxy]]:
    with ExitStack() as opened:
        yield [opened.enter_context(Proxy(url)) for url in urls]
