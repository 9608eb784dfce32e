"""The command that `fastredlock run` runs: started, watched, ended with the lock.

docs/command-line.md has what a user sees of groups and signals. A group may live on
when its leader has ended, so the lock is kept until the group is empty: no new process
gets its id before (fork() of POSIX). On Linux the orphans become children of this
process, so each is reaped, and the command is killed where this process is (SIGKILL, no
memory): nobody would renew the lock.

Signals: while this process waits for the lock, each of them raises `Interrupted`, which
takes the acquire back. From `hold` on they are blocked, in all threads, and taken one
by one by `next`: so none is lost between two steps, none runs a handler in the middle
of one, and who has sent it is known. One that was ignored at the start is left alone.
One that stops us stops the command first, for it must not work alone.
"""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from glob import iglob
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from .._core import adopt_orphans, end_with_parent
from .._reports.votes import printable
from . import Status

if TYPE_CHECKING:
    from .. import Lease, LeaseLostError


STOPS = signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU
PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    signal.SIGALRM,  # of a caller that set an alarm, and exec'ed us
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH),
    *STOPS,
)
ENDING = frozenset(PASSED_ON[:5])
OF_TERMINAL = signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, *STOPS  # of all there
OF_COMMAND = signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH  # not of its group
# By Python, for itself; a command must not be started so (python/cpython#55112).
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
LOOK_EVERY = 1.0  # s: timers stop while the machine is suspended
LATE = 0.2  # s


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
        self._waited = {*self.taken, signal.SIGCHLD, signal.SIGALRM}
        self._mask: set[int] = set()
        self._is_interrupted = False
        self._alarm_at = math.inf  # of our caller

    def let_raise(self) -> None:
        """From now on raise Interrupted where one comes that would end this process."""
        for each in {*ENDING, signal.SIGUSR1, signal.SIGUSR2} & {*self.taken}:
            signal.signal(each, self._interrupt)
        # Else some systems drop it although it is blocked: it does nothing by default.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _interrupt(self, number: int, frame: object) -> None:
        if not self._is_interrupted:  # else it would end the release
            self._is_interrupted = True
            raise Interrupted(number)

    def hold(self) -> None:
        """Block them from now on, in threads that are started later, too."""
        self._mask = {*signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)}
        if left := signal.getitimer(signal.ITIMER_REAL)[0]:
            self._alarm_at = time.monotonic() + left

    def next(self, timeout: float) -> tuple[int, bool] | None:
        """Wait for one, for so many s; return it, and whether the kernel sent it.

        SIGCHLD among them. sigtimedwait() would return what was never filled where this
        process was stopped (CPython 3.11 to 3.15).
        """
        left = min(timeout, self._alarm_at - time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, max(left, 1e-6))
        if hasattr(signal, "sigwaitinfo"):
            info = signal.sigwaitinfo(self._waited)
            number, is_of_kernel = info.si_signo, info.si_code > 0  # sigaction(2)
        else:
            number = signal.sigwait(self._waited)
            is_of_kernel = number == signal.SIGALRM or is_in_foreground()
        signal.setitimer(signal.ITIMER_REAL, 0)
        if number == signal.SIGALRM and is_of_kernel:
            if time.monotonic() < self._alarm_at:
                return None
            self._alarm_at = math.inf
        return number, is_of_kernel

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


def is_of_zombies(group: int) -> bool:
    """Whether nothing runs in a group: its parents do not reap it (seen on Linux).

    Looks twice: one that is found dead may have forked after /proc was listed.
    """
    looks = (iglob("/proc/[0-9]*/stat") for _ in range(2))
    for path in chain.from_iterable(looks):
        with suppress(FileNotFoundError, ProcessLookupError), open(path, "rb") as file:
            stat = file.read().rpartition(b")")[2].split()
            # A main thread may end before others: proc(5), num_threads.
            is_zombie = stat[0] in b"ZX" and int(stat[17]) < 2
            if int(stat[2]) == group and not is_zombie:
                return False
    return os.path.exists("/proc/1/stat")  # else other users' are hidden, or all


