"""What `on_lost`, an observer and log handlers do harms no other kept lease."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock, Lease, LeaseLostError
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.awaited import LOOPS
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.kept_bodies import delete
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.waiting import SLACK, wait_until

TTL = 1.0  # s
pytestmark = pytest.mark.slow


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Let what takes long in a test end with it."""
    end = threading.Event()
    yield end
    end.set()


class SlowObserver:
    """Take some time at each renewal; note what is lost."""

    def __init__(self, seconds: float, end: threading.Event) -> None:
        self._seconds = seconds
        self._end = end
        self.extensions = 0
        self.lost_names: list[object] = []

    def extended(self, resource: object, remaining: float) -> None:
        """Take long."""
        self.extensions += 1
        self._end.wait(self._seconds)

    def lost(self, resource: object, held: float, error: LeaseLostError) -> None:
        """Note the loss."""
        self.lost_names.append(resource)


@contextmanager
def handler_of(name: str, emit: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Let a logger have a handler."""
    handler = logging.Handler()
    handler.emit = emit  # type: ignore[assignment]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def kept_for_a_moment(locks: FastRedlock, count: int, on_lost: Any) -> list[Lease]:
    """Take leases that are lost at the end of their first validity."""
    return [
        granted(locks.acquire(f"k{i}", keep_alive=0.01, on_lost=on_lost))
        for i in range(count)
    ]


# ---- on_lost


@blocking
def test_losses_when_one_callback_takes_long_then_the_others_are_told_in_time(
    make_locks: MakeLocks, urls: list[str], end: threading.Event
) -> None:
    late: dict[object, float] = {}
    ends: dict[object, float] = {}

    def note(lease: Any, _: object) -> None:
        late[lease.resource] = time.monotonic() - ends[lease.resource]
        if lease.resource == "k0":
            end.wait(60)

    leases = kept_for_a_moment(make_locks(urls, ttl=TTL), 30, note)
    for lease in leases:
        ends[lease.resource] = time.monotonic() + lease.remaining()
    assert wait_until(lambda: len(late) == 30)
    assert max(late.values()) < SLACK


@blocking
def test_losses_when_all_callbacks_take_long_then_all_are_told_at_once(
    make_locks: MakeLocks, urls: list[str], end: threading.Event
) -> None:
    began: list[float] = []

    def note(*_: object) -> None:
        began.append(time.monotonic())
        end.wait(60)

    _leases = kept_for_a_moment(make_locks(urls, ttl=TTL), 50, note)
    assert wait_until(lambda: len(began) == 50)
    end.set()
    assert wait_until(lambda: "fastredlock on_lost" not in thread_names())


def thread_names() -> list[str]:
    """Name the threads there are."""
    return [thread.name for thread in threading.enumerate()]


@blocking
@pytest.mark.parametrize("harms", ["callback", "log handler"])
def test_losses_when_each_callback_or_log_handler_exits_then_all_are_told(
    make_locks: MakeLocks, urls: list[str], caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str], harms: str,
) -> None:  # fmt: skip
    calls: list[object] = []
    printed: list[str] = []

    def fail(lease: Any, _: object) -> None:
        calls.append(lease)
        raise SystemExit(3) if harms == "callback" else ValueError("on purpose")

    def is_told() -> bool:
        if harms == "callback":
            return caplog.text.count("on_lost raised SystemExit") == 50
        printed.append(capsys.readouterr().err)
        return "".join(printed).count("\nSystemExit") == 50

    def emit(record: logging.LogRecord) -> None:
        if harms == "log handler":
            sys.exit(record.getMessage())

    with handler_of("fastredlock", emit):
        _leases = kept_for_a_moment(make_locks(urls, ttl=TTL), 50, fail)
        assert wait_until(lambda: len(calls) == 50)
        assert wait_until(is_told)


@pytest.mark.parametrize("kind", LOOPS)
def test_program_when_callbacks_exit_on_its_loop_then_ends_after_all_were_told(
    urls: list[str], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[object] = []

    def leave(lease: Any, _: object) -> None:
        calls.append(lease)
        sys.exit(3)

    async def main() -> None:
        locks = AwaitableFastRedlock(urls, ttl=TTL)
        options: dict[str, Any] = {"keep_alive": True, "on_lost": leave}
        leases = [await locks.acquire(f"k{i}", **options) for i in range(20)]
        time.sleep(1.2 * TTL)  # noqa: ASYNC251 so all are found to be lost at once
        await asyncio.sleep(60)
        assert not leases

    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        with pytest.raises(SystemExit) as raised:
            runner.run(main())
        assert raised.value.code == 3
        assert len(calls) == 20
    assert caplog.text.count("on_lost raised SystemExit(3)") == 20


# ---- observers


def test_leases_when_an_observer_is_slow_then_all_are_kept_and_losses_told(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    end: threading.Event,
) -> None:  # fmt: skip
    told: list[object] = []
    observer = SlowObserver(0.1, end)
    locks = make_locks(urls, ttl=TTL, observer=observer)
    options: dict[str, Any] = {"keep_alive": True}
    options["on_lost"] = lambda lease, _: told.append(lease)
    leases = [granted(locks.acquire(f"k{i}", **options)) for i in range(20)]
    time.sleep(3 * TTL)  # twenty renewals of 0.1 s take two thirds of it
    assert all(lease.is_valid for lease in leases)
    assert observer.extensions > 10
    for lease in leases:
        delete(servers, str(lease.resource))
    began = time.monotonic()
    assert wait_until(lambda: len(told) == len(observer.lost_names) == 20)
    assert time.monotonic() - began < TTL + SLACK


@blocking
def test_leases_when_an_observer_never_returns_then_are_kept_and_lost_all_the_same(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    end: threading.Event,
) -> None:  # fmt: skip
    observer = SlowObserver(60, end)
    locks = make_locks(urls, ttl=TTL, observer=observer)
    dropped = granted(locks.acquire("dropped", keep_alive=True))
    assert wait_until(lambda: observer.extensions == 1)
    lease = granted(locks.acquire(KEY, keep_alive=True))
    del dropped  # not kept by the call that takes long, nor by one that waits
    gc.collect()
    assert not lease.lost.wait(2 * TTL)
    assert settled_values(servers, NOBODY, "dropped") == NOBODY
    assert len(locks._driver.keeper.notes.calls) <= 2  # of each lease once
    delete(servers)
    assert wait_until(lambda: observer.lost_names == [KEY])


@blocking
def test_observer_when_it_exits_then_is_called_again_and_one_line_is_logged(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    calls: list[str] = []

    class Leaving:
        def extended(self, *_: object) -> None:
            calls.append("extended")
            sys.exit()

        def lost(self, *_: object) -> None:
            calls.append("lost")
            sys.exit()

    locks = make_locks(urls, ttl=TTL, observer=Leaving())
    lease = granted(locks.acquire(KEY, keep_alive=True))
    assert wait_until(lambda: calls.count("extended") >= 2)
    delete(servers)
    assert wait_until(lambda: "lost" in calls)
    assert lease.lost.is_set()
    assert caplog.text.count("extended raised SystemExit()") == 1


# ---- log handlers


@blocking
@pytest.mark.parametrize("harm", [lambda end: end.wait(3 * TTL), lambda _: sys.exit()])
def test_lease_when_handlers_of_warnings_are_slow_or_exit_then_is_kept(
    make_locks: MakeLocks, urls: list[str], end: threading.Event, harm: Any
) -> None:
    calls: list[str] = []

    def emit(record: logging.LogRecord) -> None:
        calls.append(threading.current_thread().name)
        harm(end)

    locks = make_locks(urls, ttl=TTL)
    lease = granted(locks.acquire(KEY, keep_alive=True))
    locks._driver.engine.unlogged.append((30, "somewhere", "is not as it should be"))
    with handler_of("fastredlock", emit):
        assert not lease.lost.wait(1.6 * TTL)
    assert set(calls) == {"fastredlock observer"}


@blocking
def test_lease_when_the_log_of_its_renewals_is_slow_then_is_kept(
    make_locks: MakeLocks, urls: list[str], end: threading.Event
) -> None:
    lease = granted(make_locks(urls, ttl=TTL).acquire(KEY, keep_alive=True))
    lease._round.lease_state.watched().on_renewal = lambda: end.wait(3 * TTL)
    assert not lease.lost.wait(1.6 * TTL)
