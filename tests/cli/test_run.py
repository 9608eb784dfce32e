"""`fastredlock run`: a command under a lock."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock._cli import run
from fastredlock.testing import LocalMasters
from tests.cli.conftest import Call, Start, is_alive
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
    "words",
    [
        ("run", KEY, "printf", "%s\n", "-n", "--", "-w", "--help"),
        ("run", "-w", "9", KEY, "printf", "%s\n", "-n", "--", "-w", "--help"),
        ("run", KEY, "-w", "9", "printf", "%s\n", "-n", "--", "-w", "--help"),
        ("run", KEY, "-w9", "--", "printf", "%s\n", "-n", "--", "-w", "--help"),
        ("run", "--", KEY, "printf", "%s\n", "-n", "--", "-w", "--help"),
    ],
)
def test_run_when_the_command_follows_the_name_then_no_word_of_it_is_ours(
    start: Start, words: tuple[str, ...]
) -> None:
    assert start(*words).end() == (0, "-n\n--\n-w\n--help\n", "")


def test_run_when_fencing_is_asked_for_then_the_command_has_a_number_that_grows(
    start: Start,
) -> None:
    words = (KEY, "sh", "-c", "echo ${FASTREDLOCK_FENCE-none}")
    told = [start("run", "--fencing", *words).end()[1] for _ in range(2)]
    assert 0 < int(told[0]) < int(told[1])
    assert start("run", *words, FASTREDLOCK_FENCE="7").end()[1] == "none\n"


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


def test_run_as_pid_1_when_the_command_leaves_orphans_then_reaps_them(
    start: Start,
) -> None:
    """From moby/moby: zombies until the container has no pid left."""
    apart = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("a pid namespace needs root")
    zombies = "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
    script = f"for i in 1 2 3; do (sleep 0.1 &); done; sleep 0.6; {zombies}; exit 7"
    command = start("run", KEY, "--", "sh", "-c", script, by=apart)
    assert command.end() == (7, "0\n", "")


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


def test_run_when_hosts_begin_one_after_another_then_at_least_lets_one_run(
    start: Start, servers: list[redis.Redis]
) -> None:
    words = ("-n", "-E", "0", "--at-least", "20", KEY, "--", "sh", "-c", "echo ran")
    assert [start("run", *words).end() for _ in range(3)] == [
        (0, "ran\n", ""), (0, "", ""), (0, "", ""),
    ]  # fmt: skip
    assert all(15_000 < server.pttl(KEY) <= 20_000 for server in servers[:3])
    status, _, err = start("run", "--at-least", "31", KEY, "--", "true").end()
    assert (status, "allowed is up to the ttl (30 s)" in err) == (64, True)


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
    assert err.startswith(f"fastredlock run: '{KEY}': lost: ")
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
    words = ("run", "-n", "--masters", ",".join(masters.urls[:3]))
    status, out, err = start(*words, KEY, "--", "echo", "ran").end()
    assert (status, out) == (69, "")
    assert "fewer than a quorum of masters could answer after 1 attempt" in err
    assert err.count("(connection refused)") == 2


# --- waiting through outages ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("wait", [(), ("-w", "60")])
def test_run_when_the_masters_are_away_then_waits_until_they_are_back(
    start: Start, masters: LocalMasters, wait: tuple[str, ...]
) -> None:
    for index in range(3):
        masters.stop(index)
    urls = ",".join(masters.urls[:3])
    command = start("run", *wait, "--masters", urls, KEY, "--", "echo", "ran")
    with pytest.raises(subprocess.TimeoutExpired):
        command.process.wait(1.5)
    for index in range(3):
        masters.start(index)
    assert command.end() == (0, "ran\n", "")


@pytest.mark.slow
def test_run_when_the_masters_restart_while_it_waits_in_turn_then_waits_on(
    start: Start, masters: LocalMasters
) -> None:
    urls = masters.urls[:3]
    with FastRedlock(urls, owner="ann") as locks:
        assert locks.acquire(KEY, ttl=60)
        command = start("run", "--masters", ",".join(urls), KEY, "--", "echo", "ran")
        assert wait_until(lambda: any(vote.waiting for vote in locks.holders(KEY)))
        for index in range(3):
            masters.stop(index)
        with pytest.raises(subprocess.TimeoutExpired):
            command.process.wait(1.5)
        for index in range(3):
            masters.start(index)
        assert command.end() == (0, "ran\n", "")


def test_run_when_its_wait_is_over_in_an_outage_then_ends_so(start: Start) -> None:
    masters = ("--masters", "redis://127.0.0.1:1")
    status, _, err = start("run", "-w", "1", *masters, KEY, "--", "true").end()
    assert status == 69
    assert 1000 <= int(re.findall(r" in (\d+) ms", err)[0]) < 3000


def test_run_when_unreachable_tries_are_given_then_they_end_it(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "locks.toml"
    config.write_text("unreachable_tries = 2\n")
    words = ("run", "--masters", "redis://127.0.0.1:1")
    end = (KEY, "--", "true")
    status, _, err = call(*words, "--unreachable-tries", "1", *end)
    assert (status, "after 1 attempt in" in err) == (69, True)
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
    for url in masters.urls[1:3]:  # no quorum is left
        with redis.Redis.from_url(url) as server:
            for name, rules in (("ann", "~other:* +@all"), ("bob", "~* +@all -set")):
                acl = f"ACL SETUSER {name} reset on >pw {rules}"
                server.execute_command(*acl.split())
            server.execute_command("ACL", "SETUSER", "default", "resetpass", ">pw")
    urls = [url.replace("//", f"//{user}") for url in masters.urls[1:3]]
    given = ",".join([masters.urls[0], *urls])
    began = time.monotonic()
    status, _, err = call("run", "-w", "9", "--masters", given, KEY, "--", "true")
    assert (status, said in err, "check --key" in err) == (69, True, True)
    assert time.monotonic() - began < 5  # without -w likewise, and never without this


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("words", [(), ("--verbose",)])
def test_run_when_it_waits_through_an_outage_then_prints_why(
    call: Call, words: tuple[str, ...]
) -> None:
    masters = ("--masters", "redis://127.0.0.1:1")
    err = call("run", *words, "-w", "1", *masters, KEY, "--", "true").err
    first, *_ = lines = err.splitlines()
    assert first.startswith("fastredlock run: waiting for 0 s: ")
    assert first.endswith("127.0.0.1:1 FAILED (connection refused)")
    assert words or len(lines) == 2  # once, and the error at the end


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
def test_run_when_verbose_then_prints_what_it_waits_for_once_a_while(
    call: Call, urls: list[str]
) -> None:
    words = ("run", "-w", "0.45", KEY, "--", "true")
    with FastRedlock(urls[:3], owner="ann") as locks, locks.lock(KEY):
        _, _, quiet = call(*words)
        _, _, err = call("run", "--verbose", *words[1:])
    assert len(quiet.splitlines()) == 1
    *lines, last = err.splitlines()
    assert 1 <= len(lines) <= 4  # however long the last try takes; not one per try
    begin = f"fastredlock run: waiting for 0 s: '{KEY}' is held by ann (token "
    assert all(line.startswith(begin) for line in lines)
    assert "not taken in 0." in last


@pytest.mark.usefixtures("soon")
def test_run_when_verbose_in_an_outage_then_prints_why(call: Call) -> None:
    masters = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3"
    words = ("-w", "0.2", "--masters", masters, KEY, "--", "true")
    first = call("run", "--verbose", *words).err.splitlines()[0]
    assert first == (
        f"fastredlock run: waiting for 0 s: '{KEY}': not known: 0 of 3 masters "
        "answered, 2 are needed: 127.0.0.1:1 FAILED (connection refused); "
        "127.0.0.1:2 FAILED (connection refused); "
        "127.0.0.1:3 FAILED (connection refused)"
    )


@pytest.mark.usefixtures("soon")
def test_run_when_an_alarm_is_set_by_its_caller_then_leaves_it_alone(
    call: Call, urls: list[str]
) -> None:
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        with FastRedlock(urls[:3]) as locks, locks.lock(KEY):
            err = call("run", "--verbose", "-w", "0.3", KEY, "--", "true").err
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(err.splitlines()) == 1
