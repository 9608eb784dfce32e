"""The commands of `fastredlock`, a file for each; their exit status and their error.

Those of sysexits.h, which flock(1) uses too: few programs end by one of them, so the
status of a command of `fastredlock run` differs from our own.
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """How a command ended; `--help` of each lists those it has."""

    OK = 0
    TAKEN = 1  # run: -E changes it
    NOT_HELD = 1  # who, break
    WARNING = 1  # check: as monitoring plugins have it
    CRITICAL = 2
    USAGE = 64  # EX_USAGE
    UNREACHABLE = 69  # EX_UNAVAILABLE
    INTERNAL = 70  # EX_SOFTWARE
    SYSTEM = 71  # EX_OSERR: a full disk, too many processes
    LOST = 75  # EX_TEMPFAIL
    NOT_EXECUTABLE = 126  # as a shell has it
    NOT_FOUND = 127
    SIGNAL = 128  # + the signal's number


class CommandError(Exception):
    """End the command with a message for its user and a status for the shell."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
