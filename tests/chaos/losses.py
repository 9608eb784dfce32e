"""Losses of leases that are kept: whether they are told in time."""

from __future__ import annotations

import sys
import time
from random import random

from .ledger import Hold, now_ns
from .report import Report

LATE = 0.25  # s; on a busy machine; what asks the lease learns it at once all the same


class Told:
    """An `on_lost` that says so where it is called after the end of the validity."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.hold: Hold | None = None

    def __call__(self, lease: object, error: Exception) -> None:
        """Note a loss; another thread may call, or the loop."""
        if self.hold is None:  # lost before the acquire has returned
            return
        told_ns, end_ns = now_ns(), self.hold.valid_until_ns
        self._report.say("lost")
        if told_ns > end_ns + LATE * 1e9:
            self._report.say("late", f"{end_ns} {told_ns} {error}")


class Harming(Told):
    """The same in a thread; half of them then take long or exit: no other is late."""

    HARM = 5.0  # s

    def __call__(self, lease: object, error: Exception) -> None:
        """Note a loss, and do harm."""
        super().__call__(lease, error)
        harm = random()
        if harm < 0.25:
            time.sleep(self.HARM)
        elif harm < 0.5:
            sys.exit("in on_lost")
