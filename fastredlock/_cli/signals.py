"""The signals of `fastredlock run`, before and while its command runs.

Before, while it waits for the lock, each of them raises `Interrupted`, which takes the
acquire back. From `hold` on they are blocked, in all threads, and taken one by one by
`next`: so none is lost between two steps, none runs a handler in the middle of one, and
who has sent it is known. One that was ignored at the start (nohup, a job in the
background of a script) is left alone, and its command ignores it, too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH),
)
ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM))
# By Python, for itself; a command must not be started so (python/cpython#55112).
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Interrupted(BaseException):
    """End the wait for the lock: a signal has come."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Hold which signals there are, and what they did at the start."""

    def __init__(self) -> None:
        self.taken = [
            each for each in PASSED_ON if signal.getsignal(each) is not signal.SIG_IGN
        ]
        self._mask: set[int] = set()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise Interrupted where one comes meanwhile that would end this process."""
        for each in ENDING & {*self.taken}:
            signal.signal(each, _interrupt)
        # Else some systems drop it although it is blocked: it does nothing by default.
        signal.signal(signal.SIGCHLD, _nothing)
        yield

    def hold(self) -> None:
        """Block them from now on, in threads that are started later, too."""
        self._mask = {*signal.pthread_sigmask(signal.SIG_BLOCK, self._waited())}

    def next(self, timeout: float) -> tuple[int, bool] | None:
        """Wait for one, for so many s; return it, and whether the terminal sent it.

        SIGCHLD among them. The terminal sends its signals to the command as well.
        """
        waited = self._waited()
        if hasattr(signal, "sigtimedwait"):
            info = signal.sigtimedwait(waited, timeout)
            # Sent by the kernel itself: sigaction(2), SI_KERNEL.
            return None if info is None else (info.si_signo, info.si_code > 0)
        signal.setitimer(signal.ITIMER_REAL, max(timeout, 1e-6))
        number = signal.sigwait([*waited, signal.SIGALRM])
        signal.setitimer(signal.ITIMER_REAL, 0)
        if number == signal.SIGALRM:
            return None
        keys = (signal.SIGINT, signal.SIGQUIT)
        return number, number in keys and is_in_foreground()

    def wake(self) -> None:
        """End the wait of `next`; any thread may."""
        os.kill(os.getpid(), signal.SIGCHLD)

    def restore(self) -> None:
        """In a forked child: let all be as they were at the start of this process."""
        for each in self.taken:
            signal.signal(each, signal.SIG_DFL)
        for each in (*IGNORED_BY_PYTHON, signal.SIGCHLD):
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _waited(self) -> list[int]:
        return [*self.taken, signal.SIGCHLD]


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted(number)


def _nothing(number: int, frame: object) -> None:
    """Be a handler, so that the signal is not ignored."""


def is_in_foreground() -> bool:
    """Whether this process is in the foreground of a terminal, whose keys reach it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def die_by(number: int) -> int:
    """End this process by the signal, so that a shell sees it; else return a status."""
    if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    return 128 + number
