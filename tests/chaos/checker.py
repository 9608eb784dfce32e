"""What went wrong, exactly: windows of one clock that overlap, updates that are gone.

All processes of one machine read one clock, so two windows overlap or they do not:
nothing is searched, and there is no false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import NamedTuple

RECORD = Struct(">qqqii")
BEGIN = slice(8, 16)  # of a record, big-endian: its bytes have the order of the times


class Window(NamedTuple):
    """A client told one holder that it has the resource, from begin to end (ns)."""

    resource: int
    begin_ns: int
    end_ns: int
    generation: int  # of client process
    flags: int = 0


def violations(windows: Iterable[Window]) -> Iterator[tuple[Window, Window]]:
    """Yield each window that begins inside an earlier one, with that one.

    `windows` come in the order of their beginnings; one is kept for each resource. A
    window without length holds nothing.
    """
    last: dict[int, Window] = {}
    for window in windows:
        if window.end_ns <= window.begin_ns:
            continue
        before = last.get(window.resource)
        if before is not None and window.begin_ns < before.end_ns:
            yield before, window
            if window.end_ns <= before.end_ns:
                continue
        last[window.resource] = window


def windows_in(folder: Path) -> Iterator[Window]:
    """Yield the windows of all files of a folder, in the order of their beginnings."""
    records: list[bytes] = []
    for path in folder.glob("windows*"):
        data = path.read_bytes()  # of a killed process, the last record may be a part
        ends = range(RECORD.size, len(data) + 1, RECORD.size)
        records += [data[end - RECORD.size : end] for end in ends]
    records.sort(key=itemgetter(BEGIN))
    return (Window(*RECORD.unpack(record)) for record in records)
