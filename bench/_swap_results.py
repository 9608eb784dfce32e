"""What a run of bench_compat found: medians, their file, and how they are printed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench._contestant import Block
from bench._grid import aligned, markdown
from bench._swaps import SWAPS

_HEADINGS = (
    *("N", "library", "callers", "its pairs/s", "ours", "its CPU µs", "ours"),
    *("times as fast", "within", "asked for"),
)
_LEFT = ("library",)


@dataclass(frozen=True, slots=True)
class SwapRow:
    """One library and its replacement over `masters` masters; medians over the rounds.

    `faster` is the median of the ratio of pairs/s within one round, `slowest` and
    `fastest` its extremes: what disturbs a whole round cancels, and the rest shows.
    """

    masters: int
    swap: str
    callers: int
    pairs_per_s: tuple[float, float]  # theirs, ours
    cpu_us: tuple[float, float]  # of the client process, per pair
    faster: float
    slowest: float
    fastest: float


@dataclass(frozen=True, slots=True)
class SwapReport:
    """One run: where, with what, how, and the rows."""

    machine: str
    versions: str
    method: str
    notes: list[str]
    rows: list[SwapRow]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> SwapReport:
        """Read what `save` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        return cls(rows=[SwapRow(**row) for row in fields.pop("rows")], **fields)

    def text(self) -> str:
        """Return it for a terminal."""
        table = aligned(_HEADINGS, self._cells(), left=_LEFT, grouped=True)
        return "\n".join([*table, "", *self._captions()])

    def markdown(self) -> str:
        """Return it ready to be pasted into a README."""
        table = markdown(_HEADINGS, self._cells(), left=_LEFT)
        return "\n".join([*table, "", *(f"- {line}" for line in self._captions())])

    def _cells(self) -> list[tuple[str, ...]]:
        return [_cells_of(row) for row in self.rows]

    def _captions(self) -> list[str]:
        where = [f"Machine: {self.machine}.", f"Versions: {self.versions}."]
        return [self.method, *where, *self.notes]


def swap_row(
    masters: int, swap: str, callers: int, rounds: Sequence[Mapping[str, Block]]
) -> SwapRow | None:
    """Reduce the rounds to a row, or None where one of the two did not play."""
    players = SWAPS[swap].players(swap, callers)
    if not all(player in rounds[0] for player in players):
        return None
    blocks = [[played[player] for played in rounds] for player in players]
    speeds = [[block.pairs_per_s for block in side] for side in blocks]
    costs = [median(block.cpu_us_per_pair for block in side) for side in blocks]
    ratios = [ours / theirs for theirs, ours in zip(*speeds, strict=True)]
    return SwapRow(
        masters=masters,
        swap=swap,
        callers=callers,
        pairs_per_s=(median(speeds[0]), median(speeds[1])),
        cpu_us=(costs[0], costs[1]),
        faster=median(ratios),
        slowest=min(ratios),
        fastest=max(ratios),
    )


def _cells_of(row: SwapRow) -> tuple[str, ...]:
    swap = SWAPS[row.swap]
    wanted = swap.wanted[row.callers]
    return (
        str(row.masters),
        swap.label,
        f"{row.callers:,}",
        *(f"{speed:,.0f}" for speed in row.pairs_per_s),
        *(f"{cost:,.0f}" for cost in row.cpu_us),
        _times(row.faster),
        f"{_times(row.slowest)} to {_times(row.fastest)}",
        f"{wanted:g}x {'met' if row.faster >= wanted else 'missed'}",
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"
