"""What clients write down: windows into a file of their own, numbers that need a lock.

Every record is one write(2), so that a process may be killed at any time: its windows
are on file, and one that was open then ended with the process. All processes of one
machine read one clock, so two windows overlap or they do not: nothing is searched, and
there is no false alarm.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import NamedTuple

RESOURCES = 300  # locks; the slots of semaphores have numbers behind them
MARGIN = 0.1  # s; of validity that a worker leaves unused before it writes
NUMBER = Struct("<q")
RECORD = Struct(">qqqii")
BEGIN = slice(8, 16)  # of a record, big-endian: its bytes have the order of the times
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
UPDATED, SPOILED, READS = 1, 2, 4


def now_ns() -> int:
    """Read the one clock that all processes share."""
    return time.clock_gettime_ns(CLOCK)


class Window(NamedTuple):
    """A client told one holder that it has the resource, from begin to end (ns)."""

    resource: int
    begin_ns: int
    end_ns: int
    generation: int  # of client process
    flags: int = 0


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
        self, ledger: Ledger, resources: tuple[int, ...], told: Callable[[], float],
        reads: bool = False,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._flags = READS if reads else 0
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
            flags = self._flags
            if not flags and now_ns() + MARGIN * 1e9 < self.valid_until_ns:
                self._ledger.write(resource, value + 1)
                # Stopped just before the write: nobody but a fence could have helped.
                is_late = now_ns() > self.valid_until_ns
                flags = UPDATED | SPOILED if is_late else UPDATED
            end_ns = min(now_ns(), self.valid_until_ns)
            self._ledger.note(
                Window(resource, self._begin_ns, end_ns, self._ledger.generation, flags)
            )


def violations(windows: Iterable[Window]) -> Iterator[tuple[Window, Window]]:
    """Yield each window that begins inside an earlier one, with that one.

    But for two of readers. `windows` come in the order of their beginnings; one of
    readers and one of others is kept for each resource. A window without length holds
    nothing.
    """
    last: dict[tuple[int, int], Window] = {}
    for window in windows:
        if window.end_ns <= window.begin_ns:
            continue
        reads = window.flags & READS
        for each in (0,) if reads else (0, READS):
            before = last.get((window.resource, each))
            if before is not None and window.begin_ns < before.end_ns:
                yield before, window
        ours = last.setdefault((window.resource, reads), window)
        if ours.end_ns < window.end_ns:
            last[window.resource, reads] = window


def windows_in(folder: Path) -> Iterator[Window]:
    """Yield the windows of all files of a folder, in the order of their beginnings."""
    records: list[bytes] = []
    for path in folder.glob("windows*"):
        data = path.read_bytes()  # of a killed process, the last record may be a part
        ends = range(RECORD.size, len(data) + 1, RECORD.size)
        records += [data[end - RECORD.size : end] for end in ends]
    records.sort(key=itemgetter(BEGIN))
    return (Window(*RECORD.unpack(record)) for record in records)
