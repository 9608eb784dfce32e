"""What `fastredlock run` waits for, printed once a while, and for what it does not.

By SIGALRM and not by a thread: where the command is forked, no other thread may run.
The handler interrupts the acquire, so it asks the masters with a client of its own.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import Retry
from .._reports.votes import votes_of
from .holding import seen
from .setup import new_reader

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from .. import FastRedlock, MasterVote
    from .._core import Engine, Round

FIRST, AGAIN = 2.0, 30.0  # s; a lock that is merely contended is not worth a line
REFUSED = "NOPERM", "WRONGPASS", "NOAUTH", "DENIED"


class Patience(Retry):
    """Wait through outages, which are printed once, and not for what no wait cures."""

    _began = 0.0
    _is_printed = False
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # of one acquire

    def _gives_up(self, tries: int, engine: Engine, round: Round) -> bool:
        votes, now = votes_of(engine, round), time.monotonic()
        if tries == 1:
            self._began = now
        waited = now - self._began
        if waited >= FIRST and not self._is_printed:
            self._is_printed = True
            if not signal.getitimer(signal.ITIMER_REAL)[0]:  # else Waiting prints it
                _print(f"waiting for {waited:.0f} s: {'; '.join(map(str, votes))}")
        return super()._gives_up(tries, engine, round) or is_refused(votes)


def is_refused(votes: Sequence[MasterVote]) -> bool:
    """Return whether logins or rights refuse so many votes that no quorum is left."""
    refused = sum(any(word in (vote.text or "") for word in REFUSED) for vote in votes)
    return len(votes) - refused <= len(votes) // 2


def _print(text: str) -> None:
    with suppress(OSError):  # nobody reads it
        print(f"fastredlock run: {text}", file=sys.stderr)


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
        _print(f"waiting for {waited:.0f} s: {holding}{reasons}")

    def end(self) -> None:
        """Print no more; may be called again."""
        if self._is_on:
            self._is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler)
        if self._reader is not None:
            self._reader.close()
