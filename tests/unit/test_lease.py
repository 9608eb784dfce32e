"""A lease: how long it is ours, how it is extended, released and left.

The default ttl of 10 s is valid for 9.898 s from the opening of its round on; a round
of `ScriptedLocks` takes 3 ms.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NoReturn

import pytest

from fastredlock import (
    FastRedlock,
    FastRedlockError,
    LeaseLostError,
    NotExtendedError,
    ReleaseStatus,
)
from fastredlock import asyncio as awaitable
from fastredlock._core import Operation
from fastredlock._locking.driver import Driver
from fastredlock._locking.validity import validity_of
from tests.support.rounds import (
    GONE,
    MS,
    RELEASED,
    VALIDITY_NS,
    S,
    ScriptedLocks,
    cast,
    in_child,
    seconds,
    taken,
)
from tests.support.settings import MASTERS

UNKNOWN = ReleaseStatus.UNKNOWN


# ---- validity


def test_remaining_counts_from_the_opening_of_the_round_and_falls_with_the_clock() -> (
    None
):
    locks = ScriptedLocks("GG.", took_ns=40 * MS)
    lease = taken(locks)
    assert lease.remaining() == seconds(VALIDITY_NS - 40 * MS)
    locks.now += 5 * S + 1
    assert lease.remaining() == seconds(VALIDITY_NS - 5 * S - 1 - 40 * MS)


@pytest.mark.parametrize(("left_ns", "is_valid"), [(1, True), (0, False), (-S, False)])
def test_lease_is_valid_up_to_the_last_nanosecond(left_ns: int, is_valid: bool) -> None:
    locks = ScriptedLocks("GG.", took_ns=0)
    lease = taken(locks)
    locks.now += VALIDITY_NS - left_ns
    assert lease.is_valid is is_valid
    assert lease.remaining() == (left_ns / 1e9 if is_valid else 0.0)


def test_lease_tells_its_resource_token_and_ttl() -> None:
    lease = taken(ScriptedLocks("GG.", new_token=lambda: "a token"), ttl=2.5)
    assert (lease.resource, lease.token, lease.ttl) == ("orders:42", b"a token", 2.5)


def test_lease_tells_one_vote_per_master_in_their_order_and_a_late_grant_as_well() -> (
    None
):
    locks = ScriptedLocks("GG.")
    lease = taken(locks)
    masters = ["master:1", "master:2", "master:3"]
    for last in ("PENDING", "GRANTED"):
        votes = [(vote.master, vote.vote.name) for vote in lease.votes]
        assert votes == list(zip(masters, ["GRANTED", "GRANTED", last], strict=True))
        cast(locks.rounds[0], "..G" if last == "PENDING" else "", locks.now + S)


def test_lease_of_the_parent_is_not_valid_in_a_forked_child() -> None:
    locks = ScriptedLocks("GG.")
    lease = taken(locks)
    with in_child():
        assert (lease.remaining(), lease.is_valid) == (0.0, False)


def test_taken_resource_is_no_lease() -> None:
    assert ScriptedLocks("TT.").acquire("orders:42", timeout=0) is None


# ---- release


@pytest.mark.parametrize(
    ("votes", "status"),
    [
        ("GG.", RELEASED),
        ("TGG", RELEASED),
        ("TT.", GONE),
        ("GTT", GONE),
        ("FF.", UNKNOWN),
        ("G..", UNKNOWN),
        ("...", UNKNOWN),
    ],
)
def test_release_tells_what_a_quorum_said(votes: str, status: ReleaseStatus) -> None:
    lease = taken(ScriptedLocks("GG.", votes))
    assert lease.release() is status
    assert lease.remaining() == 0.0


@pytest.mark.parametrize("status", ["GG.", "TT."])
def test_second_release_is_gone_and_sends_nothing(status: str) -> None:
    locks = ScriptedLocks("GG.", status)
    lease = taken(locks)
    lease.release()
    assert lease.release() is GONE
    assert len(locks.rounds) == 2


def test_release_that_is_unknown_or_interrupted_may_be_tried_again() -> None:
    locks = ScriptedLocks("GG.", "FF.", "GG.", "GG.")
    lease = taken(locks)
    assert lease.release() is UNKNOWN

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    locks.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        lease.release()
    assert not lease.is_valid
    assert lease.release() is RELEASED
    assert lease.release() is GONE


def test_lease_is_not_valid_any_more_while_its_release_is_on_its_way() -> None:
    locks = ScriptedLocks("GG.", "GG.")
    lease = taken(locks)
    seen: list[bool] = []
    locks.meanwhile = lambda: seen.append(lease.is_valid)
    lease.release()
    assert seen == [False]


def test_release_of_a_lease_whose_validity_is_over_is_sent_all_the_same() -> None:
    locks = ScriptedLocks("GG.", "TTT")
    lease = taken(locks)
    locks.now += 10 * S
    assert lease.release() is GONE
    assert len(locks.rounds) == 2


def test_release_in_a_forked_child_sends_nothing() -> None:
    locks = ScriptedLocks("GG.")
    lease = taken(locks)
    with in_child():
        lease.release()
    assert len(locks.rounds) == 1


def test_release_is_owed_as_long_as_the_longest_extension_can_live() -> None:
    locks = ScriptedLocks("GG.", "G..", "GG.", "GG.")
    lease = taken(locks)
    with pytest.raises(NotExtendedError):
        lease.extend(60)  # never confirmed, but one master has it
    lease.extend(5)
    lease.release()
    assert locks.rounds[3].terms.ttl_ms == 60_000


# ---- adopted from another process


def test_adopted_lease_is_valid_after_a_quorum_has_extended_it_and_ends_as_any() -> (
    None
):
    locks = ScriptedLocks("GG.", took_ns=0)
    lease = locks.adopt("orders:42", "a token", ttl=10)
    assert (lease.token, lease.ttl, lease.is_valid) == (b"a token", 10.0, False)
    assert lease.extend() == seconds(VALIDITY_NS)
    locks.now += 10 * S
    with pytest.raises(LeaseLostError, match="validity is over"):
        lease.extend()


def test_adopted_lease_that_is_gone_is_not_valid() -> None:
    lease = ScriptedLocks("TT.").adopt("orders:42", b"a token")
    with pytest.raises(LeaseLostError, match="lost"):
        lease.extend()
    assert not lease.is_valid


def test_adopted_lease_is_released_on_every_master_that_may_hold_it() -> None:
    locks = ScriptedLocks("GG.")
    lease = locks.adopt("orders:42", b"a token")
    assert lease._round.may_hold == 0b111
    assert lease.release() is RELEASED


def test_adopted_extension_without_a_quorum_proves_nothing() -> None:
    lease = ScriptedLocks("FF.", "GG.", took_ns=0).adopt("orders:42", b"a token")
    with pytest.raises(NotExtendedError, match="its validity is not known") as caught:
        lease.extend()
    assert (lease.is_valid, caught.value.remaining) == (False, 0.0)
    assert lease.extend() == seconds(VALIDITY_NS)


# An adopted lease is told by a validity of 0, and a release sets it to 0 too; an
# extension under way in another thread once made a released lease valid again.
def test_adopted_lease_that_was_released_stays_so_when_an_extension_ends() -> None:
    locks = ScriptedLocks("GG.", "GG.")
    lease = locks.adopt("orders:42", b"a token")
    locks.meanwhile = lease.release
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert not lease.is_valid


# With 64 masters `1 << 64` is undefined in C: an adopted key once stood on none, and
# its release was not deferred for masters that reconnect.
@pytest.mark.parametrize("masters", [1, 5, 63, 64])
def test_adopted_key_may_stand_on_every_master(masters: int) -> None:
    lease = ScriptedLocks(masters=masters).adopt("orders:42", b"a token")
    assert lease._round.may_hold == (1 << masters) - 1


# ---- what is shown


def test_repr_of_a_lease_shows_its_state_and_no_token() -> None:
    locks = ScriptedLocks("GG.", "GG.", took_ns=0, new_token=lambda: "hunter2")
    lease = taken(locks)
    assert repr(lease) == "<Lease 'orders:42', 9.898 s left>"
    lease.release()
    assert repr(lease) == "<Lease 'orders:42', released>"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
@pytest.mark.parametrize("face", [FastRedlock, awaitable.FastRedlock])
def test_lease_cannot_be_pickled_and_says_what_to_do(
    face: type[Any], copied: Callable[[object], object]
) -> None:
    locks = face(MASTERS)
    for one in (locks, locks.adopt("orders:42", "a token"), locks.lock("orders:42")):
        with pytest.raises(TypeError, match=r"lease\.token to adopt"):
            copied(one)


# ---- the fake


@pytest.mark.parametrize("name", ["run", "now_ns", "fork_generation"])
def test_scripted_driver_replaces_only_what_a_driver_has(name: str) -> None:
    assert hasattr(Driver, name)


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
        validity_of(lease).until_ns = None
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
