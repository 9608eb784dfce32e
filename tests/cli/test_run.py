"""`fastredlock run`: a command under a lock."""

from __future__ import annotations

import re
import signal

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters
from tests.cli.conftest import Start, is_alive
from tests.support.calls import granted
from tests.support.fixtures import linux_calls
from tests.support.keys import KEY, values
from tests.support.waiting import PATIENCE, wait_until

HOLD = ("sh", "-c", "echo held; sleep 60")
# Signals 32 and 33, which no program can set: posix_spawn(3) ignores them in what it
# starts, and so does CPython 3.13 start the processes of pytest-xdist.
OF_GLIBC = 0b11 << 31


# --- the command ----------------------------------------------------------------------


def test_run_when_the_command_ends_then_its_status_is_returned_and_the_lock_free(
    start: Start, servers: list[redis.Redis]
) -> None:
    told = 'cat; echo "$FASTREDLOCK_RESOURCE $FASTREDLOCK_TOKEN"; exit 7'
    command = start("run", KEY, "--", "sh", "-c", told, stdin="given\n")
    status, out, err = command.end()
    given, named = out.splitlines()
    assert (status, given, err) == (7, "given", "")
    assert re.fullmatch(rf"{KEY} [\w-]{{27}}@\S+:{command.process.pid}", named)
    assert values(servers[:3]) == [None] * 3


def test_run_while_the_command_runs_then_it_holds_the_lock_by_its_token(
    start: Start, servers: list[redis.Redis]
) -> None:
    command = start(
        "run", "--owner", "ann", KEY, "--", "sh", "-c", "echo $FASTREDLOCK_TOKEN; cat",
        stdin="",
    )  # fmt: skip
    token = command.line().encode()
    assert token.endswith(b"@ann")
    held = start("run", KEY, "--", "sh", "-c", "echo $FASTREDLOCK_TOKEN; sleep 60")
    token = held.line().encode()
    assert values(servers[:3]) == [token] * 3


def test_run_when_no_shell_is_asked_for_then_words_are_passed_as_they_are(
    start: Start,
) -> None:
    words = ("a b", "$HOME", "--", "-n", "*")
    assert start("run", KEY, "--", "printf", "%s\n", *words).end() == (
        0, "".join(f"{word}\n" for word in words), "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (("no-such-command",), 127, "'no-such-command': not found"),
        (("/etc/passwd",), 126, "'/etc/passwd' cannot be executed: Permission denied"),
        (("sh", "-c", "kill -9 $$"), 137, ""),
    ],
)
def test_run_when_the_command_does_not_end_by_itself_then_the_status_is_a_shells(
    start: Start, command: tuple[str, ...], status: int, said: str
) -> None:
    told = f"fastredlock run: {said}\n" if said else ""
    assert start("run", KEY, "--", *command).end() == (status, "", told)


def test_run_when_signals_are_blocked_by_us_then_the_command_has_them_as_usual(
    start: Start,
) -> None:
    script = "grep -E 'SigBlk|SigIgn' /proc/self/status"
    status, out, _ = start("run", KEY, "--", "sh", "-c", script).end()
    assert status == 0
    masks = [int(line.split()[1], 16) for line in out.splitlines()]
    assert [mask & ~OF_GLIBC for mask in masks] == [0, 0]


# --- taken ----------------------------------------------------------------------------


