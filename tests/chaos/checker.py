"""What went wrong, exactly: windows of one clock that overlap, updates that are gone.

All processes of one machine read one clock, so two windows overlap or they do not:
nothing is searched, and there is no false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from pathlib import Path
from struct import Struct
from typing import NamedTuple


class Window(NamedTuple):
    """One holder was told that the resource is its own, from begin to end (ns)."""

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


def merged(lots: Iterable[list[Window]], folder: Path) -> Iterator[Window]:
    """Yield the windows of sorted lots in one order; the lots are kept on disk."""
    record = Struct("<qqqii")
    folder.mkdir()
    runs = []
    for number, lot in enumerate(lots):
        run = folder / str(number)
        run.write_bytes(b"".join(record.pack(*window) for window in lot))
        runs.append(run)
    return merge(*(_read(run, record) for run in runs), key=lambda each: each.begin_ns)


def _read(run: Path, record: Struct) -> Iterator[Window]:
    # Some at a time, and no file stays open: there may be thousands of runs.
    at, size = 0, record.size * 256
    while True:
        with run.open("rb") as file:
            file.seek(at)
            data = file.read(size)
        if not data:
            return
        at += len(data)
        for fields in record.iter_unpack(data):
            yield Window(*fields)
