"""Who votes, and which sets of them are a quorum: known in one place."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from fastredlock._core import Electorate
from fastredlock._reports.votes import quorum_value

ROOT = Path(__file__).resolve().parents[2]
HALF = re.compile(r"// ?2\b|\b2 \* len\(.*> |> [\w.]+ / 2|>> 1\b")
NOT_OF_MASTERS = re.compile(  # times, medians, and the middle of a search
    r"_(ns|us|ms)\b[^=]* // 2|_NS // 2|longest // 2|LONGEST_TTL // 2|\[.*// 2\]|"
    r"3 // 2|\bS // 2|low \+ high"
)
# The one that others ask; the sentinels' own, told to a sentinel; and what the judge of
# the simulator finds by itself: if it asked the one on trial, it would find no fault.
SPARED = {
    "src_cython/round/electorate.pyx": ["self.quorum = count // 2 + 1"],
    "src_cython/master/routes.pyx": ["len(self.known & ids)"],  # nodes of a cluster
    "fastredlock/testing/_sentinels.py": ["{sentinels // 2 + 1}"],
    "tests/sim/judge.py": ["len(standing) > len(self.servers) // 2"],
}


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
        ([], None),
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
    assert quorum_value(values) == expected
