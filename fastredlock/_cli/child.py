"""The command that `fastredlock run` runs: started, watched, ended with the lock.

It is in the foreground of the terminal where this process is, in the same process
group: Ctrl-C, Ctrl-Z and what is typed reach it as if there were no lock. Elsewhere it
leads a group of its own, which is ended as a whole where the lock is lost. On Linux it
is killed where this process is (SIGKILL, no memory): nobody would renew the lock.

Signals: before, while this process waits for the lock, each of them raises
`Interrupted`, which takes the acquire back. From `hold` on they are blocked, in all
threads, and taken one by one by `next`: so none is lost between two steps, none runs a
handler in the middle of one, and who has sent it is known. One that was ignored at the
start (nohup, a job in the background of a script) is left alone, and its command
ignores it, too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from .._core import end_with_parent
from .._reports.votes import printable
from . import Status

if TYPE_CHECKING:
    from .. import Lease, LeaseLostError


PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH),
)
ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM))
# By Python, for itself; a command must not be started so (python/cpython#55112).
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
LOOK_EVERY = 1.0  # s: timers stop while the machine is suspended


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
        self._waited = [*self.taken, signal.SIGCHLD]
        self._mask: set[int] = set()

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise Interrupted where one comes meanwhile that would end this process."""
        for each in ENDING & {*self.taken}:
            signal.signal(each, _interrupt)
        # Else some systems drop it although it is blocked: it does nothing by default.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        yield

    def hold(self) -> None:
        """Block them from now on, in threads that are started later, too."""
        self._mask = {*signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)}

    def next(self, timeout: float) -> tuple[int, bool] | None:
        """Wait for one, for so many s; return it, and whether the terminal sent it.

        SIGCHLD among them. The terminal sends its signals to the command as well.
        """
        if hasattr(signal, "sigtimedwait"):
            info = signal.sigtimedwait(self._waited, timeout)
            # Sent by the kernel itself: sigaction(2), SI_KERNEL.
            return None if info is None else (info.si_signo, info.si_code > 0)
        signal.setitimer(signal.ITIMER_REAL, max(timeout, 1e-6))
        number = signal.sigwait([*self._waited, signal.SIGALRM])
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


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted(number)


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


# ---- the command


class Ended(NamedTuple):
    """How it ended: the status for the shell; why the lock was lost, or ""."""

    status: int
    reason: str = ""
    is_interrupted: bool = False  # by Ctrl-C at the terminal


class Child:
    """The running command, under the lease that it needs."""

    def __init__(
        self, command: list[str], lease: Lease, signals: Signals, kill_after: float
    ) -> None:
        self._lease = lease
        self._signals = signals
        self._kill_after = kill_after
        self._shares_group = is_in_foreground()
        self._kill_at: float | None = None  # SIGTERM was sent
        self._was_killed = False
        self._was_interrupted = False
        self._error: LeaseLostError | None = None
        environment = {
            **os.environb,
            b"FASTREDLOCK_RESOURCE": os.fsencode(lease.resource),  # type: ignore[arg-type]
            b"FASTREDLOCK_TOKEN": lease.token,
        }
        for name in (b"FASTREDLOCK_FENCE", b"FASTREDLOCK_SLOT"):
            environment.pop(name, None)  # of a lock around this one
        if fence := getattr(lease, "fence", None):  # with fencing alone
            environment[b"FASTREDLOCK_FENCE"] = b"%d" % fence
        slot = getattr(lease, "slot", None)
        if slot is not None:  # with permits alone; adopt() takes the slot's own name
            environment[b"FASTREDLOCK_RESOURCE"] += b"#%d" % slot
            environment[b"FASTREDLOCK_SLOT"] = b"%d" % slot
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._become(command, environment, parent)
        if not self._shares_group:
            with suppress(OSError):  # it has done so itself, and may be gone
                os.setpgid(self._pid, self._pid)

    def _become(
        self, command: list[str], environment: dict[bytes, bytes], parent: int
    ) -> NoReturn:
        status = Status.NOT_EXECUTABLE
        try:
            if not self._shares_group:
                os.setpgid(0, 0)
            end_with_parent(signal.SIGKILL)
            if os.getppid() == parent:  # else it died before that call
                self._signals.restore()
                os.execvpe(command[0], command, environment)
        except (FileNotFoundError, NotADirectoryError):
            status = Status.NOT_FOUND
            _print(f"{command[0]!r}: not found")
        except BaseException as error:
            text = error.strerror if isinstance(error, OSError) else repr(error)
            _print(f"{command[0]!r} cannot be executed: {text}")
        finally:
            os._exit(status)

    def on_lost(self, lease: Lease, error: LeaseLostError) -> None:
        """Note a loss; another thread comes here."""
        self._error = error
        self._signals.wake()

    def wait(self) -> Ended:
        """Wait for the end of the command; end it where the lock is lost."""
        while True:
            came = self._signals.next(self._time_to_look())
            if came is not None and came[0] != signal.SIGCHLD:
                self._pass_on(*came)
            pid = -1
            while pid not in (0, self._pid):  # as pid 1 it has orphans, to be reaped
                pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                return self._ended(os.waitstatus_to_exitcode(status))
            self._look()

    def kill(self) -> None:
        """Kill it, and wait for its end: nothing may watch it any more."""
        self._send(signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    # --- signals ----------------------------------------------------------------------

    def _pass_on(self, number: int, is_of_terminal: bool) -> None:
        if is_of_terminal and self._shares_group:
            self._was_interrupted |= number == signal.SIGINT
        else:
            os.kill(self._pid, number)

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self._shares_group:
                os.kill(self._pid, number)
            else:
                os.killpg(self._pid, number)

    # --- the lock ---------------------------------------------------------------------

    def _time_to_look(self) -> float:
        if self._kill_at is not None:
            left = self._kill_at - time.monotonic()
        else:
            left = self._lease.remaining() - self._kill_after
        return min(max(left, 0.0), LOOK_EVERY) if not self._was_killed else LOOK_EVERY

    def _look(self) -> None:
        """Send SIGTERM where the lock is lost, or will be; SIGKILL in time."""
        now = time.monotonic()
        if self._kill_at is None:
            left = self._lease.remaining()
            if left > self._kill_after:
                return
            self._kill_at = now + (left or self._kill_after)
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)  # one that is stopped does not see it
        elif not self._was_killed and now >= self._kill_at:
            self._was_killed = True
            self._send(signal.SIGKILL)

    def _ended(self, code: int) -> Ended:
        status = code if code >= 0 else Status.SIGNAL - code
        if self._kill_at is None:
            is_interrupted = self._was_interrupted and code == -signal.SIGINT
            return Ended(status, "", is_interrupted)
        sent = "SIGTERM and SIGKILL" if self._was_killed else "SIGTERM"
        name = printable(self._lease.resource)
        why = self._error or f"{name}: lost: it could not be renewed in time"
        return Ended(Status.LOST, f"{why}; the command got {sent}: status {status}")


def _print(text: str) -> None:
    os.write(2, f"fastredlock run: {text}\n".encode(errors="replace"))
