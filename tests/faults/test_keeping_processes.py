"""Processes that keep leases, and are stopped, forked or ended."""

from __future__ import annotations

import os
import signal
import time

import pytest

from fastredlock import FastRedlock
from tests.support import fault_programs
from tests.support.calls import granted
from tests.support.fixtures import Servers
from tests.support.keys import KEY, NOBODY, settled_values, values
from tests.support.processes import Fork, run_to_its_end, running
from tests.support.waiting import is_renewed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["tell_after_a_stop", "tell_after_a_stop_awaited"])
def test_process_when_stopped_beyond_the_ttl_then_knows_at_its_next_line(
    urls: list[str], servers: Servers, name: str
) -> None:
    with running(fault_programs, name, *urls) as process:
        assert process.answer() == "holds"
        os.kill(process.pid, signal.SIGSTOP)
        assert settled_values(servers, NOBODY) == NOBODY
        os.kill(process.pid, signal.SIGCONT)
        told = process.say("go on")
        if name == "tell_after_a_stop":
            assert told == "[True, False, 0.0, 'raised'] True"
        else:  # told by a line, or cancelled before it
            assert told in ("True False", "left by LeaseLostError")


@pytest.mark.parametrize(
    ("name", "status"),
    [("end_while_kept", 0), ("end_while_kept_awaited", 0), ("end_by_an_error", 3)],
)
@pytest.mark.parametrize("ttl", ["0.05", "20"])
def test_process_when_it_ends_with_kept_leases_then_ends_at_once_and_in_silence(
    urls: list[str], name: str, status: int, ttl: str
) -> None:
    done = run_to_its_end(fault_programs.__name__, name, ttl, *urls, within=10)
    assert (done.returncode, done.stderr) == (status, "")


def test_child_when_forked_then_keeps_nothing_of_its_parent_and_can_keep_its_own(
    urls: list[str], servers: Servers
) -> None:
    def look() -> list[object]:
        seen: list[object] = [lease.lost.is_set(), lease.is_valid]
        own = granted(locks.acquire("child", keep_alive=True))
        return [*seen, is_renewed(own), own.release().name]

    with FastRedlock(urls, ttl=0.6) as locks:
        lease = granted(locks.acquire(KEY, keep_alive=True))
        assert Fork(look).result() == [True, False, True, "RELEASED"]
        assert lease.is_valid
        lease.release()
        assert settled_values(servers, NOBODY) == NOBODY


def test_child_when_its_parent_has_released_then_nobody_keeps_the_lease(
    urls: list[str], servers: Servers
) -> None:
    with FastRedlock(urls, ttl=0.6) as locks:
        lease = granted(locks.acquire(KEY, keep_alive=True))
        child = Fork(lambda: time.sleep(1.2))  # which would renew it every 0.2 s
        lease.release()
        assert child.result() is None
        assert values(servers) == NOBODY
