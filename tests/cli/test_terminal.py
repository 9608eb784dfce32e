"""Commands at a terminal: what is typed reaches the command as without a lock."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fastredlock import FastRedlock
from tests.cli.conftest import Gate, Terminal, stat
from tests.support.calls import granted
from tests.support.fixtures import Servers
from tests.support.keys import KEY, settled_values, values
from tests.support.waiting import wait_until

Open = Callable[..., Terminal]  # the fixture `terminal`


@pytest.fixture
def terminal(urls: list[str]) -> Iterator[Open]:
    """Return what opens a terminal for a command, on three of the shared masters."""
    with ExitStack() as opened:

        def start(*words: str) -> Terminal:
            started = Terminal(*words, FASTREDLOCK_MASTERS=",".join(urls[:3]))
            opened.callback(started.close)
            return started

        yield start


def test_terminal_when_ctrl_c_is_typed_then_the_command_is_interrupted_once(
    terminal: Open,
) -> None:
    loop = "until [ $n ]; do sleep 0.05; done; sleep 0.2; echo over; exit 4"
    script = f"trap 'echo got; n=1' INT; echo ready; read x; echo $x; {loop}"
    opened = terminal("run", KEY, "--", "sh", "-c", script)
    opened.wait_for("ready")
    opened.type("typed\n")
    opened.wait_for("typed\r\ntyped")
    opened.type("\x03")
    opened.wait_for("over")
    assert opened.end() == 4
    assert opened.seen.count("got") == 1


def test_terminal_when_ctrl_c_ends_the_command_then_we_end_by_it_as_well(
    terminal: Open, servers: Servers
) -> None:
    # No shell: one that has the signal as it is about to exec loses it.
    opened = terminal("run", KEY, "--", "cat")
    opened.type("ready\n")
    opened.wait_for("ready\r\nready")
    opened.type("\x03")
    assert opened.end() == -signal.SIGINT
    assert values(servers[:3]) == [None] * 3


# What puts the command into a group of its own, or does not.
GROUPS = [(), ("timeout", "60"), ("setsid", "-w")]


@pytest.mark.parametrize(
    ("by", "key", "name"),
    [*((by, "\x03", "INT") for by in GROUPS), ((), "\x1c", "QUIT")],
)
def test_terminal_when_the_command_leaves_our_group_then_keys_reach_it_all_the_same(
    terminal: Open, by: tuple[str, ...], key: str, name: str
) -> None:
    script = f"trap 'echo got; exit 4' {name}; echo ready; while :; do sleep 0.05; done"
    opened = terminal("run", KEY, "--", *by, "sh", "-c", script)
    opened.wait_for("ready")
    opened.type(key)
    opened.wait_for("got")
    assert opened.end() in (4, 124, 128 + getattr(signal, f"SIG{name}"))


@pytest.mark.slow
@pytest.mark.parametrize("by", [(), ("timeout", "60")])
def test_terminal_when_ctrl_z_is_typed_then_the_command_is_stopped_until_fg(
    terminal: Open, gate: Gate, by: tuple[str, ...]
) -> None:
    until = f"echo pid $$ ready; read x <{gate.path}"
    work = f"{sys.executable} -m fastredlock run {KEY} {' '.join(by)} sh -c '{until}'"
    jobs = f"{work}; echo stopped $?; read x; fg; echo over $?"
    opened = terminal("run", "shell", "--", "bash", "-mc", jobs)
    opened.wait_for(" ready")
    opened.type("\x1a")
    opened.wait_for("stopped 148")
    pid = int(opened.seen.split("pid ")[1].split()[0])
    assert wait_until(lambda: stat(pid)[0] == "T")
    opened.type("\n")
    gate.open()
    opened.wait_for("over 0")


@pytest.mark.slow
@pytest.mark.parametrize("stops_group", [False, True])
@pytest.mark.parametrize("continues_group", [False, True])
def test_terminal_when_its_job_is_stopped_then_all_of_it_stops_and_goes_on(
    terminal: Open, gate: Gate, stops_group: bool, continues_group: bool
) -> None:
    work = f"sh -c 'echo $PPID $$ ready; read x <{gate.path}; echo gone on'"
    ours = ("run", KEY, "sh", "-c", f"echo $PPID; {work}; exit")
    job = shlex.join((sys.executable, "-m", "fastredlock", *ours))
    opened = terminal("run", "shell", "--", "bash", "-mc", f"{job}; read x")
    opened.wait_for("ready")
    pids = [int(pid) for pid in re.findall(r"\d+", opened.seen)]  # ours first
    os.kill(-pids[0] if stops_group else pids[0], signal.SIGTSTP)
    assert wait_until(lambda: {stat(pid)[0] for pid in pids} == {"T"})
    os.kill(-pids[0] if continues_group else pids[0], signal.SIGCONT)
    assert wait_until(lambda: {stat(pid)[0] for pid in pids} == {"S"})
    gate.open()
    opened.wait_for("gone on")


def test_terminal_when_it_is_hung_up_then_the_command_ends(
    terminal: Open, servers: Servers
) -> None:
    """Seen: both went on for ever. The leader of a session gets it, and nobody else."""
    opened = terminal("run", KEY, "--", "sh", "-c", "echo ready; exec sleep 60")
    opened.wait_for("ready")
    opened.hang_up()
    assert opened.end() == 128 + signal.SIGHUP
    assert settled_values(servers[:3], [None] * 3) == [None] * 3


@pytest.mark.slow
def test_terminal_when_the_lock_is_held_then_shows_what_is_waited_for(
    terminal: Open, urls: list[str]
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks, locks.lock(KEY, ttl=60) as lease:
        opened = terminal("run", KEY, "--", "echo", "ran")
        opened.wait_for(f"waiting for 2 s: '{KEY}' is held by ann (token ")
        lease.release()
        opened.wait_for("ran")
        assert opened.end() == 0


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("", 1), ("y", 0)])
def test_break_when_asked_then_breaks_only_what_was_agreed_to(
    terminal: Open, urls: list[str], servers: Servers, answer: str, status: int
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks:
        locks.connect()  # else two connections are enough, and keys on two masters
        lease = granted(locks.acquire(KEY, ttl=60))
        assert settled_values(servers[:3], [lease.token] * 3) == [lease.token] * 3
        opened = terminal("break", KEY)
        opened.wait_for("[y/N]")
        asked = f"Break the lock of ann (token {lease.token_hash}, 3 of 3"
        assert asked in opened.seen
        opened.type(f"{answer}\n")
        assert opened.end() == status
        left = None if answer == "y" else lease.token
        assert settled_values(servers[:3], [left] * 3) == [left] * 3
