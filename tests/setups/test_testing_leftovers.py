"""`LocalMasters` leave nothing behind, however their process ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastredlock.testing import LocalMasters
from tests.support.local_servers import _PONG, ask, folder_of, is_gone
from tests.support.processes import Child, running
from tests.support.threads import in_threads
from tests.support.waiting import wait_until

# A parent for the tests that end one: it prints its servers' pids and its folder. Where
# it reads, it waits until its end.
_PARENT = """
import os, signal, sys
from fastredlock.testing import LocalMasters

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
masters = LocalMasters(2, unix=True)
folder = os.path.dirname(masters.urls[0][len("unix://"):])
print(masters.pid(0), masters.pid(1), folder, flush=True)
"""
_WAIT = "; sys.stdin.read()"


@contextmanager
def parent_that(script: str) -> Iterator[tuple[Child, list[int], Path]]:
    """Run `_PARENT` and then `script`; yield it, the pids and the folder it prints."""
    with running(_PARENT + script) as parent:
        *pids, folder = parent.answer().split()
        yield parent, [int(pid) for pid in pids], Path(folder)


def assert_nothing_is_left(pids: list[int], folder: Path) -> None:
    assert wait_until(lambda: all(is_gone(pid) for pid in pids))
    assert wait_until(lambda: not folder.exists())


# --- nothing is left behind ------------------------------------------------------


@pytest.mark.parametrize("end", ["an error", "an interrupt", "close", "del"])
def test_the_end_leaves_nothing_of_stopped_and_paused_masters_too(end: str) -> None:
    masters = LocalMasters(3, unix=end == "close")
    pids, folder = [masters.pid(i) for i in range(3)], folder_of(masters)
    masters.stop(1)
    masters.pause(2)
    if end in ("close", "del"):
        if end == "close":
            masters.close()
        del masters  # nobody refers to them any more
    else:
        kind = ZeroDivisionError if end == "an error" else KeyboardInterrupt
        with pytest.raises(kind), masters:
            raise kind
    assert all(is_gone(pid) for pid in pids)
    assert not folder.exists()


def test_masters_outlive_the_thread_that_made_them() -> None:
    (made,) = in_threads([lambda: LocalMasters(1, unix=True)])
    with made as masters:
        assert ask(masters.urls[0]) == _PONG
        masters.stop(0)
        masters.start(0)
        assert ask(masters.urls[0]) == _PONG


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_parent_ended_by_a_signal_leaves_nothing(number: signal.Signals) -> None:
    script = "masters.pause(0); print(flush=True)" + _WAIT
    with parent_that(script) as (parent, pids, folder):
        parent.answer()
        parent.send_signal(number)
        parent.wait(10)
    assert_nothing_is_left(pids, folder)


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError", "os._exit(0)"])
def test_a_parent_that_forgets_to_close_leaves_nothing(
    end: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with parent_that(end) as (parent, pids, folder):
        parent.wait(10)
    assert_nothing_is_left(pids, folder)


def test_a_forked_child_that_lives_on_does_not_keep_a_killed_parents_servers() -> None:
    script = "child = os.fork() or sys.stdin.read(); print(child, flush=True)"
    with parent_that(script + _WAIT) as (parent, pids, folder):
        child = int(parent.answer())
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
sys.stdin.read()
"""
    with parent_that(script) as (parent, pids, folder):
        assert [int(pid) for pid in parent.answer().split()] == pids
        assert ask(f"unix://{folder}/0.sock") == _PONG
    assert_nothing_is_left(pids, folder)
