"""The interpreter ends, whatever its daemon threads were in the middle of."""

from __future__ import annotations

import pytest
import redis

from fastredlock.testing import LocalMasters
from tests.support import ending_programs
from tests.support.processes import run_to_its_end


@pytest.mark.slow
@pytest.mark.parametrize("call", ["release", "close", "acquire"])
@pytest.mark.parametrize(
    "kind", ["wait_for_answers", "take_and_give", "stick_in_a_finalizer"]
)
def test_exit_when_a_daemon_thread_led_then_ends(
    masters: LocalMasters, kind: str, call: str
) -> None:
    """Seen: hung for ever, in 7 of 7, where a module's __del__ used the engine."""
    if kind == "stick_in_a_finalizer":
        masters.stop(4)  # its vote is made, as an object, inside a step
    words = ("end_beside_daemons", kind, call, *masters.urls)
    done = run_to_its_end(ending_programs.__name__, *words, within=15)
    assert (done.returncode, done.stderr) == (0, "")
    told = {"close": ["None"], "release": ["ReleaseStatus.RELEASED"]}
    assert done.stdout.strip() in told.get(call, [done.stdout.strip()])
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("call", ["waits", "ends", "begins"])
def test_exit_when_daemon_threads_acquire_then_they_end_without_a_word(
    urls: list[str], call: str
) -> None:
    """Seen: "Exception in thread ...", where one that waited tried once more."""
    done = run_to_its_end(
        ending_programs.__name__, "join_at_exit", call, *urls, within=15
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "[False, False, False]"


@pytest.mark.parametrize("loop", ["closed", "broken"])
def test_exit_when_a_loop_ended_with_a_waiting_task_then_no_key_rests_on(
    urls: list[str], servers: list[redis.Redis], loop: str
) -> None:
    """Seen: "Event loop is closed", and keys of other clients stood for their ttl."""
    words = ("leave_a_waiting_task", loop, *urls)
    done = run_to_its_end(ending_programs.__name__, *words, within=15)
    assert done.returncode == 0
    assert ("ZeroDivisionError" in done.stderr) == (loop == "broken")
    assert "Event loop is closed" not in done.stderr
    names = [f"rest{i}" for i in range(4)]
    left = [name for name in names for server in servers if server.exists(name)]
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "times"),
    [
        ("drop_clients_with_keys_at_rest", 4),
        ("begin_at_the_end", 1),
        ("take_a_key_at_rest_in_a_daemon_thread", 10),
    ],
)
def test_exit_when_nobody_has_a_client_with_keys_at_rest_then_none_rests_on(
    urls: list[str], servers: list[redis.Redis], program: str, times: int
) -> None:
    """Seen: 5 of 20, where the thread that watched was all that held an engine; 3 of
    10, where a thread had a key that rested, and was not let go on."""
    for _ in range(times):
        done = run_to_its_end(ending_programs.__name__, program, *urls, within=15)
        assert (done.returncode, done.stderr) == (0, "")
        names = [f"rest{i}" for i in range(6)]
        left = [name for name in names for server in servers if server.exists(name)]
        assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5])
def test_exit_when_a_loop_in_a_daemon_thread_takes_locks_then_leaves_no_key(
    urls: list[str], servers: list[redis.Redis], count: int
) -> None:
    """Seen: 6 to 9 of 10 left a key for its ttl; 0 of 12 with daemon threads."""
    for _ in range(3):
        words = ("take_locks_in_a_daemon_loop", str(count), *urls)
        done = run_to_its_end(ending_programs.__name__, *words, within=15)
        assert (done.returncode, done.stderr) == (0, "")
        names = [f"task{i}" for i in range(count)]
        left = [name for name in names for server in servers if server.exists(name)]
        assert left == []


def test_exit_when_masters_with_credentials_are_away_then_says_nothing(
    masters: LocalMasters,
) -> None:
    """Seen: "import of _thread halted", of a last connection for what was deferred."""
    words = ("stop_masters_and_leave", *masters.urls[:3])
    done = run_to_its_end(ending_programs.__name__, *words, within=15)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "UNKNOWN"
