"""pottery's two Redlocks around a block, `synchronize`, and what they log."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import Any

import pytest

from tests.compat.pottery.face import Face
from tests.support.keys import KEY
from tests.support.threads import in_threads


def test_with_holds_it_in_the_body(face: Face) -> None:
    lock = face.lock()
    for _ in range(2):
        with lock as entered:
            assert entered is lock
            assert lock.locked()
        assert face.is_free()
    with pytest.raises(ZeroDivisionError), lock:
        _ = 1 / 0
    assert face.is_free()


@pytest.mark.parametrize(
    ("option", "value"),
    [("context_manager_blocking", False), ("context_manager_timeout", 0.1)],
)
def test_with_when_others_hold_it_then_raises(
    face: Face, option: str, value: Any
) -> None:
    face.set()
    lock = face.lock(**{option: value})
    with pytest.raises(face.QuorumNotAchieved) as raised, lock:
        pytest.fail("the body ran")
    assert (raised.value.key, raised.value.masters) == (face.key, lock.masters)


def test_with_when_it_was_lost_in_the_body_then_raises(face: Face) -> None:
    with pytest.raises(face.ReleaseUnlockedLock), face.lock():
        face.set()
    with pytest.raises(face.ReleaseUnlockedLock), face.lock("released") as lock:
        lock.release()


def test_synchronize_runs_one_call_at_a_time(blocking: Face) -> None:
    inside: list[int] = []
    overlaps: list[int] = []

    @blocking.synchronize(key=KEY, masters=blocking.masters)
    def work(number: int, *, square: bool) -> int:
        """Square it."""
        overlaps.extend(inside)
        inside.append(number)
        assert blocking.values().count(None) < 3  # a pause, too, for others
        inside.remove(number)
        return number**2 if square else 0

    calls = [lambda number=number: work(number, square=True) for number in range(4)]
    assert in_threads(calls) == [0, 1, 4, 9]
    assert overlaps == []
    assert (work.__name__, work.__doc__) == ("work", "Square it.")


@pytest.mark.parametrize("options", [{"blocking": False}, {"timeout": 0.05}])
def test_synchronize_when_others_hold_it_then_raises(
    blocking: Face, options: dict[str, Any]
) -> None:
    blocking.set()

    @blocking.synchronize(key=KEY, masters=blocking.masters, **options)
    def work() -> None:
        pytest.fail("the body ran")

    with pytest.raises(blocking.QuorumNotAchieved):
        work()


def test_synchronize_logs_how_long_it_waited_and_held(
    blocking: Face, caplog: pytest.LogCaptureFixture
) -> None:
    @blocking.synchronize(key=KEY, masters=blocking.masters, blocking=False)
    def work() -> None:
        pass

    with caplog.at_level(logging.INFO, "pottery"):
        work()
        assert blocking.is_free()
        blocking.set()
        with suppress(blocking.QuorumNotAchieved):
            work()
    said = [line for line in caplog.messages if "waited" in line]
    start = rf"{re.escape(work.__qualname__)}\(\) waited for {blocking.key} for \d+ ms"
    ends = (r"held for \d+ ms", "never acquired lock")
    for line, end in zip(said, ends, strict=True):
        assert re.fullmatch(f"{start}; {end}", line)


def test_waiting_is_logged_as_a_sample(
    face: Face, caplog: pytest.LogCaptureFixture
) -> None:
    lock = face.lock()
    with caplog.at_level(logging.INFO, "pottery"):
        assert lock.acquire()
        lock.release()
        assert face.is_free()
        face.set(px=300)
        assert lock.acquire()
        assert not lock.acquire(timeout=0.05)
    said = [line for line in caplog.messages if line.startswith("source=pottery")]
    name = face.kind.lower()
    assert [re.sub(r"=\d+ms", "=?", line) for line in said] == [
        f"source=pottery sample#{name}.enqueued.{KEY}=? "
        f"sample#{name}.acquired.{KEY}={acquired}"
        for acquired in (1, 0)
    ]
