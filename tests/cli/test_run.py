"""`fastredlock run`: a command under a lock, or under one slot of a semaphore."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastredlock import FastRedlock, Lease
from fastredlock._cli import child, run
from fastredlock.testing import LocalMasters
from tests.cli.conftest import Call, Gate, Start, as_user, is_alive, stat
from tests.support.calls import granted
from tests.support.fixtures import Servers, linux_calls
from tests.support.keys import KEY, delete, is_empty, values
from tests.support.masters import stop
from tests.support.waiting import PATIENCE, stopwatch, wait_until

NONE = "redis://127.0.0.1:1"  # a master that is not there
REFUSED = "127.0.0.1:1 FAILED (connection refused)"
SAY = "echo $FASTREDLOCK_RESOURCE $FASTREDLOCK_SLOT ${FASTREDLOCK_TOKEN:+token}"
# Signals 32 and 33, which no program can set: posix_spawn(3) ignores them in what it
# starts, and so does CPython 3.13 start the processes of pytest-xdist.
OF_GLIBC = 0b11 << 31
of_locks_and_slots = pytest.mark.parametrize("permits", [None, 2])


def options_of(permits: int | None) -> tuple[str, ...]:
    return () if permits is None else ("--permits", str(permits))


def take_all(locks: FastRedlock, permits: int | None) -> str:
    """Take the lock, or all slots; return how that is told of the holder ann."""
    for _ in range(permits or 1):
        granted(locks.acquire(KEY, ttl=60, permits=permits))
    if permits is None:
        return f"'{KEY}' is held by ann (token "
    all_ = (
        "its slot is taken, by ann" if permits == 1 else "all 2 are taken, by ann (2)"
    )
    return f"'{KEY}': {all_}"


def is_waited_for(locks: FastRedlock, permits: int | None = None) -> bool:
    """Whether a process waits for the lock, or for a slot."""
    found = locks.holders(KEY, permits=permits) if permits else [locks.holders(KEY)]
    return any(vote.waiting for vote in found[0])


# --- the command ----------------------------------------------------------------------


def test_run_when_the_command_ends_then_its_status_is_returned_and_the_lock_free(
    start: Start, servers: Servers
) -> None:
    told = 'cat; echo "$FASTREDLOCK_RESOURCE $FASTREDLOCK_TOKEN"; exit 7'
    command = start("run", KEY, "--", "sh", "-c", told, stdin="given\n")
    status, out, err = command.end()
    given, named = out.splitlines()
    assert (status, given, err) == (7, "given", "")
    assert re.fullmatch(rf"{KEY} [\w-]{{27}}@\S+:{command.process.pid}~\d{{10}}", named)
    command = start("run", "--permits", "3", KEY, "--", "sh", "-c", "exit 7")
    assert command.end() == (7, "", "")
    names = [KEY, *(f"{KEY}#{slot}" for slot in range(3))]
    assert [values(servers[:3], name) for name in names] == [[None] * 3] * 4


@of_locks_and_slots
def test_run_while_the_command_runs_then_it_holds_what_it_is_told_by_its_token(
    start: Start, servers: Servers, permits: int | None
) -> None:
    script = "echo $FASTREDLOCK_RESOURCE ${FASTREDLOCK_SLOT-none} $FASTREDLOCK_TOKEN"
    words = ("run", "--owner", "ann", *options_of(permits), KEY, "--", "sh", "-c")
    commands = [start(*words, f"{script}; sleep 60") for _ in range(permits or 1)]
    told = sorted(command.line().split() for command in commands)
    wanted = [[KEY, "none"], [f"{KEY}#0", "0"], [f"{KEY}#1", "1"]]
    assert [words[:2] for words in told] == (wanted[1:] if permits else wanted[:1])
    for resource, _, token in told:
        assert "@ann~" in token
        # Two connections are enough for a grant: the third may not be there yet.
        assert values(servers[:3], resource).count(token.encode()) >= 2
    names = {name for server in servers[:3] for name in server.scan_iter()}
    assert len(names) == len(commands)


@pytest.mark.parametrize(
    "words",
    [
        (KEY, "printf", "%s\n", "a b", "$HOME", "-n", "--", "-w", "--help", "*"),
        ("-w", "9", KEY, "printf", "%s\n", "-n", "--", "-w", "--help"),
        (KEY, "-w", "9", "printf", "%s\n", "-n", "--", "-w", "--help"),
        (KEY, "-w9", "--", "printf", "%s\n", "-n", "--", "-w", "--help"),
        ("--", KEY, "printf", "%s\n", "--", "-n", "--", "-w", "--help"),
    ],
)
def test_run_when_the_command_follows_the_name_then_no_word_of_it_is_ours(
    start: Start, words: tuple[str, ...]
) -> None:
    printed = words[words.index("%s\n") + 1 :]
    assert start("run", *words).end() == (0, "\n".join((*printed, "")), "")


def test_run_when_fencing_is_asked_for_then_the_command_has_a_number_that_grows(
    start: Start,
) -> None:
    words = (KEY, "sh", "-c", "echo ${FASTREDLOCK_FENCE-none} ${FASTREDLOCK_SLOT-none}")
    told = [start("run", "--fencing", *words).end()[1].split()[0] for _ in range(2)]
    assert 0 < int(told[0]) < int(told[1])
    inside = start("run", *words, FASTREDLOCK_FENCE="7", FASTREDLOCK_SLOT="4")
    assert inside.end() == (0, "none none\n", "")


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (("no-such-command",), 127, "'no-such-command': not found"),
        (("",), 127, "'': not found"),
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


def unshared(*options: str) -> tuple[str, ...]:
    """Return what begins a pid namespace."""
    apart = ("unshare", "--pid", *options)
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("a pid namespace needs root")
    return apart


def test_run_as_pid_1_when_the_command_leaves_orphans_then_reaps_them(
    start: Start,
) -> None:
    """From moby/moby: zombies until the container has no pid left."""
    apart = unshared("--fork", "--mount-proc", "--kill-child")
    zombies = "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
    script = f"for i in 1 2 3; do (sleep 0.1 &); done; sleep 0.6; {zombies}; exit 7"
    command = start("run", KEY, "--", "sh", "-c", script, by=apart)
    assert command.end() == (7, "0\n", "")


def test_run_when_pid_1_reaps_nothing_then_the_end_of_the_group_is_seen(
    start: Start,
) -> None:
    apart = unshared("--fork", "--mount-proc", "--kill-child")
    pid_1 = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    left = (
        "trap '' TERM; (sleep 0.3; echo worked) & trap - TERM"  # its child ignores it
    )
    script = f"{left}; kill -TERM $PPID; wait"
    by = (*apart, sys.executable, "-c", pid_1)
    command = start("run", KEY, "--", "sh", "-c", script, by=by)
    assert command.end() == (143, "worked\n", "")


def test_run_when_no_thread_can_be_started_then_it_is_an_error_of_the_system(
    start: Start,
) -> None:
    apart = unshared()  # it cannot fork twice: its first child was pid 1
    said = "fastredlock run: not kept: can't start new thread\n"
    assert start("run", KEY, "--", "true", by=apart).end() == (71, "", said)


# --- taken ----------------------------------------------------------------------------


@of_locks_and_slots
def test_run_when_others_hold_it_then_says_who_and_runs_nothing(
    start: Start, urls: list[str], permits: int | None
) -> None:
    words, end = ("run", *options_of(permits)), (KEY, "--", "echo", "ran")
    with FastRedlock(urls[:3], owner="ann") as locks:
        told = take_all(locks, permits)
        status, out, err = start(*words, "-n", *end).end()
        assert (status, out) == (1, "")
        assert re.match(r"fastredlock run: not taken in 0\.\d s: ", err)
        assert f" s: {told}" in err
        assert start(*words, "-w", "0.2", "-E", "9", *end).end()[0] == 9
        assert start(*words, "-n", "-E", "0", *end).end() == (0, "", "")
        others = start("run", "--permits", "3", "-n", *end).end()
        assert others == (0, "ran\n", "")


def test_run_when_shared_then_runs_beside_others_and_one_that_is_not_waits(
    start: Start, urls: list[str], servers: Servers, gate: Gate
) -> None:
    script = f"echo $FASTREDLOCK_RESOURCE; read x <{gate.path}"
    reads = [start("run", "-s", KEY, "--", "sh", "-c", script) for _ in "ab"]
    assert [command.line() for command in reads] == [KEY, KEY]
    once = ("-n", "-E", "9", KEY, "--", "true")
    assert start("run", *once).end()[0] == 9
    writes = start("run", KEY, "--", "sh", "-c", SAY)
    with FastRedlock(urls[:3]) as locks:
        assert wait_until(lambda: is_waited_for(locks))
    gate.open()
    gate.open()
    assert [command.end() for command in reads] == [(0, "", "")] * 2
    assert writes.end() == (0, f"{KEY} token\n", "")
    assert is_empty(servers[:3])


@of_locks_and_slots
def test_run_when_it_is_released_then_runs_at_once(
    start: Start, urls: list[str], permits: int | None
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks:
        lease = granted(locks.acquire(KEY, ttl=60, permits=permits))
        if permits:
            granted(locks.acquire(KEY, ttl=60, permits=permits))
        words = ("-w", "30", *options_of(permits), KEY, "--", "sh", "-c", SAY)
        command = start("run", *words)
        assert wait_until(lambda: is_waited_for(locks, permits))
        name = f"{KEY}#{lease.slot} {lease.slot} token" if permits else f"{KEY} token"
        lease.release()
        assert command.end() == (0, f"{name}\n", "")


def test_run_when_hosts_begin_one_after_another_then_at_least_lets_one_run(
    start: Start, servers: Servers
) -> None:
    words = ("-n", "-E", "0", "--at-least", "20", KEY, "--", "sh", "-c", "echo ran")
    with stopwatch() as watch:
        ended = [start("run", *words).end() for _ in range(3)]
        left = [server.pttl(KEY) for server in servers[:3]]
        least = 19_900 - 1000 * watch()
    assert ended == [(0, "ran\n", ""), (0, "", ""), (0, "", "")]
    assert sum(least < each <= 20_000 for each in left) >= 2  # of three
    status, _, err = start("run", "--at-least", "31", KEY, "--", "true").end()
    assert (status, "allowed is up to the ttl (30 s)" in err) == (64, True)


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1"])
def test_run_when_a_signal_comes_while_it_waits_then_ends_by_it_and_leaves_no_queue(
    start: Start, urls: list[str], name: str
) -> None:
    number = getattr(signal, f"SIG{name}")
    with FastRedlock(urls[:3]) as locks, locks.lock(KEY, ttl=60):
        command = start("run", KEY, "--", "echo", "ran")
        assert wait_until(lambda: is_waited_for(locks))
        while command.process.poll() is None:  # the first one counts
            command.send(number)
        assert command.end() in [(-number, "", ""), (128 + number, "", "")]
        assert wait_until(lambda: not is_waited_for(locks))


# --- signals --------------------------------------------------------------------------


def test_run_when_signals_are_sent_then_the_command_gets_each(start: Start) -> None:
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


# A shell that a signal ends does not wait for what it runs, as this one.
WORKER = """sh -c '
trap "sleep 0.3; echo told; sleep 0.5; exit" HUP INT QUIT TERM ALRM
echo ready
while :; do sleep 0.05; done' && echo followed"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HUP", "TERM", "ALRM"])
def test_run_when_a_signal_ends_a_shell_then_the_lock_is_held_until_its_work_ends(
    start: Start, urls: list[str], name: str
) -> None:
    number = getattr(signal, f"SIG{name}")
    permits = 1 if name == "TERM" else None
    command = start("run", *options_of(permits), KEY, "--", "sh", "-c", WORKER)
    assert command.line() == "ready"
    with FastRedlock(urls[:3]) as locks:
        command.send(number)
        assert command.line() == "told"
        assert locks.acquire(KEY, timeout=0, permits=permits) is None
        assert command.end()[:2] == (128 + number, "")
        granted(locks.acquire(KEY, timeout=0, permits=permits))


