"""A command of `fastredlock` that runs, as its users start it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import pytest
import redis

from fastredlock import cli
from fastredlock._cli.child import PASSED_ON
from tests.support.processes import environment_of_children
from tests.support.waiting import PATIENCE

SIGNALS = (*PASSED_ON, signal.SIGCHLD)  # that `run` handles


class Command:
    """Hold one running command; what it says is read at its end."""

    patience = PATIENCE  # s for a line, and for the end

    def __init__(
        self, *words: str, stdin: str = "", by: tuple[str, ...] = (), **env: str
    ) -> None:
        environment = {**environment_of_children(), **env}
        self.process = subprocess.Popen(
            [*by, sys.executable, "-m", "fastredlock", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in environment.items() if value},
            text=True,
            start_new_session=True,
            preexec_fn=listen_to_all,
        )
        assert self.process.stdin is not None
        with self.process.stdin:
            self.process.stdin.write(stdin)
        self.process.stdin = None

    def line(self) -> str:
        assert self.process.stdout is not None
        timer = Timer(self.patience, end_session, [self.process.pid])
        timer.start()
        try:
            return self.process.stdout.readline().rstrip("\n")
        finally:
            timer.cancel()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=self.patience)
        return self.process.returncode, out, err

    def kill(self) -> None:
        end_session(self.process.pid)
        self.process.communicate()


# Makes its standard input the terminal of its session, which it leads.
IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "fastredlock", *sys.argv[1:]])
"""


class Terminal:
    """A command in the foreground of a terminal of its own."""

    patience = PATIENCE  # s for a text, and for the end

    def __init__(self, *words: str, **env: str) -> None:
        self._keys, screen = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, *words],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            preexec_fn=listen_to_all,
            env={**environment_of_children(), **env},
        )
        os.close(screen)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._keys, text.encode())

    def wait_for(self, text: str) -> None:
        while text not in self.seen:
            assert select.select([self._keys], [], [], self.patience)[0], self.seen
            try:
                self.seen += os.read(self._keys, 4096).decode()
            except OSError:  # EIO: nobody has the terminal any more
                pytest.fail(f"ended: {self.seen}")

    def hang_up(self) -> None:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), self._keys)

    def end(self) -> int:
        return self.process.wait(self.patience)

    def close(self) -> None:
        end_session(self.process.pid)
        self.process.wait()
        os.close(self._keys)


def listen_to_all() -> None:
    """Ignore no signal: in the background of a script some are, from there on."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


class Gate:
    """What a shell waits for by `read x <PATH`; stopped meanwhile, its state is T."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._end = os.open(path, os.O_RDWR)  # does not block: fifo(7)

    def open(self) -> None:
        os.write(self._end, b"\n")

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with closing(Gate(tmp_path / "gate")) as gate:
        yield gate


def as_user(url: str, rules: str, name: str = "ann") -> str:
    """Let a user have these rights alone on a master; return their URL of it."""
    with redis.Redis.from_url(url) as server:
        server.execute_command(*f"ACL SETUSER {name} reset on >pw {rules}".split())
    return url.replace("//", f"//{name}:pw@")


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0", "0", "0"]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent does not."""
    return stat(pid)[0] not in "ZX"


def session_of(leader: int) -> list[int]:
    """List the processes that run in the session of a command of ours."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in numbers if stat(pid)[3] == str(leader) and is_alive(pid)]


def end_session(leader: int) -> None:
    """Kill all of a session that a command of ours has led; they may fork meanwhile."""
    while pids := session_of(leader):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


Start = Callable[..., Command]  # the fixture `start`


@pytest.fixture
def start(urls: list[str]) -> Iterator[Start]:
    """Return what starts a command on three of the shared masters."""
    commands: list[Command] = []

    def start(*words: str, **options: Any) -> Command:
        options.setdefault("FASTREDLOCK_MASTERS", ",".join(urls[:3]))
        commands.append(Command(*words, **options))
        return commands[-1]

    yield start
    for command in commands:
        command.kill()


class Said(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str


Call = Callable[..., Said]  # the fixture `call`


@pytest.fixture
def call(
    urls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Return what runs a command on three of the shared masters, in this process."""
    monkeypatch.setenv("FASTREDLOCK_MASTERS", ",".join(urls[:3]))

    def call(*words: str) -> Said:
        capsys.readouterr()
        handlers = {each: signal.getsignal(each) for each in SIGNALS}
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            status = cli.main(words)
        except SystemExit as ended:
            status = int(str(ended.code))
        finally:  # `run` changes them for the rest of a process
            for each, handler in handlers.items():
                signal.signal(each, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return Said(status, *capsys.readouterr())

    return call