def is_in_the_kernel(pid: int) -> bool:
    """Return whether it waits in a call that no stop ends: a vfork, its child stopped.

    It is never seen to have stopped then; and runs nothing before it has.
    """
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"D"
    return False


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
        self._is_in_foreground = is_in_foreground()
        self._code: int | None = None  # of the command, from its end on
        self._is_ending = False  # by a signal: its group is to end before us
        self._stop_by = 0  # the signal that is to stop us once it has stopped
        self._expected = lease.remaining()  # s, at the next look
        self._grace_until = 0.0  # after a stop: it is being renewed
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
        adopt_orphans()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._become(command, environment, parent)
        if not self._is_in_foreground:
            with suppress(OSError):  # it has done so itself, and may be gone
                os.setpgid(self._pid, self._pid)

    def _become(
        self, command: list[str], environment: dict[bytes, bytes], parent: int
    ) -> NoReturn:
        status = Status.NOT_EXECUTABLE
        try:
            if not self._is_in_foreground:
                os.setpgid(0, 0)
            end_with_parent(signal.SIGKILL)
            if os.getppid() == parent:  # else it died before that call
                self._signals.restore()
                if not command[0]:
                    raise FileNotFoundError
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
            self._look()
            came = self._signals.next(self._time_to_look())
            if came is not None and came[0] != signal.SIGCHLD:
                self._pass_on(*came)
            self._reap()
            if came is None and self._stop_by and is_in_the_kernel(self._pid):
                self._stop()
            if self._code is not None and not self._goes_on(is_quiet=came is None):
                return self._ended(self._code)

    def _reap(self) -> None:
        flags = os.WNOHANG | (os.WUNTRACED if self._stop_by else 0)
        with suppress(ChildProcessError):  # none is left
            while (ended := os.waitpid(-1, flags))[0]:  # orphans, too
                if ended[0] != self._pid:
                    continue
                if os.WIFSTOPPED(ended[1]):
                    return self._stop()
                self._code = os.waitstatus_to_exitcode(ended[1])
                self._is_ending |= self._code < 0

    def _stop(self) -> None:
        """Stop, as the command has, which goes on after a look at the lock."""
        number, self._stop_by = self._stop_by, 0
        shares_group = not self._leads_group()  # with what the command has started
        os.kill(0 if shares_group else os.getpid(), number)
        # Stops here, once; not where nobody could let us go on (a session's leader).
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
        self._look()
        if shares_group:
            os.kill(0, signal.SIGCONT)
        self._send(signal.SIGCONT)

    def _leads_group(self) -> bool:
        """Whether there is a process in a group of the command's own."""
        try:
            os.killpg(self._pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # of sudo
            pass
        return True

    def _goes_on(self, *, is_quiet: bool) -> bool:
        """Whether the command was ended before what it has started."""
        is_left = self._is_ending and self._leads_group()
        return is_left and not (is_quiet and is_of_zombies(self._pid))

    def kill(self) -> None:
        """Kill it, and wait for its end: nothing may watch it any more."""
        self._send(signal.SIGKILL)
        if self._code is None:
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)

    # --- signals ----------------------------------------------------------------------

    def _pass_on(self, number: int, is_of_kernel: bool) -> None:
        is_typed = is_of_kernel and number in OF_TERMINAL
        self._was_interrupted |= is_typed and number == signal.SIGINT
        self._stop_by = number if number in STOPS else 0
        if not is_typed or self._leads_group():  # else the terminal has sent it to it
            self._send(signal.SIGSTOP if self._stop_by else number)

    def _send(self, number: int) -> None:
        is_of_group = number not in OF_COMMAND and self._leads_group()
        self._is_ending |= is_of_group and number in ENDING
        with suppress(ProcessLookupError, PermissionError):  # sudo's, of another user
            if is_of_group:
                os.killpg(self._pid, number)
            elif self._code is None:  # else the number may be another's
                os.kill(self._pid, number)
        if number in ENDING:  # which one that is stopped does not see
            self._send(signal.SIGCONT)

    # --- the lock ---------------------------------------------------------------------

    def _time_to_look(self) -> float:
        if self._was_killed:
            return LOOK_EVERY
        now = time.monotonic()
        remaining = self._lease.remaining()
        if self._kill_at is not None:
            left = self._kill_at - now
        else:
            left = max(remaining - self._kill_after, self._grace_until - now)
        left = min(max(left, 0.0), LOOK_EVERY)
        self._expected = remaining - left
        return left

    def _look(self) -> None:
        """Send SIGTERM where the lock is lost, or will be; SIGKILL in time."""
        now = time.monotonic()
        if self._kill_at is None:
            left = self._lease.remaining()
            if left > self._kill_after:
                self._grace_until = 0.0
            elif not self._grace_until and left < self._expected - LATE:
                self._grace_until = now + left / 2
            if left > self._kill_after or now < self._grace_until:
                return
            self._kill_at = now + (left or self._kill_after)
            self._send(signal.SIGTERM)
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
