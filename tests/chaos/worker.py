"""One contending process: take, read, work, write, release; and note every window."""

from __future__ import annotations

import logging
import os
import random
import struct
import time
import warnings
from contextlib import suppress
from pathlib import Path

from .checker import Window
from .clients import CLIENTS, Held

RESOURCES = 2
MARGIN = 0.1  # s; of validity that a worker leaves unused before it writes
_RECORD = struct.Struct("<qqqq")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_ns() -> int:
    """Read the one clock that all processes share."""
    return time.clock_gettime_ns(_CLOCK)


class Counter:
    """A number in a file, which needs a lock: read, add one, write."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> int:
        return int(os.pread(self._fd, 20, 0) or b"0")

    def write(self, value: int) -> None:
        os.pwrite(self._fd, b"%020d" % value, 0)


class Worker:
    """Do what users do, with what the client tells them, and no more caution."""

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        self._random = random.Random(f"{seed}/{number}")
        self._number = number
        self._counters = [Counter(folder / f"counter{i}") for i in range(RESOURCES)]
        self.windows: list[Window] = []
        self.updates = 0

    def hold(self, resource: int, held: Held) -> None:
        """Use the resource for some time; the last thing is the release."""
        begin_ns = now_ns()
        valid_until_ns = begin_ns + int(held.validity * 1e9)
        value = self._counters[resource].read()
        time.sleep(self._random.choice([0.001, 0.005, 0.02, 0.2, 0.5]))
        if now_ns() + MARGIN * 1e9 < valid_until_ns:
            self._counters[resource].write(value + 1)
            self.updates += 1
        end_ns = min(now_ns(), valid_until_ns)
        self.windows.append(Window(resource, begin_ns, end_ns, self._number))
        with suppress(Exception):  # a peer's complaint that the lock had gone
            held.release()

    def save(self, path: Path) -> None:
        records = b"".join(_RECORD.pack(*window) for window in self.windows)
        path.write_bytes(struct.pack("<q", self.updates) + records)


def load(path: Path) -> tuple[int, list[Window]]:
    """Return (updates made, windows) of a worker that came to its end."""
    data = path.read_bytes()
    windows = [Window(*fields) for fields in _RECORD.iter_unpack(data[8:])]
    return struct.unpack("<q", data[:8])[0], windows


def run(
    client: str,
    urls: list[str],
    is_guarded: bool,
    folder: Path,
    number: int,
    seed: int,
    until_ns: int,
) -> None:
    """Contend until the clock says until_ns; the body of a process."""
    warnings.simplefilter("ignore")  # a peer's, as its log is
    logging.disable()
    worker, draw = Worker(folder, number, seed), random.Random(f"{number}/{seed}")
    try_once = CLIENTS[client](urls, is_guarded)
    while now_ns() < until_ns:
        resource = draw.randrange(RESOURCES)
        if held := try_once(f"chaos:{resource}"):
            worker.hold(resource, held)
        else:
            time.sleep(draw.uniform(0.001, 0.01))
    worker.save(folder / f"worker{number}")
    os._exit(0)  # a peer's threads may wait for a server that never answers
