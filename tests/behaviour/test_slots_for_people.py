"""What is known of a semaphore's slots: its holders, who waits, errors, `current`."""

from __future__ import annotations

import pickle
from threading import Thread

import pytest

from fastredlock import LeaseLostError, ReentryError, ResourceTakenError
from tests.support.calls import all_granted, connected
from tests.support.fixtures import MakeLocks, blocking
from tests.support.keys import KEY
from tests.support.waiting import wait_until


def test_holders_when_a_process_waits_for_a_slot_then_each_slot_shows_it(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks, other = (connected(make_locks(urls[:3])) for _ in range(2))
    leases = all_granted([locks.acquire(KEY, permits=2, ttl=60) for _ in range(2)])
    waiter = Thread(target=other.acquire, args=(KEY,), kwargs={"permits": 2})
    waiter.start()

    def waiting() -> list[int]:
        holders = locks.holders(KEY, permits=2)
        return [sum(vote.waiting or 0 for vote in votes) for votes in holders]

    assert wait_until(lambda: waiting() == [1, 1])
    leases[0].release()
    waiter.join()
    assert wait_until(lambda: waiting() == [0, 0])


@blocking
def test_reentry_when_all_slots_are_the_callers_then_its_error_says_so(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    both = make_locks(urls[:3]).semaphore(KEY, 2, timeout=1)
    with both, both, pytest.raises(ReentryError) as caught, both:
        pass
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.resource, error.permits) == (KEY, 2)
    assert "this caller itself holds 2 of 2 slots" in str(error)
    assert "reentrant" not in str(error)


@blocking
@pytest.mark.parametrize(("permits", "said"), [(1, "its one slot"), (2, "all 2 slots")])
def test_semaphore_when_all_are_taken_then_its_error_says_so(
    make_locks: MakeLocks, urls: list[str], permits: int, said: str
) -> None:
    locks, other = (make_locks(urls[:3]) for _ in range(2))
    all_granted([locks.acquire(KEY, permits=permits) for _ in range(permits)])
    with pytest.raises(ResourceTakenError) as caught:
        other.semaphore(KEY, permits, timeout=0).__enter__()
    assert caught.value.hint == said


@blocking
def test_current_when_in_a_block_of_a_semaphore_then_is_the_innermost_slots_lease(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls[:3], key_prefix="app:")
    semaphore = locks.semaphore(KEY, 3)
    with semaphore as outer:
        with semaphore as inner:
            assert locks.current(KEY) is inner
            assert locks.current(f"{KEY}#{outer.slot}") is outer
        assert locks.current(KEY) is outer
        with locks.lock(KEY) as lock:
            assert locks.current(KEY) is lock
    other = locks.semaphore(f"{KEY}#0", 2)
    with other, locks.lock(f"{KEY}#1"), pytest.raises(LeaseLostError):
        locks.current(KEY)


@blocking
def test_current_when_a_function_is_decorated_by_a_semaphore_then_has_its_slot(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks(urls[:3])

    @locks.semaphore(lambda tenant: f"{KEY}:{tenant}", 2)
    def slot(tenant: int) -> int:
        in_thread: list[str] = []

        def look() -> None:
            try:
                locks.current(f"{KEY}:{tenant}")
            except LeaseLostError as error:
                in_thread.append(str(error))

        other = Thread(target=look)
        other.start()
        other.join()
        assert len(in_thread) == 1  # it is another caller
        return locks.current(f"{KEY}:{tenant}").slot

    assert slot(7) in (0, 1)
