"""A lease: how long it is ours, how it is extended, released and left.

The default ttl of 10 s is valid for 9.898 s from the opening of its round on; a round
of `ScriptedLocks` takes 3 ms.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NoReturn

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    Lease,
    LeaseLostError,
    NotExtendedError,
    ReleaseStatus,
)
from fastredlock import asyncio as awaitable
from fastredlock.testing import MemoryLocks
from fastredlock.testing.asyncio import MemoryLocks as AwaitableMemoryLocks
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

UNKNOWN = ReleaseStatus.UNKNOWN


# ---- validity


@pytest.mark.parametrize(("left_ns", "is_valid"), [(1, True), (0, False), (-S, False)])
def test_lease_is_valid_up_to_the_last_nanosecond(left_ns: int, is_valid: bool) -> None:
    locks = ScriptedLocks("GG.", took_ns=0)
    lease = taken(locks)
    locks.now += VALIDITY_NS - left_ns
    assert lease.is_valid is is_valid
    assert lease.remaining() == (left_ns / 1e9 if is_valid else 0.0)


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


# ---- release


def test_release_that_is_unknown_or_interrupted_may_be_tried_again() -> None:
    locks = ScriptedLocks("GG.", "FF.", "GG.", "GG.")
    lease = taken(locks)
    assert lease.release() is UNKNOWN

    locks.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        lease.release()
    assert not lease.is_valid
    assert lease.release() is RELEASED
    assert lease.release() is GONE


def test_release_is_owed_as_long_as_the_longest_extension_can_live() -> None:
    locks = ScriptedLocks("GG.", "G..", "GG.", "GG.")
    lease = taken(locks)
    with pytest.raises(NotExtendedError):
        lease.extend(60)  # never confirmed, but one master has it
    lease.extend(5)
    lease.release()
    assert locks.rounds[3].terms.ttl_ms == 60_000


# ---- adopted from another process


# An adopted lease is told by a validity of 0, and a release sets it to 0 too; an
# extension under way in another thread once made a released lease valid again.
@pytest.mark.parametrize("is_adopted", [False, True])
def test_lease_that_was_released_stays_so_when_an_extension_ends(
    is_adopted: bool,
) -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.")
    lease = locks.adopt("orders:42", b"t") if is_adopted else taken(locks)
    locks.meanwhile = lease.release
    with pytest.raises(LeaseLostError):
        lease.extend()
    assert not lease.is_valid


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
    locks = face(["redis://:hunter2@a"])
    for one in (locks, locks.adopt("orders:42", "a token"), locks.lock("orders:42")):
        with pytest.raises(TypeError, match=r"lease\.token to adopt") as caught:
            copied(one)
        assert "make one in each process" in str(caught.value)
        assert "hunter2" not in str(caught.value)


# ---- the fake


BEFORE_END = "'orders:42': lost before the end of the with block"


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


class BodyError(Exception):
    """The error of the body of a with block."""


def leave_by_error(locks: FastRedlock, before: Callable[[], object]) -> NoReturn:
    with locks.lock("orders:42", timeout=0):
        before()
        raise BodyError


# ---- the with block


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


# The page's example said "stopped half-way" of an order that was shipped.
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("checks", [False, True])
def test_loss_that_leaves_a_block_shows_whether_its_body_had_ended(
    is_kept: bool, checks: bool
) -> None:
    locks = MemoryLocks(ttl=5)

    @locks.lock("orders:42", keep_alive=is_kept)
    def ship() -> str:
        locks.steal("orders:42")
        locks.advance(6)
        if checks:
            locks.current("orders:42").check()
        return "shipped"

    with pytest.raises(LeaseLostError) as caught:
        ship()
    assert caught.value.body_ended is not checks


@pytest.mark.parametrize("sleeps", [False, True])
def test_loss_that_leaves_an_awaited_block_shows_whether_its_body_had_ended(
    sleeps: bool,
) -> None:
    locks = AwaitableMemoryLocks(ttl=5)

    async def ship() -> str:
        async with locks.lock("orders:42", keep_alive=True):
            locks.steal("orders:42")
            await locks.advance(6 if sleeps else 0)  # where a loss cancels it
            if sleeps:
                await asyncio.sleep(0)
            locks.lose("orders:42")
            return "shipped"

    with pytest.raises(LeaseLostError) as caught:
        asyncio.run(ship())
    assert caught.value.body_ended is not sleeps


# docs/design.md, 2.6: an OSError (ppoll, out of memory) once replaced the body's error.
@pytest.mark.parametrize("failure", [FastRedlockError("closed"), OSError("ppoll")])
def test_error_of_the_body_wins_over_a_release_that_fails(failure: Exception) -> None:
    locks = ScriptedLocks("GG.", "GG.")

    def fail() -> NoReturn:
        raise failure

    with pytest.raises(BodyError):
        leave_by_error(locks, lambda: setattr(locks, "meanwhile", fail))


# ---- extend


OF_2, OF_60 = 1_978 * MS, 60 * S - 602 * MS  # validities of such ttls


@pytest.mark.parametrize(
    ("votes", "ttl", "took_ns", "said", "left_ns"),
    [
        ("GG.", 60, 0, "", OF_60),
        ("GG.", 2, 0, "", OF_2),
        ("GG.", 60, VALIDITY_NS - 1, "", OF_60 - VALIDITY_NS + 1),
        *(("GG.", 60, VALIDITY_NS + late, "too late", 0) for late in (0, S)),
        ("GG.", 2, 2 * S, "too late", 0),  # it used its own validity up
        ("FF.", 60, 0, "not confirmed by a quorum, valid for 9.898 s", VALIDITY_NS),
        ("FF.", 60, VALIDITY_NS - 1, "not confirmed", 1),
        *(("FF.", 60, VALIDITY_NS + late, "validity is over", 0) for late in (0, S)),
        # No quorum within 0.5 s.
        *(
            (votes, 60, 0, "valid for", VALIDITY_NS - S // 2)
            for votes in ("G..", "...")
        ),
        ("G..", 2, 0, "not confirmed", OF_2 - S // 2),
    ],
)
def test_extension_shrinks_at_once_and_grows_the_validity_once_it_is_confirmed(
    votes: str, ttl: float, took_ns: int, said: str, left_ns: int
) -> None:
    locks = ScriptedLocks("GG.", votes, took_ns=0, round_timeout=0.5)
    lease = taken(locks)
    locks.took_ns, seen = took_ns, list[float]()
    locks.meanwhile = lambda: seen.append(lease.remaining())
    error: Any = NotExtendedError if left_ns else LeaseLostError
    ends: Any = pytest.raises(error, match=said) if said else nullcontext()
    with ends as caught:
        lease.extend(ttl)
    assert seen == [seconds(VALIDITY_NS if ttl > 2 else OF_2)]
    assert lease.remaining() == seconds(left_ns)
    assert not said or caught.value.remaining == lease.remaining()


@pytest.mark.parametrize(
    ("end", "reason"),
    [("the time", "validity is over"), ("lost", None), ("released", "released")],
)
def test_lease_that_is_over_is_not_extended_and_nothing_is_sent(
    end: str, reason: str | None
) -> None:
    locks = ScriptedLocks("GG.", "TT.")
    lease = taken(locks)
    if end == "the time":
        locks.now += 10 * S
    elif end == "released":
        lease.release()
    else:
        with pytest.raises(LeaseLostError):
            lease.extend()
    sent = len(locks.rounds)
    with pytest.raises(LeaseLostError, match=reason):
        lease.extend()
    with in_child(), pytest.raises(LeaseLostError):
        lease.extend()
    assert len(locks.rounds) == sent


# Of a shorter one a master may have it by now, or get it after the longer one.
@pytest.mark.parametrize(
    ("ttl", "before_ns", "after_ns"),
    [(60, VALIDITY_NS, OF_60), (2, OF_2, OF_2)],
)
def test_extension_that_is_interrupted_leaves_the_old_validity_or_binds_the_next_one(
    ttl: float, before_ns: int, after_ns: int
) -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.", took_ns=0)
    lease = taken(locks)

    locks.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        lease.extend(ttl)
    assert lease.remaining() == seconds(before_ns)
    assert lease.extend(60) == seconds(after_ns)


# ---- extensions of several threads


@pytest.mark.parametrize(("outer", "inner"), [(60, 2), (2, 60)])
def test_extensions_that_overlap_end_with_the_earliest(
    outer: float, inner: float
) -> None:
    locks = ScriptedLocks("GG.", "GG.", "GG.", took_ns=0)
    lease = taken(locks)
    locks.meanwhile = lambda: lease.extend(inner)
    lease.extend(outer)
    assert lease.remaining() == seconds(OF_2)
    locks.answers.append("GG.")
    assert lease.extend(60) == seconds(OF_60)  # the last, without overlap


def held(*votes: str) -> tuple[ScriptedLocks, list[Lease]]:
    """Take as many leases as there are votes for their extensions."""
    locks = ScriptedLocks(*["GG."] * len(votes), *votes, took_ns=0)
    return locks, [taken(locks) for _ in votes]


def test_adopted_one_that_is_not_confirmed_has_no_validity_and_is_not_lost() -> None:
    locks = ScriptedLocks("FF.", "GG.", took_ns=0)
    lease = locks.adopt("orders:42", b"a token")
    assert locks.extend_each([lease]) == [0.0]
    assert locks.extend_each([lease]) == [seconds(VALIDITY_NS)]


def test_nothing_is_sent_for_what_is_lost_already_or_was_never_held() -> None:
    locks, leases = held("GG.", "GG.")
    leases[0].release()
    locks.now += 10 * S
    assert locks.extend_each([None, *leases]) == [None, None, None]
    assert len(locks.rounds) == 3
    assert locks.extend_each([]) == []


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), 0.001, "5", True])
def test_extension_of_a_bad_ttl_changes_nothing(ttl: Any) -> None:
    locks, leases = held("GG.")
    for extend in (leases[0].extend, partial(locks.extend_each, leases)):
        with pytest.raises(ConfigurationError, match="ttl"):
            extend(ttl)
    assert len(locks.rounds) == 1
    assert leases[0].remaining() == seconds(VALIDITY_NS)
    with pytest.raises(ConfigurationError):
        locks.extend_each([], ttl)
