"""What a run of the bench found: rows of medians, and how they are saved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench._contestant import Block
from bench._peers import CONTROL, FLOOR
from bench._syscalls import SyscallCount

OURS = "fastredlock"


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant over `masters` masters; every figure a median over the blocks.

    The three ratios are medians of the ratio *within one round* of the alternation: a
    change of the machine's mood between rounds is in both halves and cancels.
    """

    masters: int
    contestant: str
    p50_us: float
    p99_us: float
    pairs_per_s: float
    cpu_us: float
    syscalls: float | None  # per pair, counted from outside
    own_syscalls: float | None  # per pair, the floor's own count in the same pass
    p50_to_floor: float | None
    cpu_to_floor: float | None
    p50_to_ours: float | None  # how many times slower than fastredlock


@dataclass(frozen=True, slots=True)
class Report:
    """One run: where, with what, how, and the rows."""

    machine: str
    versions: str
    method: str
    syscall_method: str
    notes: list[str]
    rows: list[Row]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @property
    def contestants(self) -> list[Row]:
        """The rows to show: without the control."""
        return [row for row in self.rows if row.contestant != CONTROL]

    @property
    def noise(self) -> str:
        """How far the second floor was from the first, or nothing without a floor."""
        found = [
            f"{row.p50_to_floor:.2f}x at N = {row.masters}"
            for row in self.rows
            if row.contestant == CONTROL and row.p50_to_floor
        ]
        return f"Noise: a second floor took {', '.join(found)}." if found else ""

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read what `save` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        rows = [Row(**row) for row in fields.pop("rows")]
        return cls(rows=rows, **fields)


def rows_of(
    masters: int,
    rounds: Sequence[Mapping[str, Block]],
    syscalls: Mapping[str, SyscallCount],
) -> list[Row]:
    """Reduce the rounds, one `Block` per contestant in each, to one row each."""
    return [_row(masters, name, rounds, syscalls.get(name)) for name in rounds[0]]


def _row(
    masters: int,
    name: str,
    rounds: Sequence[Mapping[str, Block]],
    counted: SyscallCount | None,
) -> Row:
    blocks = [played[name] for played in rounds]
    return Row(
        masters=masters,
        contestant=name,
        p50_us=median(block.p50_us for block in blocks),
        p99_us=median(block.p99_us for block in blocks),
        pairs_per_s=median(block.pairs_per_s for block in blocks),
        cpu_us=median(block.cpu_us_per_pair for block in blocks),
        syscalls=counted.per_pair if counted else None,
        own_syscalls=counted.own_per_pair if counted else None,
        p50_to_floor=_ratio(name, FLOOR, "p50_us", rounds),
        cpu_to_floor=_ratio(name, FLOOR, "cpu_us_per_pair", rounds),
        p50_to_ours=_ratio(name, OURS, "p50_us", rounds),
    )


def _ratio(
    name: str, base: str, figure: str, rounds: Sequence[Mapping[str, Block]]
) -> float | None:
    if base not in rounds[0]:
        return None
    ratios: list[float] = [
        getattr(played[name], figure) / getattr(played[base], figure)
        for played in rounds
    ]
    return median(ratios)
