"""Commands at a terminal: what is typed reaches the command as without a lock."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fastredlock import FastRedlock
from tests.cli.conftest import Terminal
from tests.support.calls import granted
from tests.support.fixtures import Servers
from tests.support.keys import KEY, settled_values, values

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
