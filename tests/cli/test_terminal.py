"""Commands at a terminal: what is typed reaches the command as without a lock."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

from fastredlock import FastRedlock
from tests.cli.conftest import end_session, listen_to_all
from tests.support.calls import granted
from tests.support.keys import KEY, values
from tests.support.processes import environment_of_children
from tests.support.waiting import PATIENCE

# Makes its standard input the terminal of its session, which it leads.
IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "fastredlock", *sys.argv[1:]])
"""


class Terminal:
    """A command in the foreground of a terminal of its own."""

    def __init__(self, masters: str, *words: str) -> None:
        self._keys, screen = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, *words],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            preexec_fn=listen_to_all,
            env={**environment_of_children(), "FASTREDLOCK_MASTERS": masters},
        )
        os.close(screen)
        self.seen = ""

    def type(self, text: str) -> None:
        """Type it."""
        os.write(self._keys, text.encode())

    def wait_for(self, text: str) -> None:
        """Wait until it stands on the screen."""
        while text not in self.seen:
            assert select.select([self._keys], [], [], PATIENCE)[0], self.seen
            self.seen += self._read()

    def end(self) -> int:
        """Wait for the end of the command; return its exit status."""
        status = self.process.wait(PATIENCE)
        while select.select([self._keys], [], [], 0)[0] and (read := self._read()):
            self.seen += read
        return status

    def _read(self) -> str:
        try:
            return os.read(self._keys, 4096).decode()
        except OSError:  # EIO: nobody has the terminal any more
            return ""

    def close(self) -> None:
        """Leave nothing behind."""
        end_session(self.process.pid)
        self.process.wait()
        os.close(self._keys)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_terminal_when_ctrl_c_is_typed_then_the_command_is_interrupted_once(
    terminals: list[Terminal], urls: list[str]
) -> None:
    loop = "until [ $n ]; do sleep 0.05; done; sleep 0.2; exit 4"
    script = f"trap 'echo got; n=1' INT; echo ready; read x; echo $x; {loop}"
    terminals.append(Terminal(",".join(urls[:3]), "run", KEY, "--", "sh", "-c", script))
    (terminal,) = terminals
    terminal.wait_for("ready")
    terminal.type("typed\n")
    terminal.wait_for("typed\r\ntyped")
    terminal.type("\x03")
    terminal.wait_for("got")
    assert terminal.end() == 4
    assert terminal.seen.count("got") == 1


def test_terminal_when_ctrl_c_ends_the_command_then_we_end_by_it_as_well(
    terminals: list[Terminal], urls: list[str], servers: list[redis.Redis]
) -> None:
    # No shell: one that has the signal as it is about to exec loses it.
    terminals.append(Terminal(",".join(urls[:3]), "run", KEY, "--", "cat"))
    (terminal,) = terminals
    terminal.type("ready\n")
    terminal.wait_for("ready\r\nready")
    terminal.type("\x03")
    assert terminal.end() == -signal.SIGINT
    assert values(servers[:3]) == [None] * 3


@pytest.mark.slow
def test_terminal_when_the_lock_is_held_then_shows_what_is_waited_for(
    terminals: list[Terminal], urls: list[str]
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks, locks.lock(KEY, ttl=60) as lease:
        terminals.append(Terminal(",".join(urls[:3]), "run", KEY, "--", "echo", "ran"))
        (terminal,) = terminals
        terminal.wait_for(f"waiting for 2 s: '{KEY}' is held by ann (token ")
        lease.release()
        terminal.wait_for("ran")
        assert terminal.end() == 0


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("", 1), ("y", 0)])
def test_break_when_asked_then_breaks_only_what_was_agreed_to(
    terminals: list[Terminal], urls: list[str], answer: str, status: int
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks:
        lease = granted(locks.acquire(KEY))
        terminals.append(Terminal(",".join(urls[:3]), "break", KEY))
        (terminal,) = terminals
        terminal.wait_for("[y/N]")
        assert (
            f"Break the lock of ann (token {lease.token_hash}, 3 of 3" in terminal.seen
        )
        terminal.type(f"{answer}\n")
        assert terminal.end() == status
        assert (locks.holders(KEY)[0].owner is None) == (answer == "y")
