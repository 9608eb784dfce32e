"""Hold the ways the demo can end without a report; each carries its exit status."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of `fastredlock demo`; `fastredlock demo --help` lists them."""

    OK = 0
    LOST_UPDATES = 1
    CANNOT_RUN = 2
    UNREACHABLE = 3
    WORKER_DIED = 4
    SIGNAL = 128  # + the signal's number: 130 for Ctrl-C, 143 for SIGTERM


class DemoError(Exception):
    """End the demo with a message for its user and a status for the shell."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
