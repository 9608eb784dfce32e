"""Processes that end in the middle of something: no key is left, and none hangs."""

from __future__ import annotations

import subprocess

import pytest
import redis

from tests.support import ending_programs
from tests.support.ending_programs import NAMES
from tests.support.keys import is_empty
from tests.support.processes import run_to_its_end

DELAYS = ["0.005", "0.02", "0.05", "0.1"]


def end(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one of these programs to its end."""
    return run_to_its_end(ending_programs.__name__, *words, within=30)


def taken_by_another(servers: list[redis.Redis]) -> None:
    """Let another client hold all names on the first three."""
    for server in servers[:3]:
        server.mset(dict.fromkeys(NAMES, "another"))


@pytest.mark.slow
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize(
    "program", ["interrupt_each", "interrupt_release_each", "interrupt_acquire"]
)
def test_process_when_it_ends_after_an_interrupt_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], program: str, delay: str
) -> None:
    """Seen: up to 7,100 keys on every master."""
    if program == "interrupt_acquire":
        taken_by_another(servers)
    done = end(program, delay, *urls)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_empty(servers[3:] if program == "interrupt_acquire" else servers)


@pytest.mark.slow
@pytest.mark.parametrize("delay", ["0.002", "0.003", "0.005"])
def test_process_when_it_ends_by_an_unreachable_quorum_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], delay: str
) -> None:
    """The same after an ordinary QuorumUnreachableError."""
    done = end("time_out_each", delay, *urls)
    assert done.returncode == 0 or "QuorumUnreachableError" in done.stderr
    assert is_empty(servers)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["lose_each", "lose_each_and_keep", "drop"])
def test_process_when_it_ends_after_a_lost_batch_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], program: str
) -> None:
    """Nobody waits for the roll-back of a round that was lost."""
    taken_by_another(servers)
    done = end(program, "0.5", *urls)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_empty(servers[3:])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_of_multiprocessing_when_it_ends_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], method: str
) -> None:
    """Such a child ends by os._exit, without the functions of atexit."""
    taken_by_another(servers)
    done = end("end_in_child", method, "lose_each_and_keep", "0", *urls)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_empty(servers[3:])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_of_multiprocessing_when_a_key_rests_at_its_end_then_is_free(
    urls: list[str], servers: list[redis.Redis], method: str
) -> None:
    done = end("end_in_child", method, "let_rest", "0", *urls)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_empty(servers)


@pytest.mark.slow
def test_forked_child_when_it_ends_after_using_its_parents_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis]
) -> None:
    taken_by_another(servers)
    done = end("end_in_forked_child_of_a_user", "0", *urls)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_empty(servers[3:])


@pytest.mark.slow
@pytest.mark.parametrize("is_kept", ["kept", "dropped"])
@pytest.mark.parametrize("delay", ["0.003", "0.02", "0.1"])
def test_loop_when_it_ends_right_after_a_cancellation_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], delay: str, is_kept: str
) -> None:
    """Seen: the roll-back was written, and the process had gone before it ran."""
    done = end("cancel_each", delay, is_kept, *urls)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_empty(servers)


@pytest.mark.slow
@pytest.mark.parametrize("delay", DELAYS)
def test_process_when_a_daemon_thread_takes_locks_at_its_end_then_no_round_is_left(
    urls: list[str], servers: list[redis.Redis], delay: str
) -> None:
    done = end("leave_a_daemon", delay, *urls)
    assert done.returncode == 0
    # What it held is a holder's that died; of what it was taking nothing is left: a
    # batch is either whole or away.
    left = {server.dbsize() for server in servers}
    assert left <= {0, 3000}, left
