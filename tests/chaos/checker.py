"""What went wrong, exactly: windows of one clock that overlap, updates that are gone.

All processes of one machine read one clock, so two windows overlap or they do not:
nothing is searched, and there is no false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Window(NamedTuple):
    """One holder was told that the resource is its own, from begin to end (ns)."""

    resource: int
    begin_ns: int
    end_ns: int
    worker: int


def violations(windows: Iterable[Window]) -> list[tuple[Window, Window]]:
    """Return each window that begins inside an earlier one, with that one.

    One sort and one pass: O(n log n). A window without length holds nothing.
    """
    found = []
    last: Window | None = None
    for window in sorted(each for each in windows if each.end_ns > each.begin_ns):
        if last is None or window.resource != last.resource:
            last = window
            continue
        if window.begin_ns < last.end_ns:
            found.append((last, window))
        if window.end_ns > last.end_ns:
            last = window
    return found