def test_run_when_the_command_ends_of_itself_then_its_background_is_not_waited_for(
    start: Start, servers: Servers
) -> None:
    script = "sleep 60 >/dev/null 2>&1 & echo $!; exit 3"
    command = start("run", KEY, "--", "sh", "-c", script)
    status, out, _ = command.end()
    assert (status, is_alive(int(out))) == (3, True)
    assert values(servers[:3]) == [None] * 3


@pytest.mark.slow
def test_run_when_it_was_stopped_then_goes_on_with_a_lock_that_is_valid(
    start: Start,
) -> None:
    """Seen: status 71, or SIGTERM although the lock was renewed at once."""
    script = "echo held; sleep 3; exit 7"
    command = start("run", "--ttl", "3", KEY, "--", "sh", "-c", script)
    assert command.line() == "held"
    command.send(signal.SIGSTOP)
    time.sleep(1.2)
    command.send(signal.SIGCONT)
    assert command.end() == (7, "", "")


# Threads of other tests are in this process, which `run` itself has none of.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_run_when_it_was_stopped_before_it_renews_then_the_lock_is_lost(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen once on CPython 3.12: status 70, as of a fault of ours."""
    keep = Lease.keep_alive

    def keep_late(lease: Lease, **options: object) -> None:
        assert wait_until(lambda: not lease.is_valid)
        keep(lease, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Lease, "keep_alive", keep_late)
    status, _, err = call("run", "--ttl", "1", KEY, "--", "sleep", "60")
    assert (status, err.endswith("; the command got SIGKILL\n")) == (75, True), err


