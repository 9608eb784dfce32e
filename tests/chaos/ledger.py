"""What clients write down: windows into a file of their own, numbers that need a lock.

Every record is one write(2), so that a process may be killed at any time: its windows
are on file, and one that was open then ended with the process.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from .checker import RECORD, Window

RESOURCES = 300  # locks; the slots of semaphores have numbers behind them
MARGIN = 0.1  # s; of validity that a worker leaves unused before it writes
NUMBER = struct.Struct("<q")
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
UPDATED, SPOILED = 1, 2


def now_ns() -> int:
    """Read the one clock that all processes share."""
    return time.clock_gettime_ns(CLOCK)


class Ledger:
    """The numbers that all processes count up, and the windows of this one."""

    def __init__(self, folder: Path, generation: int) -> None:
        flags = os.O_RDWR | os.O_CREAT
        self.generation = generation
        self._numbers = os.open(folder / "numbers", flags, 0o600)
        path = folder / f"windows{generation}"
        self._windows = os.open(path, flags | os.O_APPEND, 0o600)

    def read(self, resource: int) -> int:
        data = os.pread(self._numbers, NUMBER.size, NUMBER.size * resource)
        return int(NUMBER.unpack(data)[0]) if data else 0

    def write(self, resource: int, value: int) -> None:
        os.pwrite(self._numbers, NUMBER.pack(value), NUMBER.size * resource)

    def note(self, window: Window) -> None:
        os.write(self._windows, RECORD.pack(*window))


class Hold:
    """One holder's stretch: from the return of the acquire to the call of the release.

    Of a lease that is kept, `look` is called again and again: it lasts at least until
    the holder was last told that nothing is lost.

    `told` says how much validity is left (s). It is asked before the window begins and
    the clock is read before it is asked, so whatever comes between makes the window
    shorter, never longer than what the client told its caller.
    """

    def __init__(
        self, ledger: Ledger, resources: tuple[int, ...], told: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._told = told
        self.valid_until_ns = 0  # the end that was told last
        self.renew()
        self._begin_ns = now_ns()
        self._values = [(each, ledger.read(each)) for each in resources]

    def renew(self) -> None:
        """Ask for the end of the validity, at first or after an extension."""
        asked_ns = now_ns()
        self.valid_until_ns = asked_ns + int(self._told() * 1e9)

    def look(self, is_lost: Callable[[], bool]) -> bool:
        """Ask a lease that is kept whether it is lost, and how long it is valid."""
        asked_ns = now_ns()
        if is_lost():
            return True
        self.renew()
        self.valid_until_ns = max(self.valid_until_ns, asked_ns)
        return False

    def shorten(self) -> None:
        """Ask again after an extension that failed: the end is no later than before."""
        before_ns = self.valid_until_ns
        self.renew()
        self.valid_until_ns = min(before_ns, self.valid_until_ns)

    def end(self) -> None:
        """Count up where enough validity is left; the last thing is the release."""
        for resource, value in self._values:
            flags = 0
            if now_ns() + MARGIN * 1e9 < self.valid_until_ns:
                self._ledger.write(resource, value + 1)
                # Stopped just before the write: nobody but a fence could have helped.
                is_late = now_ns() > self.valid_until_ns
                flags = UPDATED | SPOILED if is_late else UPDATED
            end_ns = min(now_ns(), self.valid_until_ns)
            self._ledger.note(
                Window(resource, self._begin_ns, end_ns, self._ledger.generation, flags)
            )
