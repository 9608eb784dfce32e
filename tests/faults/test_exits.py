"""The interpreter ends, in the middle of anything: no key is left, and none hangs."""

from __future__ import annotations

import subprocess
import time

import pytest

from fastredlock.testing import LocalMasters
from tests.support import ending_programs
from tests.support.ending_programs import NAMES
from tests.support.fixtures import Servers
from tests.support.keys import is_empty
from tests.support.processes import run_to_its_end


def end(*words: str) -> subprocess.CompletedProcess[str]:
    return run_to_its_end(ending_programs, *words, within=30)


def left_of(servers: Servers, word: str) -> list[str]:
    """List the keys that stand, of those that a program numbers."""
    names = [f"{word}{i}" for i in range(6)]
    return [name for name in names for server in servers if server.exists(name)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        *(("wait_for_answers", call) for call in ("release", "close", "acquire")),
        *(("take_and_give", call) for call in ("release", "close")),
        *(("stick_in_a_finalizer", call) for call in ("release", "acquire")),
    ],
)
def test_exit_when_a_daemon_thread_led_then_ends(
    masters: LocalMasters, kind: str, call: str
) -> None:
    """Seen: hung for ever, in 7 of 7, where a module's __del__ used the engine."""
    if kind == "stick_in_a_finalizer":
        masters.stop(4)  # its vote is made, as an object, inside a step
    done = end("end_beside_daemons", kind, call, *masters.urls)
    assert (done.returncode, done.stderr) == (0, "")
    told = {"close": ["None"], "release": ["ReleaseStatus.RELEASED"]}
    assert done.stdout.strip() in told.get(call, [done.stdout.strip()])
    assert done.stdout.strip()


@pytest.mark.parametrize("loop", ["closed", "broken"])
def test_exit_when_a_loop_ended_with_a_waiting_task_then_no_key_rests_on(
    urls: list[str], servers: Servers, loop: str
) -> None:
    """Seen: "Event loop is closed", and keys of other clients stood for their ttl."""
    done = end("leave_a_waiting_task", loop, *urls)
    assert done.returncode == 0
    assert ("ZeroDivisionError" in done.stderr) == (loop == "broken")
    assert "Event loop is closed" not in done.stderr
    assert left_of(servers, "rest") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "times"),
    [
        # Seen: 5 of 20, where the thread that watched was all that held an engine.
        (["drop_clients_with_keys_at_rest"], 3),
        (["begin_at_the_end"], 1),
        # The thread leads, and waits: it releases the key that is idle.
        (["wait_in_a_daemon_thread"], 1),
    ],
)
def test_exit_when_nobody_has_the_client_any_more_then_no_key_is_left(
    urls: list[str], servers: Servers, words: list[str], times: int
) -> None:
    for _ in range(times):
        done = end(*words, *urls)
        assert (done.returncode, done.stderr) == (0, "")
        assert left_of(servers, "rest") == []


def test_exit_when_masters_with_credentials_are_away_then_says_nothing(
    masters: LocalMasters,
) -> None:
    """Seen: "import of _thread halted", of a last connection for what was deferred."""
    done = end("stop_masters_and_leave", *masters.urls[:3])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "UNKNOWN"


@pytest.mark.slow
def test_exit_when_several_clients_wait_for_a_master_then_together_for_a_second(
    masters: LocalMasters,
) -> None:
    """Seen: 1 s for all of them, and then 1 s for each."""
    done = end("stop_a_master_and_leave_clients", *masters.urls[:3])
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - float(done.stdout) < 3


# --- rounds that nobody waits for ----------------------------------------------------

DELAYS = ["0.005", "0.03"]
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


@pytest.mark.slow
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
