"""Who votes, and which sets of them are a quorum: known in one place."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from fastredlock import MasterVote, Vote
from fastredlock._core import Electorate
from fastredlock._reports.votes import (
    describe_votes,
    electorate_of,
    is_quorum,
    quorum_value,
)

ROOT = Path(__file__).resolve().parents[2]
HALF = re.compile(r"// ?2\b|\b2 \* len\(.*> |> [\w.]+ / 2|>> 1\b")
NOT_OF_MASTERS = re.compile(  # times, medians, and the middle of a search
    r"_(ns|us|ms)\b[^=]* // 2|_NS // 2|longest // 2|LONGEST_TTL // 2|\[.*// 2\]|"
    r"3 // 2|\bS // 2|low \+ high"
)
# The one that others ask; the sentinels' own, told to a sentinel; and what the judge of
# the simulator finds by itself: if it asked the one on trial, it would find no fault.
SPARED = {
    "src_cython/round/electorate.pyx": ["return bit_count(members) // 2 + 1"],
    "src_cython/master/routes.pyx": ["len(self.known & ids)"],  # nodes of a cluster
    "fastredlock/_endpoints/sentinel.py": ["len(self.sentinels & other.sentinels)"],
    "fastredlock/testing/_sentinels.py": ["{sentinels // 2 + 1}"],
    "tests/sim/judge.py": ["for server in each) > len(each) // 2"],
}


GRANTED_BY_OLD = Vote.TAKEN, Vote.GRANTED, Vote.GRANTED, Vote.TAKEN


def source(*folders: str) -> dict[str, list[str]]:
    paths = [path for each in folders for path in (ROOT / each).rglob("*.py*")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8").splitlines()
        for path in paths
        if path.suffix in (".py", ".pyx")
    }


def test_majority_when_it_is_asked_for_then_one_place_knows_it() -> None:
    found = [
        (path, line)
        for path, lines in source("src_cython", "fastredlock", "tests/sim").items()
        for line in (line.partition("#")[0].partition("  # ")[0] for line in lines)
        if HALF.search(line) and not NOT_OF_MASTERS.search(line)
        if not any(known in line for known in SPARED.get(path, ()))
    ]
    assert found == []


def sets(count: int) -> range:
    return range(1 << count)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
def test_quorums_when_two_are_compared_then_they_share_a_master(count: int) -> None:
    electorate = Electorate(count)
    won = [each for each in sets(count) if electorate.wins(each)]
    assert all(one & other for one, other in combinations(won, 2))
    # And no smaller number would do.
    fewest = min(each.bit_count() for each in won)
    assert fewest == electorate.quorum == 1 + (count - fewest) + (count % 2 == 0)


def test_set_when_it_has_bits_of_no_master_then_these_do_not_count() -> None:
    assert not Electorate(3).wins(~0b111 & (1 << 64) - 1 | 0b001)
    assert Electorate(64).wins((1 << 33) - 1)
    assert not Electorate(64).wins((1 << 32) - 1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None], None),
        ([7, None, None], None),
        ([7, 5, None], 5),
        ([3, 7, 5], 5),
        ([0, None, 0, None, 0], 0),
        ([float("inf"), 5, float("inf")], float("inf")),
    ],
)
def test_value_that_a_quorum_has_is_the_largest_of_these(
    values: list[float | None], expected: float | None
) -> None:
    assert quorum_value(values, Electorate(len(values))) == expected


# ---- while the list of masters changes

OLD, NEW = 0b0111, 0b1011  # of 0 1 2 and 0 1 3
CHANGES = [
    *((4, OLD, NEW), (5, 0b00111, 0b11001), (6, 0b000111, 0b111000)),
    *((5, 0b00111, 0b11111), (5, 0b11111, 0b00111), (3, 0b001, 0b111), (2, 1, 2)),
    *((4, 0b0011, 0b1111), (5, 0b01111, 0b11001)),
]


def of_list(members: int) -> list[int]:
    """Return the quorums of a plain list, by the rule of the Redlock page."""
    each = [members & ~without for without in range(members + 1)]
    return [one for one in each if 2 * one.bit_count() > members.bit_count()]


@pytest.mark.parametrize(("count", "old", "new"), CHANGES)
def test_quorum_of_two_lists_is_one_of_each_and_shares_a_master_with_all_of_both(
    count: int, old: int, new: int
) -> None:
    joint = Electorate(count, old, new)
    won = [each for each in sets(count) if joint.wins(each)]
    both = {*of_list(old)}, {*of_list(new)}
    assert won == [
        each for each in sets(count) if each & old in both[0] and each & new in both[1]
    ]
    others = [*won, *both[0], *both[1]]
    assert all(one & other for one in won for other in others)


def test_lists_when_they_differ_by_one_master_then_have_quorums_that_share_none() -> (
    None
):
    # The reason for all this: without it 0 2 and 1 3 both win.
    assert any(one & other == 0 for one in of_list(OLD) for other in of_list(NEW))


def test_quorum_of_two_lists_when_people_read_it_then_counts_each_list() -> None:
    joint = Electorate(4, OLD, NEW)
    assert joint.needed == "2 of the old list and 2 of the new"
    assert [joint.only_in(vote) for vote in range(4)] == [None, None, "old", "new"]
    votes = [
        MasterVote(name, vote, only_in=joint.only_in(i))
        for i, (name, vote) in enumerate(zip("abcd", GRANTED_BY_OLD, strict=True))
    ]
    text = describe_votes(votes)
    assert text.startswith("2 of 3 of the old list, 1 of 3 of the new granted, 2 taken")
    assert electorate_of(votes).wins(0b0110) is joint.wins(0b0110) is False
    assert electorate_of(votes).wins(0b0011)
    assert not is_quorum(votes, lambda vote: vote.vote is Vote.GRANTED)
    assert is_quorum(votes, lambda vote: vote.master in "bcd")
    assert not is_quorum([], lambda vote: True)


@pytest.mark.parametrize(("count", "old", "new"), [(3, 0b011, 0b001), (2, 0b111, 1)])
def test_electorate_when_a_master_is_in_no_list_then_is_refused(
    count: int, old: int, new: int
) -> None:
    with pytest.raises(ValueError, match="in one of the lists"):
        Electorate(count, old, new)