# A shell with jobs: it leads the session, and who is stopped can be told to go on.
AS_JOB = (
    *(sys.executable, "-c"),
    "import os, subprocess, sys; "
    "sys.exit(subprocess.call(sys.argv[1:], preexec_fn=os.setpgrp))",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "ttl", "status"),
    [*((number, 30, 7) for number in child.STOPS), (signal.SIGTSTP, 2, 75)],
)
def test_run_when_told_to_stop_then_the_command_stops_and_goes_on_under_its_lock(
    start: Start, gate: Gate, number: signal.Signals, ttl: int, status: int
) -> None:
    """Seen: it stopped and the command did not, while another had the lock."""
    script = f"echo $PPID $$; read x <{gate.path}; exit 7"
    words = ("run", "--ttl", str(ttl), KEY, "--", "sh", "-c", script)
    command = start(*words, by=AS_JOB)
    pids = [int(pid) for pid in command.line().split()]
    os.kill(pids[0], number)
    assert wait_until(lambda: [stat(pid)[0] for pid in pids] == ["T", "T"])
    time.sleep(2.3 if status == 75 else 0)
    os.kill(pids[0], signal.SIGCONT)
    if status == 7:
        gate.open()
    assert command.end()[0] == status


# Waits in a vfork until its child, not yet another program, has opened a pipe (glibc).
IN_VFORK = """
import os, sys
print(os.getppid(), os.getpid(), flush=True)
opens = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
os.waitpid(os.posix_spawn("/bin/true", ["true"], {}, file_actions=[opens]), 0)
sys.exit(7)
"""


