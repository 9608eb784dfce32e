"""A lease in a with block: left in order, by an error, or lost."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import NoReturn

import pytest

from fastredlock import FastRedlock, FastRedlockError, LeaseLostError
from fastredlock._core import Operation
from fastredlock._locking.validity import kept_of
from tests.support.leases import GONE, taken
from tests.support.rounds import S, ScriptedLocks, in_child

BEFORE_END = "'orders:42': lost before the end of the with block"


class BodyError(Exception):
    """The error of the body of a with block."""


def leave_by_error(locks: FastRedlock, before: Callable[[], object]) -> NoReturn:
    with locks.lock("orders:42", timeout=0):
        before()
        raise BodyError


# ---- the with block


@pytest.mark.parametrize("is_late", [False, True])
def test_with_block_releases_on_leaving_and_raises_after_the_validity(
    is_late: bool,
) -> None:
    locks = ScriptedLocks("GG.", "GG.")
    lost = pytest.raises(LeaseLostError) if is_late else nullcontext()
    with lost, locks.lock("orders:42", timeout=0) as lease:
        assert lease.is_valid
        locks.now += is_late * 10 * S
    assert locks.rounds[1].operation is Operation.RELEASE
    assert not lease.is_valid


def test_with_block_left_when_another_has_the_key_raises() -> None:
    locks = ScriptedLocks("GG.", "TTT")
    with pytest.raises(LeaseLostError) as caught, locks.lock("orders:42", timeout=0):
        pass
    assert str(caught.value) == f"{BEFORE_END}: its key is gone: deleted, or taken"


# Issue 29: "validity over, or taken" named neither the one, nor what to do about it.
def test_with_block_left_late_names_the_overrun_and_keep_alive() -> None:
    locks = ScriptedLocks("GG.", "FF.", took_ns=0)
    lost, lock = pytest.raises(LeaseLostError), locks.lock("orders:42", ttl=5)
    with lost as caught, lock as lease:
        locks.now += int(lease.remaining() * 1e9) + 3 * S
        locks.took_ns = S  # of the release: not of the body
    assert str(caught.value) == (
        f"{BEFORE_END}: its validity (ttl 5 s) was overrun by 3.000 s; give "
        "keep_alive=True, or a longer ttl"
    )


def test_with_block_left_late_by_a_kept_lease_gives_no_such_advice() -> None:
    locks, lost = ScriptedLocks("GG.", "GG.", took_ns=0), pytest.raises(LeaseLostError)
    with lost as caught, taken(locks) as lease:
        kept_of(lease)
        locks.now += 12 * S
    overrun = "its validity (ttl 10 s) was overrun by 2.102 s"
    assert str(caught.value) == f"{BEFORE_END}: {overrun}"


def test_with_block_left_late_after_an_extension_counts_from_its_validity() -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.", took_ns=0)
    late = pytest.raises(LeaseLostError, match=r"\(ttl 20 s\) was overrun by 1\.000 s")
    with late, taken(locks) as lease:
        locks.now += int(lease.extend(20) * 1e9) + S


def test_with_block_of_an_adopted_lease_that_was_never_extended_names_that() -> None:
    locks = ScriptedLocks("GG.")
    adopted = locks.adopt("orders:42", b"token")
    with pytest.raises(LeaseLostError, match=f"{BEFORE_END}: not known"), adopted:
        pass


def test_with_block_that_a_forked_child_leaves_names_the_parent() -> None:
    lease = taken(ScriptedLocks("GG."))
    of_parent = pytest.raises(LeaseLostError, match="it is the parent's")
    with in_child(), of_parent, lease:
        pass


def test_with_block_left_valid_is_silent_where_the_release_is_unknown() -> None:
    locks = ScriptedLocks("GG.", "FF.")
    with locks.lock("orders:42", timeout=0) as lease:
        pass
    assert locks.rounds[1].operation is Operation.RELEASE
    assert not lease.is_valid


@pytest.mark.parametrize("release", ["GG.", "TTT", "FF."])
@pytest.mark.parametrize("took_ns", [0, 10 * S])
def test_error_of_the_body_wins_over_what_became_of_the_lease(
    release: str, took_ns: int
) -> None:
    locks = ScriptedLocks("GG.", release)

    def work() -> None:
        locks.now += took_ns

    with pytest.raises(BodyError):
        leave_by_error(locks, work)
    assert locks.rounds[1].operation is Operation.RELEASE


def test_with_block_whose_body_has_released_is_left_in_silence() -> None:
    locks = ScriptedLocks("GG.", "TTT")
    with locks.lock("orders:42", timeout=0) as lease:
        assert lease.release() is GONE
    assert len(locks.rounds) == 2


def test_with_block_left_after_close_raises_that_it_is_closed() -> None:
    locks = ScriptedLocks("GG.", "GG.")

    def close() -> NoReturn:
        raise FastRedlockError("this FastRedlock is closed")

    with (
        pytest.raises(FastRedlockError, match="closed"),
        locks.lock("orders:42", timeout=0),
    ):
        locks.meanwhile = close


# docs/design.md, 2.6: an OSError (ppoll, out of memory) once replaced the body's error.
@pytest.mark.parametrize("failure", [FastRedlockError("closed"), OSError("ppoll")])
def test_error_of_the_body_wins_over_a_release_that_fails(failure: Exception) -> None:
    locks = ScriptedLocks("GG.", "GG.")

    def fail() -> NoReturn:
        raise failure

    with pytest.raises(BodyError):
        leave_by_error(locks, lambda: setattr(locks, "meanwhile", fail))
