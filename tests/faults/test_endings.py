"""Processes that end in the middle of something: no key is left, and none hangs."""

from __future__ import annotations

import subprocess

import pytest

from tests.support import ending_programs
from tests.support.ending_programs import NAMES
from tests.support.fixtures import Servers
from tests.support.keys import is_empty
from tests.support.processes import run_to_its_end

pytestmark = pytest.mark.slow
DELAYS = ["0.005", "0.02", "0.04"]
METHODS = ["fork", "spawn", "forkserver"]
# Programs that lose what another client holds on the first three.
LOSING = [
    # Seen: up to 7,100 keys on every master.
    *(("interrupt", "acquire", delay) for delay in DELAYS),
    # Nobody waits for the roll-back of a round that was lost.
    *(("lose_each", how) for how in ("ended", "kept", "dropped")),
    # Such a child ends by os._exit, without the functions of atexit.
    *(("end_in_child", method, "lose_each") for method in METHODS),
    ("end_in_forked_child_of_a_user", "0"),
]
ALONE = [
    *(("interrupt", "acquire_each", delay) for delay in DELAYS),
    *(("interrupt", "release_each", delay) for delay in DELAYS),
    *(("end_in_child", method, "let_rest") for method in METHODS[:2]),
    # Seen: the roll-back was written, and the process had gone before it ran.
    *(
        ("cancel_each", delay, is_kept)
        for delay in ("0.003", "0.05")
        for is_kept in ("kept", "dropped")
    ),
]


def end(*words: str) -> subprocess.CompletedProcess[str]:
    return run_to_its_end(ending_programs.__name__, *words, within=30)


@pytest.mark.parametrize("words", [*LOSING, *ALONE], ids=" ".join)
def test_process_when_it_ends_then_leaves_no_key(
    urls: list[str], servers: Servers, words: tuple[str, ...]
) -> None:
    theirs = servers[:3] if words in LOSING else []
    for server in theirs:
        server.mset(dict.fromkeys(NAMES, "another"))
    done = end(*words, *urls)
    assert (done.returncode, done.stderr) == (0, "")
    assert is_empty(servers[len(theirs) :])


@pytest.mark.parametrize("delay", ["0.002", "0.004"])
def test_process_when_it_ends_by_an_unreachable_quorum_then_leaves_no_key(
    urls: list[str], servers: Servers, delay: str
) -> None:
    """The same after an ordinary QuorumUnreachableError."""
    done = end("time_out_each", delay, *urls)
    assert done.returncode == 0 or "QuorumUnreachableError" in done.stderr
    assert is_empty(servers)


@pytest.mark.parametrize("delay", DELAYS)
def test_process_when_a_daemon_thread_takes_locks_at_its_end_then_no_round_is_left(
    urls: list[str], servers: Servers, delay: str
) -> None:
    done = end("leave_a_daemon", delay, *urls)
    assert done.returncode == 0
    # What it held is a holder's that died; of what it was taking nothing is left: a
    # batch is either whole or away.
    left = {server.dbsize() for server in servers}
    assert left <= {0, len(NAMES)}, left
