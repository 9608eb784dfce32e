"""The least that a lock takes from one process to another: the floor of a gap.

Two processes with plain sockets, and nothing of the library. One holds, deletes the key
on all masters and publishes on the first, in one write each; the other, asleep until
that message, sends SET NX PX to all and counts to a quorum. Where processes have to be
woken, most of a gap is the machine's: here it is seen alone.

`python -m bench.contending.relay KEY URL...` is the second process: it prints `ready`,
then the time of each grant (CLOCK_MONOTONIC, ns), and ends with its standard input.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from time import monotonic_ns
from typing import IO

from bench.contending.crew import new_key
from bench.harness.process import ROOT
from bench.harness.servers import port_of

_TIMEOUT = 5.0  # s, of a socket
_TTL_MS = b"10000"


def gaps_ms(urls: Sequence[str], seconds: float, hold: float) -> list[float]:
    """Return the times from a release to the other process's grant, again and again."""
    key, found = new_key(), []
    command = [sys.executable, "-m", "bench.contending.relay", key, *urls]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as other,
        _Masters(urls) as masters,
    ):
        if other.stdin is None or other.stdout is None:
            raise RuntimeError("the process has no pipes")
        _expect(other.stdout, "ready")
        release = _encoded(b"DEL", key.encode())
        notify = release + _encoded(b"PUBLISH", key.encode(), b"")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(hold)
            released_ns = monotonic_ns()
            masters.send([notify] + [release] * (len(urls) - 1))
            found.append((int(other.stdout.readline()) - released_ns) / 1e6)
            masters.read_all(b"\n", [2] + [1] * (len(urls) - 1))
        other.stdin.close()
    return found


def main(key: str, *urls: str) -> None:
    """Take the lock whenever a message arrives; until standard input ends."""
    take = _encoded(b"SET", key.encode(), b"another", b"NX", b"PX", _TTL_MS)
    with _Masters(urls) as masters, _Masters(urls[:1]) as subscriber:
        subscriber.send([_encoded(b"SUBSCRIBE", key.encode())])
        subscriber.read_all(b":1\r\n", [1])
        print("ready", flush=True)
        channel = subscriber.sockets[0]
        while channel in select.select([channel, sys.stdin], [], [])[0]:
            channel.recv(4096)
            masters.send([take] * len(urls))
            masters.read_quorum()
            print(monotonic_ns(), flush=True)
            masters.read_all(b"\n", [1] * len(urls))


class _Masters:
    """A plain connection to each master, and the bytes read from each."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.sockets = [
            socket.create_connection(("127.0.0.1", port_of(url)), timeout=_TIMEOUT)
            for url in urls
        ]
        self._read = [b""] * len(urls)

    def __enter__(self) -> _Masters:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sockets:
            each.close()

    def send(self, commands: Sequence[bytes]) -> None:
        """Send one command to each."""
        for each, command in zip(self.sockets, commands, strict=True):
            each.sendall(command)

    def read_quorum(self) -> None:
        """Read until most have answered."""
        while sum(map(bool, self._read)) <= len(self.sockets) // 2:
            for ready in select.select(self.sockets, [], [], _TIMEOUT)[0]:
                self._receive(self.sockets.index(ready))

    def read_all(self, end: bytes, counts: Sequence[int]) -> None:
        """Read until each has sent so many of these; forget what it sent."""
        for i, count in enumerate(counts):
            while self._read[i].count(end) < count:
                self._receive(i)
        self._read = [b""] * len(self.sockets)

    def _receive(self, i: int) -> None:
        some = self.sockets[i].recv(4096)
        if not some:
            raise RuntimeError("a master has closed its connection")
        self._read[i] += some


def _encoded(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def _expect(pipe: IO[str], word: str) -> None:
    if (line := pipe.readline().strip()) != word:
        raise RuntimeError(f"the process said {line!r}, not {word!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