def test_run_when_the_lock_is_taken_then_says_who_holds_it_and_runs_nothing(
    start: Start, urls: list[str]
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks, locks.lock(KEY) as lease:
        status, out, err = start("run", "-n", KEY, "--", "echo", "ran").end()
        assert (status, out) == (1, "")
        assert f"not taken in 0.0 s: '{KEY}' is held by ann (token " in err
        assert lease.token_hash in err
        assert start("run", "-w", "0.2", "-E", "9", KEY, "--", "true").end()[0] == 9
        silent = start("run", "-n", "-E", "0", KEY, "--", "echo", "ran").end()
        assert silent == (0, "", "")


def test_run_when_the_lock_is_released_then_runs_at_once(
    start: Start, urls: list[str]
) -> None:
    with FastRedlock(urls[:3]) as locks:
        lease = granted(locks.acquire(KEY, ttl=60))
        command = start("run", "-w", "30", KEY, "--", "echo", "ran")
        assert wait_until(lambda: any(vote.waiting for vote in locks.holders(KEY)))
        lease.release()
        assert command.end() == (0, "ran\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_run_when_a_signal_comes_while_it_waits_then_ends_by_it_and_leaves_no_queue(
    start: Start, urls: list[str], number: signal.Signals
) -> None:
    with FastRedlock(urls[:3]) as locks, locks.lock(KEY, ttl=60):
        command = start("run", KEY, "--", "echo", "ran")
        assert wait_until(lambda: any(vote.waiting for vote in locks.holders(KEY)))
        command.send(number)
        assert command.end() == (-number, "", "")
        assert wait_until(lambda: not any(vote.waiting for vote in locks.holders(KEY)))


# --- signals --------------------------------------------------------------------------


def test_run_when_signals_are_sent_then_the_command_gets_each(
    start: Start,
) -> None:
    names = ("INT", "HUP", "QUIT", "USR1", "USR2", "TERM")
    traps = "".join(f"trap 'echo {name}' {name};" for name in names)
    script = f"{traps} echo ready; while :; do sleep 60 & wait; done"
    command = start("run", KEY, "--", "sh", "-c", script)
    assert command.line() == "ready"
    for name in names:
        command.send(getattr(signal, f"SIG{name}"))
        assert command.line() == name


def test_run_when_started_by_nohup_then_the_command_ignores_hangups_too(
    start: Start,
) -> None:
    script = "echo ready; sleep 0.3"
    command = start("run", KEY, "--", "sh", "-c", script, by=("nohup",))
    assert command.line() == "ready"
    command.send(signal.SIGHUP)
    assert command.end()[0] == 0


# --- lost -----------------------------------------------------------------------------


def test_run_when_the_lock_is_broken_then_the_whole_command_gets_sigterm(
    start: Start, urls: list[str]
) -> None:
    script = "sleep 60 & echo $!; wait"
    command = start("run", "--ttl", "1", KEY, "--", "sh", "-c", script)
    grandchild = int(command.line())
    assert start("break", "--yes", KEY).end()[0] == 0
    status, _, err = command.end()
    assert status == 75
    assert err.startswith(
        f"fastredlock run: '{KEY}': lost: expired or taken by another"
    )
    assert err.endswith("; the command got SIGTERM: status 143\n")
    assert wait_until(lambda: not is_alive(grandchild))


def test_run_when_the_command_ignores_sigterm_then_it_is_killed(
    start: Start, servers: list[redis.Redis]
) -> None:
    script = "trap '' TERM; echo held; sleep 60"
    options = ("--ttl", "1", "--kill-after", "0.2")
    command = start("run", *options, KEY, "--", "sh", "-c", script)
    assert command.line() == "held"
    for server in servers[:3]:
        server.delete(KEY)
    status, _, err = command.end()
    assert (status, err.partition("; the command got ")[2]) == (
        75, "SIGTERM and SIGKILL: status 137\n",
    )  # fmt: skip


@pytest.mark.slow
def test_run_when_the_masters_are_away_then_the_command_is_told_and_then_killed(
    start: Start, masters: LocalMasters
) -> None:
    script = "trap 'echo told; exec sleep 60' TERM; echo held; sleep 60 & wait"
    options = ("--ttl", "2", "--kill-after", "0.6")
    command = start(
        "run", *options, KEY, "--", "sh", "-c", script,
        FASTREDLOCK_MASTERS=",".join(masters.urls[:3]),
    )  # fmt: skip
    assert command.line() == "held"
    for index in range(3):
        masters.pause(index)
    assert command.line() == "told"
    status, _, err = command.end()
    assert status == 75
    assert f"'{KEY}': lost: " in err
    assert "SIGTERM and SIGKILL: status 137" in err


def test_run_when_the_lock_was_lost_unseen_then_says_so_at_the_end(
    start: Start, servers: list[redis.Redis]
) -> None:
    command = start("run", KEY, "--", "sh", "-c", "echo held; sleep 0.3; exit 3")
    assert command.line() == "held"
    for server in servers[:3]:
        server.delete(KEY)
    status, _, err = command.end()
    assert status == 75
    assert "lost before the command ended by itself, with status 3" in err


@linux_calls
def test_run_when_it_is_killed_then_the_command_is_killed_too(start: Start) -> None:
    command = start("run", KEY, "--", "sh", "-c", "echo $$; exec sleep 60")
    child = int(command.line())
    command.send(signal.SIGKILL)
    assert command.process.wait(PATIENCE) == -signal.SIGKILL
    assert wait_until(lambda: not is_alive(child))


def test_run_when_fewer_than_a_quorum_can_be_reached_then_runs_nothing(
    start: Start, masters: LocalMasters
) -> None:
    for index in (1, 2):
        masters.stop(index)
    urls = ",".join(masters.urls[:3])
    status, out, err = start("run", "--masters", urls, KEY, "--", "echo", "ran").end()
    assert (status, out) == (69, "")
    assert "fewer than a quorum of masters could answer" in err
    assert err.count("(connection refused)") == 2