@linux_calls
@pytest.mark.slow
def test_run_when_told_to_stop_while_its_command_waits_in_a_vfork_then_it_stops(
    start: Start, tmp_path: Path
) -> None:
    """Seen 1 of 12 times: it hung; a shell is never seen to stop in there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = (sys.executable, "-c", IN_VFORK, str(pipe))
    command = start("run", KEY, "--", *program, by=AS_JOB)
    ours, theirs = (int(pid) for pid in command.line().split())
    assert wait_until(lambda: stat(theirs)[0] == "D")
    os.kill(ours, signal.SIGTSTP)
    assert wait_until(lambda: stat(ours)[0] == "T")
    os.kill(ours, signal.SIGCONT)
    with open(pipe, "r+b", buffering=0):
        assert command.end()[0] == 7


def test_run_when_nobody_could_let_it_go_on_then_a_stop_does_nothing(
    start: Start,
) -> None:
    script = "echo held; sleep 0.4; exit 7"
    command = start("run", KEY, "--", "sh", "-c", script)
    assert command.line() == "held"
    command.send(signal.SIGTSTP)
    assert command.end()[0] == 7


def test_run_when_its_command_is_stopped_then_a_signal_ends_it(start: Start) -> None:
    """Seen at a terminal: Ctrl-C did nothing to a job that waited for its input."""
    command = start("run", KEY, "--", "sh", "-c", "echo $$; kill -STOP $$; sleep 60")
    pid = int(command.line())
    assert wait_until(lambda: stat(pid)[0] == "T")
    command.send(signal.SIGINT)
    assert command.end()[0] == 130


@linux_calls
def test_run_when_only_zombies_of_others_are_left_then_it_ends(start: Start) -> None:
    """A daemon that reaps nothing has left a child in the group."""
    script = "(sleep 0.1 & exec setsid sleep 6) >/dev/null 2>&1 & echo; exec sleep 60"
    command = start("run", KEY, "--", "sh", "-c", script)
    command.line()
    time.sleep(0.2)
    began = time.monotonic()
    command.send(signal.SIGTERM)
    assert command.end()[0] == 143
    assert time.monotonic() - began < 4


@linux_calls
def test_zombies_when_a_main_thread_ended_before_another_then_it_is_none() -> None:
    code = (
        "import ctypes, threading, time; "
        "threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, preexec_fn=os.setpgrp) as process:
        try:
            assert wait_until(lambda: stat(process.pid)[0] == "Z")
            assert not child.is_of_zombies(process.pid)
        finally:
            process.kill()
        assert wait_until(lambda: child.is_of_zombies(process.pid))


# --- lost -----------------------------------------------------------------------------


@of_locks_and_slots
def test_run_when_the_lock_is_broken_then_the_whole_command_gets_sigterm(
    start: Start, permits: int | None
) -> None:
    script = "sleep 60 & echo $FASTREDLOCK_RESOURCE $!; wait"
    words = ("run", *options_of(permits), "--ttl", "1", KEY, "--", "sh", "-c", script)
    command = start(*words)
    resource, grandchild = command.line().split()
    assert start("break", "--yes", resource).end()[0] == 0
    status, _, err = command.end()
    assert status == 75
    assert err.startswith(f"fastredlock run: '{KEY}': lost: ")
    assert err.endswith("; the command got SIGTERM: status 143\n")
    assert wait_until(lambda: not is_alive(int(grandchild)))


@pytest.mark.parametrize(
    ("options", "script", "said"),
    [
        (
            ("--ttl", "1", "--kill-after", "0.2"),
            "trap '' TERM; echo held; sleep 60",
            "; the command got SIGTERM and SIGKILL: status 137\n",
        ),
        (  # what outlives the command is killed as well
            ("--ttl", "1", "--kill-after", "0.2"),
            "(trap '' TERM; echo held; exec sleep 60) & wait",
            "SIGTERM and SIGKILL: status 143",
        ),
        (
            (),
            "echo held; sleep 0.3; exit 3",
            "lost before the command ended by itself, with status 3",
        ),
    ],
)
def test_run_when_the_key_is_deleted_then_says_how_the_command_ended(
    start: Start, servers: Servers, options: tuple[str, ...], script: str, said: str
) -> None:
    command = start("run", *options, KEY, "--", "sh", "-c", script)
    assert command.line() == "held"
    delete(servers[:3])
    status, _, err = command.end()
    assert (status, said in err) == (75, True)


@linux_calls
def test_run_when_it_is_killed_then_the_command_is_killed_too(start: Start) -> None:
    command = start("run", KEY, "--", "sh", "-c", "echo $$; exec sleep 60")
    pid = int(command.line())
    command.send(signal.SIGKILL)
    assert command.process.wait(PATIENCE) == -signal.SIGKILL
    assert wait_until(lambda: not is_alive(pid))


# --- waiting through outages ----------------------------------------------------------


@pytest.mark.slow
def test_run_when_the_masters_are_away_then_waits_until_they_are_back(
    start: Start, masters: LocalMasters
) -> None:
    urls = masters.urls[:3]
    words, end = ("run", "--masters", ",".join(urls)), ("echo", "ran")
    with FastRedlock(urls, owner="ann") as locks:
        granted(locks.acquire(KEY, ttl=60))
        commands = [start(*words, KEY, *end)]  # waits in turn
        assert wait_until(lambda: is_waited_for(locks))
        stop(masters, 3)
        commands += [start(*words, "a", *end), start(*words, "-w", "60", "b", *end)]
        with pytest.raises(subprocess.TimeoutExpired):
            commands[-1].process.wait(1.5)
        assert [each.process.poll() for each in commands] == [None] * 3
        for i in range(3):
            masters.start(i)
        for status, said, logged in [each.end() for each in commands]:
            assert (status, said) == (0, "ran\n")
            assert re.fullmatch(r"(quorum: lost; .*\n)?", logged)  # that, and no more


def test_run_when_unreachable_tries_are_given_then_they_end_it(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "locks.toml"
    config.write_text("unreachable_tries = 2\n")
    words, end = ("run", "--masters", NONE), (KEY, "--", "echo", "ran")
    for once in (("-n",), ("--unreachable-tries", "1")):
        status, out, err = call(*words, *once, *end)
        assert (status, out, err.count("(connection refused)")) == (69, "", 1)
        said = "fewer than a quorum of masters could answer after 1 attempt in"
        assert said in err
        assert ("given up by --unreachable-tries" in err) == (once != ("-n",))
        assert "Retry(" not in err
    monkeypatch.setenv("FASTREDLOCK_CONFIG", str(config))
    status, _, err = call(*words, *end)
    assert (status, "after 2 attempts in" in err) == (69, True)
    status, _, err = call(*words, "--unreachable-tries", "1", *end)
    assert (status, "after 1 attempt in" in err) == (69, True)
    config.write_text("unreachable_tries = 0.5\n")
    status, _, err = call(*words, *end)
    assert (status, "unreachable_tries=0.5: allowed is 1 or more" in err) == (64, True)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("ann:pw@", "NOPERM "),
        ("bob:pw@", "NOPERM "),
        ("ann:wrong@", "WRONGPASS invalid username-password pair: correct it"),
        ("", "NOAUTH no password was given: redis://user:password@host"),
    ],
)
def test_run_when_no_waiting_cures_it_then_ends_at_once_with_the_remedy(
    call: Call, masters: LocalMasters, user: str, said: str
) -> None:
    """Seen: it waited for 22 minutes, and printed nothing about it."""
    urls = masters.urls[:3]
    for url in urls[1:]:  # no quorum is left
        as_user(url, "~other:* +@all")
        as_user(url, "~* +@all -set", name="bob")
        as_user(url, "~* +@all", name="default")
    given = ",".join([urls[0], *(url.replace("//", f"//{user}") for url in urls[1:])])
    began = time.monotonic()
    status, _, err = call("run", "-w", "9", "--masters", given, KEY, "--", "true")
    assert (status, said in err, "check --key" in err) == (69, True, True)
    assert time.monotonic() - began < 5  # without -w likewise, and never without this


# --- what it waits for ----------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let what it waits for be printed soon, and see that the timer is as before."""
    monkeypatch.setattr(run, "FIRST", 0.1)
    monkeypatch.setattr(run, "AGAIN", 0.2)
    handler = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is handler


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("permits", [None, 1])
def test_run_when_verbose_then_prints_what_it_waits_for_once_a_while(
    call: Call, urls: list[str], permits: int | None
) -> None:
    words = (*options_of(permits), "-w", "0.45", KEY, "--", "true")
    with FastRedlock(urls[:3], owner="ann") as locks:
        told = take_all(locks, permits)
        quiet = call("run", *words).err
        err = call("run", "--verbose", *words).err
    assert len(quiet.splitlines()) == 1
    *lines, last = err.splitlines()
    assert 1 <= len(lines) <= 4  # however long the last try takes; not one per try
    begin = f"fastredlock run: waiting for 0 s: {told}"
    assert all(line.startswith(begin) for line in lines)
    assert "not taken in 0." in last


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), REFUSED),
        (("--verbose",), REFUSED),
        (
            ("--verbose", "--permits", "2"),
            f"'{KEY}': not known: 0 of 1 masters answered, 1 are needed: {REFUSED}",
        ),
    ],
)
def test_run_when_it_waits_through_an_outage_then_prints_why(
    call: Call, words: tuple[str, ...], said: str
) -> None:
    status, _, err = call("run", *words, "-w", "1", "--masters", NONE, KEY, "true")
    first, *_ = lines = err.splitlines()
    assert (status, len(lines) > 1) == (69, True)
    assert 1000 <= int(re.findall(r" in (\d+) ms", lines[-1])[0]) < 3000
    assert first.startswith("fastredlock run: waiting for 0 s: ")
    assert first.endswith(said)
    assert words or len(lines) == 2  # once, and the error at the end
