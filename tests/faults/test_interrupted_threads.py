"""A handler raises while a thread of ours is started: nothing depends on it."""

from __future__ import annotations

import _thread
import gc
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import pytest

from fastredlock import FastRedlock, FastRedlockError, ReleaseStatus
from tests.faults.test_callers import Injector
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.keys import KEY
from tests.support.waiting import is_renewed, settled

pytestmark = [blocking, pytest.mark.slow]

TTL = 0.6  # s
STARTS = ("/keeper.py", "/driver.py", "/threading.py")


class TimeIsUpError(RuntimeError):
    """What a handler raises; threading raises RuntimeErrors of its own."""


class Interrupt(KeyboardInterrupt):
    """As Ctrl-C, and no other."""


def raising(kind: type[BaseException]) -> Callable[[], None]:
    def action() -> None:
        raise kind("by a handler")

    return action


class InStart(Injector):
    """Raise where a thread is started, and nowhere else."""

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(STARTS):
            return self.trace if event == "call" else None
        return super().trace(frame, event, argument)

    def is_ours(self, name: str) -> bool:
        return True


def interrupted(
    k: int, kind: type[BaseException], work: Callable[[], object]
) -> tuple[str, BaseException | None]:
    """Do the work, with a handler that raises at its k-th event; return what came."""
    injector, came = InStart(k, raising(kind)), None
    sys.settrace(injector.trace)
    try:
        work()
    except BaseException as error:
        came = error
    finally:
        sys.settrace(None)
    return injector.where, came


def has_thread(name: str) -> bool:
    return any(each.name == f"fastredlock {name}" for each in threading.enumerate())


def is_served(keeper: Any) -> bool:
    return has_thread("keeper") or not keeper.baton.locked()


KINDS = (Interrupt, TimeIsUpError)  # in turn


def test_keep_alive_when_its_start_is_interrupted_then_the_next_lease_is_kept(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: the client renewed nothing from then on, and called no `on_lost`."""
    for k in count(1):
        locks, kind = connected(make_locks(urls)), KINDS[k % 2]
        with locks.lock("warm"):
            pass
        where, came = interrupted(
            k, kind, lambda locks=locks: locks.acquire(KEY, ttl=TTL, keep_alive=True)
        )
        if not where:
            break
        assert type(came) is kind, where
        lease = granted(locks.acquire("next", ttl=TTL, keep_alive=True))
        assert is_renewed(lease, times=int(k % 10 == 0)), where
        assert lease.is_valid, where
        # A thread that has the baton, or nobody.
        keeper: Any = locks._driver.keeper
        assert settled(partial(is_served, keeper), True), where
        lease.release()
        locks.close()
    assert k > 5
    assert settled(partial(has_thread, "keeper"), False) is False


def test_recalls_when_their_start_is_interrupted_then_the_caller_sees_it(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    """Seen: what a handler had raised was taken for "no thread can be started"."""

    def rest(locks: FastRedlock) -> None:
        granted(locks.acquire(KEY, timeout=5)).release()

    gc.collect()  # a keeper that is collected later would be interrupted in its end
    for k in count(1):
        locks, kind = connected(make_locks(urls, linger=5.0)), KINDS[k % 2]
        where, came = interrupted(k, kind, lambda locks=locks: rest(locks))
        locks.close()
        assert settled(partial(has_thread, "recalls"), False) is False, where
        if not where:
            break
        assert type(came) is kind, where
    assert k > 3


def test_keep_alive_when_no_thread_can_be_started_then_raises_and_later_keeps(
    locks: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:

    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", none_left)
        with pytest.raises(FastRedlockError, match="not kept: can't start new thread"):
            locks.acquire(KEY, ttl=60, keep_alive=True)
    lease = granted(locks.acquire(KEY, ttl=TTL, timeout=0, keep_alive=True))
    assert is_renewed(lease)
    assert lease.release() is ReleaseStatus.RELEASED
