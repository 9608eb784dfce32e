"""pottery's two Redlocks around a block, `synchronize`, and what they log."""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from typing import Any

import pytest
import redis

from tests.compat.pottery.face import BLOCKING, STORED, Face, set_all, values
from tests.support.keys import KEY
from tests.support.threads import in_threads
from tests.support.waiting import wait_until

Clients = set[redis.Redis]


def test_with_holds_it_in_the_body(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    for _ in range(2):
        with lock as entered:
            assert entered is lock
            assert lock.locked()
        assert wait_until(lambda: values(servers) == [None] * 5)


@pytest.mark.parametrize(
    "options",
    [{"context_manager_blocking": False}, {"context_manager_timeout": 0.1}],
)
def test_with_when_others_hold_it_then_raises(
    pottery: Face,
    clients: Clients,
    servers: list[redis.Redis],
    options: dict[str, Any],
) -> None:
    set_all(servers, b"another's")
    lock = pottery.Redlock(key=KEY, masters=clients, **options)
    with pytest.raises(pottery.QuorumNotAchieved) as raised, lock:
        pytest.fail("the body ran")
    assert (raised.value.key, raised.value.masters) == (STORED, lock.masters)


def test_with_when_it_was_lost_in_the_body_then_raises(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    with (
        pytest.raises(pottery.ReleaseUnlockedLock),
        pottery.Redlock(key=KEY, masters=clients),
    ):
        set_all(servers, b"another's")
    with (
        pytest.raises(pottery.ReleaseUnlockedLock),
        pottery.Redlock(key="released", masters=clients) as lock,
    ):
        lock.release()


def test_with_lets_the_error_of_the_body_pass(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    with pytest.raises(ZeroDivisionError), pottery.Redlock(key=KEY, masters=clients):
        _ = 1 / 0
    assert wait_until(lambda: values(servers) == [None] * 5)


@BLOCKING
def test_synchronize_runs_one_call_at_a_time(pottery: Face, clients: Clients) -> None:
    inside: list[int] = []
    overlaps: list[int] = []

    @pottery.synchronize(key=KEY, masters=clients)
    def work(number: int, *, square: bool) -> int:
        """Square it."""
        overlaps.extend(inside)
        inside.append(number)
        time.sleep(0.002)
        inside.remove(number)
        return number**2 if square else 0

    calls = [lambda number=number: work(number, square=True) for number in range(4)]
    assert in_threads(calls) == [0, 1, 4, 9]
    assert overlaps == []
    assert (work.__name__, work.__doc__) == ("work", "Square it.")


@BLOCKING
def test_synchronize_when_others_hold_it_then_raises(
    pottery: Face, clients: Clients, servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another's")
    for options in ({"blocking": False}, {"timeout": 0.05}):

        @pottery.synchronize(key=KEY, masters=clients, **options)
        def work() -> None:
            pytest.fail("the body ran")

        with pytest.raises(pottery.QuorumNotAchieved):
            work()


@BLOCKING
def test_synchronize_logs_how_long_it_waited_and_held(
    pottery: Face,
    clients: Clients,
    servers: list[redis.Redis],
    caplog: pytest.LogCaptureFixture,
) -> None:
    @pottery.synchronize(key=KEY, masters=clients, blocking=False)
    def work() -> None:
        pass

    with caplog.at_level(logging.INFO, "pottery"):
        work()
        wait_until(lambda: values(servers) == [None] * 5)
        set_all(servers, b"another's")
        with suppress(pottery.QuorumNotAchieved):
            work()
    told = [
        record.getMessage() for record in caplog.records if "waited" in record.message
    ]
    name = re.escape(work.__qualname__)
    assert re.fullmatch(
        rf"{name}\(\) waited for {STORED} for \d+ ms; held for \d+ ms", told[0]
    )
    assert re.fullmatch(
        rf"{name}\(\) waited for {STORED} for \d+ ms; never acquired lock", told[1]
    )


def test_waiting_is_logged_as_a_sample(
    pottery: Face,
    clients: Clients,
    servers: list[redis.Redis],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = pottery.Redlock(key=KEY, masters=clients)
    with caplog.at_level(logging.INFO, "pottery"):
        assert lock.acquire()
        lock.release()
        wait_until(lambda: values(servers) == [None] * 5)
        set_all(servers, b"another's", px=300)
        assert lock.acquire()
        assert not lock.acquire(timeout=0.05)
    told = [record.getMessage() for record in caplog.records]
    told = [line for line in told if line.startswith("source=pottery")]
    name = pottery.name.lower()
    assert [re.sub(r"=\d+ms", "=?", line) for line in told] == [
        f"source=pottery sample#{name}.enqueued.{KEY}=? "
        f"sample#{name}.acquired.{KEY}={acquired}"
        for acquired in (1, 0)
    ]
