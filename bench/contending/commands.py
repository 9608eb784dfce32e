"""Count the commands that clients send, as MONITOR shows them.

INFO counts the commands of a script like those of a client, MONITOR shows of each where
it comes from: `[0 lua]` or an address. It costs the server some time, so
nothing else is measured meanwhile.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from bench.contending.turns import Window
from bench.harness.servers import port_of

_BY_SCRIPTS = b" lua] "


def commands_sent(urls: Sequence[str], window: Window) -> list[int]:
    """Block until the window is over; return how many commands each master was sent."""
    _sleep_until(window.start_ns)
    with ExitStack() as opened:
        monitors = [opened.enter_context(_Monitor(url)) for url in urls]
        _sleep_until(window.end_ns)
    return [count_sent(bytes(monitor.lines)) for monitor in monitors]


def count_sent(lines: bytes) -> int:
    """Return how many of the whole lines are commands that no script ran."""
    return lines.count(b"\n") - lines.count(_BY_SCRIPTS)


class _Monitor:
    """Collects the lines of a master, in a thread, until the `with` block ends."""

    def __init__(self, url: str) -> None:
        self.lines = bytearray()
        self._socket = socket.create_connection(("127.0.0.1", port_of(url)), timeout=5)
        self._socket.sendall(b"MONITOR\r\n")
        if not self._socket.recv(5).startswith(b"+OK"):
            raise RuntimeError(f"{url} refused MONITOR")
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._collect)

    def __enter__(self) -> _Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _collect(self) -> None:
        with suppress(ConnectionResetError):  # shut down with lines on their way
            while some := self._socket.recv(1 << 20):
                self.lines += some


def _sleep_until(moment_ns: int) -> None:
    time.sleep(max(0, moment_ns - time.monotonic_ns()) / 1e9)
