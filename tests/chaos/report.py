"""What a client process notes beside its windows: one line each, in a file."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import random

from .ledger import Hold, now_ns

LATE = 2.0  # s; on a busy machine; by then a call that has time for it is too late
LATE_LOSS = 0.25  # s; likewise; a caller that asks the lease learns it at once
TICK = 0.05  # s


class Report:
    """Errors that nobody expects, stretches of time in which nothing went on, tries of
    a resource of one's own that were answered by another's key."""

    def __init__(self, folder: Path, generation: int) -> None:
        path = folder / f"report{generation}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.is_closing = threading.Event()

    def say(self, kind: str, text: str = "") -> None:
        os.write(self._fd, f"{kind} {text!r}\n".encode())

    def error(self) -> None:
        self.say("error", traceback.format_exc(limit=-6))

    @contextmanager
    def timed(self, what: str, longest: float) -> Iterator[None]:
        """Say so where the body takes over `longest` s and LATE."""
        began_ns = now_ns()
        try:
            yield
        finally:
            self.stretch(what, began_ns, longest)

    def stretch(self, what: str, began_ns: int, longest: float) -> None:
        """Say so where it is longer ago than `longest` s and LATE."""
        ended_ns = now_ns()
        if ended_ns - began_ns > (longest + LATE) * 1e9:
            self.say("stall", f"{began_ns} {ended_ns} {what}")

    def watch(self) -> None:
        """Tick until the end; say where the process stood still."""
        while not self.is_closing.is_set():
            began_ns = now_ns()
            self.is_closing.wait(TICK)
            self.stretch("process", began_ns, TICK)


class Told:
    """An `on_lost` that notes where it is called after the end of the validity."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.hold: Hold | None = None

    def __call__(self, lease: object, error: Exception) -> None:
        """Note a loss; another thread may call, or the loop."""
        if self.hold is None:  # lost before the acquire has returned
            return
        told_ns, end_ns = now_ns(), self.hold.valid_until_ns
        self._report.say("lost")
        if told_ns > end_ns + LATE_LOSS * 1e9:
            self._report.say("late", f"{end_ns} {told_ns} {error}")


class Harming(Told):
    """The same in a thread; a quarter of them then exit: no other is late.

    None takes long: one that blocks delays the calls behind it, as the page says.
    """

    def __call__(self, lease: object, error: Exception) -> None:
        """Note a loss, and do harm."""
        super().__call__(lease, error)
        if random() < 0.25:
            sys.exit("in on_lost")
