"""One lock object, entered again and again: which entry is left by which exit."""

from functools import partial
from typing import Any

import pytest

from fastredlock import FastRedlockError
from fastredlock._core import Operation
from fastredlock._locking.blocking import Lock
from tests.support.rounds import S, ScriptedLocks
from tests.support.threads import in_threads

NOBODYS = (None, None, None)


def entries(*answers: str, **options: Any) -> tuple[ScriptedLocks, Lock]:
    """Make a lock; its masters answer so, or grant four times."""
    locks = ScriptedLocks(*(answers or ["GG."] * 4))
    return locks, locks.lock("orders:42", timeout=0, **options)


def leave(lock: Lock) -> None:
    lock.__exit__(*NOBODYS)


def released(locks: ScriptedLocks) -> list[bytes]:
    """List the tokens of the releases, in order."""
    return [r.token for r in locks.rounds if r.operation is Operation.RELEASE]


def test_inner_entry_may_be_left_by_another_thread_where_one_lease_is_there() -> None:
    locks, lock = entries(reentrant=True)
    with lock as lease:
        lock.__enter__()
        in_threads([partial(leave, lock)])
        assert lease.is_valid
        assert released(locks) == []
    assert released(locks) == [lease.token]
    assert not lock._entries


def test_inner_entry_is_not_left_by_another_thread_where_two_leases_are() -> None:
    locks, lock = entries(reentrant=True)
    in_threads([lock.__enter__])
    locks.now += 10 * S
    with lock as ours:
        lock.__enter__()
        with pytest.raises(FastRedlockError):
            in_threads([partial(leave, lock)])
        leave(lock)
        assert ours.is_valid
    assert released(locks) == [ours.token]


def test_thread_without_an_entry_is_refused_where_several_others_have_one() -> None:
    locks, lock = entries()
    lock.__enter__()
    lock.__enter__()
    with pytest.raises(FastRedlockError, match="did not enter it, and 2 others did"):
        in_threads([partial(leave, lock)])
    assert released(locks) == []
    leave(lock)
    leave(lock)
    assert len(released(locks)) == 2


# A thread's identity is given to a later one; the number of its state is not.
def test_entry_of_a_thread_that_has_ended_is_nobody_elses() -> None:
    _, lock = entries()
    for _ in range(2):
        in_threads([lock.__enter__])
    with pytest.raises(FastRedlockError):
        in_threads([partial(leave, lock)])


def test_entry_that_was_interrupted_leaves_none_behind() -> None:
    locks, lock = entries()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with lock:
        locks.meanwhile = interrupt
        with pytest.raises(KeyboardInterrupt):
            lock.__enter__()
        assert len(lock._entries) == 1
    assert not lock._entries
