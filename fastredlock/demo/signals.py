"""Note the signals that ask the demo to end.

A handler that raises can hit between the start of a process and the line that
remembers it. This one only notes; the demo looks at the note between two steps.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import DemoError, ExitStatus


@dataclass(slots=True)
class Signals:
    """Hold which signal has come, if one has."""

    received: int | None = None

    def check(self) -> None:
        """Raise `DemoError` with status 128 + number if a signal has come."""
        if self.received is None:
            return
        name = signal.Signals(self.received).name
        raise DemoError(f"ended by {name}", ExitStatus.SIGNAL + self.received)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note SIGINT, SIGTERM and (unless ignored, as nohup does) SIGHUP meanwhile."""
        asked = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            asked.append(signal.SIGHUP)
        before = {each: signal.signal(each, self._note) for each in asked}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _note(self, number: int, frame: object) -> None:
        self.received = number
