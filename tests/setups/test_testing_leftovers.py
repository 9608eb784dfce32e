"""`LocalMasters` leave nothing behind, however their process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from fastredlock.testing import LocalMasters, _local
from tests.support.local_servers import _PONG, ask, folder_of, is_gone
from tests.support.processes import environment_of_children
from tests.support.waiting import wait_until

Parent: TypeAlias = "subprocess.Popen[str]"


# A parent for the tests that end one: it prints its servers' pids and its folder.
_PARENT = """
import os, signal, sys, time
from fastredlock.testing import LocalMasters

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
masters = LocalMasters(2, unix=True)
folder = os.path.dirname(masters.urls[0][len("unix://"):])
print(masters.pid(0), masters.pid(1), folder, flush=True)
"""


@contextmanager
def parent_that(script: str) -> Iterator[tuple[Parent, list[int], Path]]:
    """Run `_PARENT` and then `script`; yield it, the pids and the folder it prints."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT + script],
        env=environment_of_children(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        try:
            *pids, folder = line_of(parent).split()
            yield parent, [int(pid) for pid in pids], Path(folder)
        finally:
            parent.kill()


def line_of(parent: Parent) -> str:
    assert parent.stdout is not None
    return parent.stdout.readline()


def assert_nothing_is_left(pids: list[int], folder: Path) -> None:
    assert wait_until(lambda: all(is_gone(pid) for pid in pids))
    assert wait_until(lambda: not folder.exists())


# --- nothing is left behind ------------------------------------------------------


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_inside_with_leaves_nothing(kind: type[BaseException]) -> None:
    masters = LocalMasters(2)
    pids, folder = [masters.pid(0), masters.pid(1)], folder_of(masters)
    with pytest.raises(kind), masters:
        raise kind
    assert all(is_gone(pid) for pid in pids)
    assert not folder.exists()


def test_close_ends_stopped_and_paused_masters_alike() -> None:
    masters = LocalMasters(3, unix=True)
    pids, folder = [masters.pid(i) for i in range(3)], folder_of(masters)
    masters.stop(1)
    masters.pause(2)
    masters.close()
    assert all(is_gone(pid) for pid in pids)
    assert not folder.exists()


def test_masters_that_nobody_refers_to_any_more_end() -> None:
    masters = LocalMasters(1, unix=True)
    pid, folder = masters.pid(0), folder_of(masters)
    del masters
    assert is_gone(pid)
    assert not folder.exists()


def test_an_interrupt_while_the_servers_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[_local._Server] = []

    def interrupt(server: _local._Server) -> bool:
        seen.append(server)
        raise KeyboardInterrupt

    monkeypatch.setattr(_local._Server, "is_up_on_its_port", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        LocalMasters(2, unix=True)
    assert caught.tb is not None  # it keeps the half-made object alive
    assert seen[0].pid == 0
    assert not Path(seen[0].log_path).parent.exists()


def test_close_cleans_up_even_after_the_keeper_was_killed() -> None:
    masters = LocalMasters(1, unix=True)
    folder = folder_of(masters)
    os.kill(os.getpgid(masters.pid(0)), signal.SIGKILL)
    masters.stop(0)
    masters.start(0)
    pid = masters.pid(0)
    masters.close()
    assert is_gone(pid)
    assert not folder.exists()


def test_masters_outlive_the_thread_that_made_them() -> None:
    made: list[LocalMasters] = []
    maker = threading.Thread(target=lambda: made.append(LocalMasters(1, unix=True)))
    maker.start()
    maker.join()
    with made[0] as masters:
        assert ask(masters.urls[0]) == _PONG
        masters.stop(0)
        masters.start(0)
        assert ask(masters.urls[0]) == _PONG


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_parent_ended_by_a_signal_leaves_nothing(number: signal.Signals) -> None:
    with parent_that("time.sleep(60)") as (parent, pids, folder):
        parent.send_signal(number)
        parent.wait(10)
    assert_nothing_is_left(pids, folder)


def test_a_killed_parent_leaves_no_paused_master() -> None:
    script = "masters.pause(0); print(flush=True); time.sleep(60)"
    with parent_that(script) as (parent, pids, folder):
        line_of(parent)
        parent.kill()
    assert_nothing_is_left(pids, folder)


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError", "os._exit(0)"])
def test_a_parent_that_forgets_to_close_leaves_nothing(end: str) -> None:
    with parent_that(end) as (parent, pids, folder):
        parent.wait(10)
    assert_nothing_is_left(pids, folder)


def test_close_works_while_a_child_forked_by_c_code_holds_the_leash() -> None:
    script = "os.dup(masters._sweep.peek()[2][1].fileno()); masters.close(); print(1)"
    with parent_that(script + "; time.sleep(60)") as (_, pids, folder):
        assert_nothing_is_left(pids, folder)


def test_a_forked_child_that_lives_on_does_not_keep_a_killed_parents_servers() -> None:
    script = "child = os.fork() or time.sleep(60); print(child, flush=True)"
    with parent_that(script + "; time.sleep(60)") as (parent, pids, folder):
        child = int(line_of(parent))
        parent.kill()
        try:
            assert_nothing_is_left(pids, folder)
            assert not is_gone(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("end", ["pass", "masters.close()", "del masters"])
def test_a_forked_childs_end_does_not_touch_the_parents_servers(end: str) -> None:
    script = f"""
child = os.fork()
if not child:
    {end}
    sys.exit()
os.waitpid(child, 0)
print(masters.pid(0), masters.pid(1), flush=True)
time.sleep(60)
"""
    with parent_that(script) as (parent, pids, folder):
        assert [int(pid) for pid in line_of(parent).split()] == pids
        assert ask(f"unix://{folder}/0.sock") == _PONG
    assert_nothing_is_left(pids, folder)


def test_a_forked_child_may_not_use_its_parents_masters() -> None:
    with LocalMasters(1, unix=True) as masters:
        child = os.fork()
        if not child:
            try:
                masters.stop(0)
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ask(masters.urls[0]) == _PONG
