"""Those who wait for a lock, event by event: the orders that are rare on servers."""

from fastredlock import Retry
from fastredlock._core import Verdict
from fastredlock._locking.attempt import attempts
from fastredlock._options import scripts
from tests.support.by_hand import TERMS
from tests.support.gate_by_hand import KEY, MS, Gate


def test_turn_when_an_older_waiter_is_undone_then_is_not_lost() -> None:
    """Seen: lock() that had timed out took the queue of those who came meanwhile."""
    gate = Gate()
    old = gate.wait(10 * MS)
    gate.pass_time(10 * MS)  # its last try
    gate.say(b":0\r\n")
    assert old.verdict is Verdict.TAKEN
    new = gate.wait()
    gate.withdraw(old)  # what lock() does before it raises
    gate.hear()
    gate.tell()
    assert new.is_opened
    assert gate.engine.counters.turns_missed == 0


def test_next_waiter_when_it_gives_up_beside_an_open_turn_then_its_entry_goes() -> None:
    """Seen: the gate had its entry for a minute, and told nobody else meanwhile."""
    gate = Gate()
    first, second = gate.wait(), gate.wait()
    gate.tell()
    assert first.is_opened
    gate.withdraw(second)
    gate.hear()
    gate.say(b":3\r\n")  # set, and the second stands in the queue
    assert first.is_won
    assert scripts.LEAVE_QUEUE in gate.hear()


def test_waiter_when_its_time_is_short_then_tries_at_the_end_of_it() -> None:
    """Seen: timeout=0.005 waited for 51 ms, and with slow masters for far longer."""
    gate = Gate()
    driven = attempts(
        gate.engine, "key", KEY, TERMS, lambda: b"token", Retry(), 5 * MS, gate.now_ns
    )
    first = gate.submit(next(driven))
    gate.now_ns += MS
    gate.say(b"$-1\r\n")
    assert first.verdict is Verdict.TAKEN
    second = gate.submit(next(driven))
    gate.pass_time(4 * MS - 1)
    assert not second.is_opened
    gate.pass_time(1)
    assert second.is_opened
