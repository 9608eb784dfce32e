"""What a run of the throughput bench found: medians and targets, and their file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench._contestant import Block
from bench._crowds import CROWDS, crowd_and_size, player_of
from bench._peers import CONTROL, FLOOR

CONTROL_PLAYER = player_of(FLOOR, 100)  # plays a second time, as `CONTROL`

Round = Mapping[str, Block]  # by player


@dataclass(frozen=True, slots=True)
class CrowdRow:
    """One player over `masters` masters; every figure a median over the blocks.

    The ratios are medians of the ratio within one round, as in `_results.Row`. The
    floor that a row is compared with has the largest batch that is no larger than the
    row's own size.
    """

    masters: int
    crowd: str
    size: int
    pairs_per_s: float
    cpu_us: float  # of the client process, per pair
    p50_us: float  # of a pair as the first caller sees it, or of a batch
    p99_us: float
    to_floor: float | None  # pairs/s, relative to the floor's
    cpu_to_floor: float | None


@dataclass(frozen=True, slots=True)
class Target:
    """A speed that was asked for, and what the run found."""

    text: str
    figure: float | None  # None: one of the two did not play
    bound: float
    is_ceiling: bool

    def __str__(self) -> str:
        sign = "<=" if self.is_ceiling else ">="
        if self.figure is None:
            return f"{self.text}: not measured ({sign} {self.bound:.2f})"
        is_met = (
            self.figure <= self.bound if self.is_ceiling else self.figure >= self.bound
        )
        verdict = "met" if is_met else "missed"
        return f"{self.text}: {self.figure:.2f} ({sign} {self.bound:.2f} {verdict})"


# what, over what, which figure of a Block, the bound, whether it is a ceiling
_TARGETS = (
    ("asyncio:200", "floor:100", "pairs_per_s", 0.70, False),
    ("asyncio:200", "pottery:200", "pairs_per_s", 50.0, False),
    ("asyncio:200", "redis-py:200", "pairs_per_s", 6.0, False),
    ("each:100", "floor:100", "pairs_per_s", 0.95, False),
    ("threads:16", "threads:1", "pairs_per_s", 2.2, False),
    ("threads:64", "threads:1", "pairs_per_s", 2.6, False),
    ("threads:16", "redlock-py-threads:16", "pairs_per_s", 10.0, False),
    ("asyncio:1", "threads:1", "p50_us", 1.5, True),
)


@dataclass(frozen=True, slots=True)
class CrowdReport:
    """One run: where, with what, how, the rows, and the targets."""

    machine: str
    versions: str
    method: str
    noise: str
    notes: list[str]
    rows: list[CrowdRow]
    targets: list[Target]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> CrowdReport:
        """Read what `save` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        rows = [CrowdRow(**row) for row in fields.pop("rows")]
        targets = [Target(**target) for target in fields.pop("targets")]
        return cls(rows=rows, targets=targets, **fields)


def crowd_rows(masters: int, rounds: Sequence[Round]) -> list[CrowdRow]:
    """Reduce the rounds to one row per player, in the order of `CROWDS` and size."""
    players = [
        player_of(crowd, size)
        for crowd in CROWDS
        for size in CROWDS[crowd].sizes
        if player_of(crowd, size) in rounds[0]
    ]
    return [_row(masters, player, rounds) for player in players]


def crowd_targets(masters: int, rounds: Sequence[Round]) -> list[Target]:
    """Compare the rounds with what was asked for."""
    return [
        Target(
            f"{_in_words(above, figure)} / {_in_words(below)}, N = {masters}",
            ratio(rounds, above, below, figure),
            bound,
            is_ceiling,
        )
        for above, below, figure, bound, is_ceiling in _TARGETS
    ]


def noise_of(masters: int, rounds: Sequence[Round]) -> str | None:
    """Return how fast the second floor was relative to the first, where both played."""
    found = ratio(rounds, CONTROL, CONTROL_PLAYER, "pairs_per_s")
    return None if found is None else f"{found:.2f}x at N = {masters}"


def ratio(rounds: Sequence[Round], above: str, below: str, figure: str) -> float | None:
    """Return the median of the ratio within a round, None if one did not play."""
    if above not in rounds[0] or below not in rounds[0]:
        return None
    ratios: list[float] = [
        getattr(played[above], figure) / getattr(played[below], figure)
        for played in rounds
    ]
    return median(ratios)


def _row(masters: int, player: str, rounds: Sequence[Round]) -> CrowdRow:
    blocks = [played[player] for played in rounds]
    crowd, size = crowd_and_size(player)
    floor = _floor_for(size)
    return CrowdRow(
        masters=masters,
        crowd=crowd,
        size=size,
        pairs_per_s=median(block.pairs_per_s for block in blocks),
        cpu_us=median(block.cpu_us_per_pair for block in blocks),
        p50_us=median(block.p50_us for block in blocks),
        p99_us=median(block.p99_us for block in blocks),
        to_floor=ratio(rounds, player, floor, "pairs_per_s"),
        cpu_to_floor=ratio(rounds, player, floor, "cpu_us_per_pair"),
    )


def _floor_for(size: int) -> str:
    return player_of(FLOOR, max(x for x in CROWDS[FLOOR].sizes if x <= size))


def _in_words(player: str, figure: str = "pairs_per_s") -> str:
    crowd, size = crowd_and_size(player)
    words = f"{CROWDS[crowd].label}, {CROWDS[crowd].callers(size)}"
    return f"p50 of {words}" if figure == "p50_us" else words
