"""What `fastredlock run` waits for, printed once a while.

By SIGALRM and not by a thread: where the command is forked, no other thread may run.
The handler interrupts the acquire, so it asks the masters with a client of its own.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress

from .holding import seen
from .setup import new_reader

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    import argparse

    from .. import FastRedlock

FIRST, AGAIN = 2.0, 30.0  # s; a lock that is merely contended is not worth a line


class Waiting:
    """Print what is waited for, from now on until `end`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._began = time.monotonic()
        self._reader: FastRedlock | None = None
        is_at_terminal = sys.stderr is not None and sys.stderr.isatty()
        # A timer that runs already is our caller's, who exec'ed us under it.
        has_timer = signal.getitimer(signal.ITIMER_REAL)[0] > 0
        self._is_on = (asked.verbose or is_at_terminal) and not has_timer
        if self._is_on:
            self._handler = signal.signal(signal.SIGALRM, self._print)
            signal.setitimer(signal.ITIMER_REAL, FIRST, AGAIN)

    def _print(self, number: int, frame: object) -> None:
        waited = time.monotonic() - self._began
        if self._reader is None:
            self._reader = new_reader(self._asked)
        holding = seen(self._reader, self._asked.name, self._asked.permits)
        reasons = "" if holding.is_known else f": {'; '.join(map(str, holding.votes))}"
        with suppress(OSError):  # nobody reads it
            text = f"waiting for {waited:.0f} s: {holding}{reasons}"
            print(f"fastredlock run: {text}", file=sys.stderr)

    def end(self) -> None:
        """Print no more; may be called again."""
        if self._is_on:
            self._is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler)
        if self._reader is not None:
            self._reader.close()
