"""What bench_scale found: a table per part, and what its figures say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench._grid import aligned, markdown

_FLAT = 1.25  # the last figure over the first, or the other way round, at most


@dataclass(frozen=True, slots=True)
class Part:
    """One question: a table, and what it says.

    `columns`: heading and format of each, no format for words, which stand to the left.
    `rows`: the figures, in that order. A blank line parts the values of the first.
    """

    name: str
    title: str
    columns: list[list[str]]
    rows: list[list[Any]]
    remarks: list[str]

    @property
    def headings(self) -> list[str]:
        return [heading for heading, _ in self.columns]

    @property
    def left(self) -> list[str]:
        return [heading for heading, form in self.columns if not form]

    def cells(self) -> list[list[str]]:
        """Return the rows as they are shown."""
        forms = [form for _, form in self.columns]
        return [
            [format(cell, form) for cell, form in zip(row, forms, strict=True)]
            for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """One run."""

    machine: str
    versions: str
    parts: list[Part]

    def text(self) -> str:
        """Return it for a terminal."""
        lines: list[str] = []
        for part in self.parts:
            table = aligned(part.headings, part.cells(), left=part.left, grouped=True)
            lines += [part.title, "", *table, "", *part.remarks, "", ""]
        return "\n".join([*lines, *self._captions()])

    def markdown(self) -> str:
        """Return it ready to be pasted into a README."""
        lines: list[str] = []
        for part in self.parts:
            table = markdown(part.headings, part.cells(), left=part.left)
            remarks = [f"- {remark}" for remark in part.remarks]
            lines += [f"**{part.title}**", "", *table, "", *remarks, ""]
        return "\n".join([*lines, *(f"- {line}" for line in self._captions())])

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> ScaleReport:
        """Read what `save` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        parts = [Part(**part) for part in fields.pop("parts")]
        return cls(parts=parts, **fields)

    def _captions(self) -> list[str]:
        return [f"Machine: {self.machine}.", f"Versions: {self.versions}."]


def trend(
    what: str, unit: str, places: Sequence[int], figures: Sequence[float]
) -> list[str]:
    """Say in one line whether a figure stays flat; nothing where there is one only."""
    if len(places) < 2 or not figures[0]:
        return []
    ratio = figures[-1] / figures[0]
    verdict = "grows" if ratio > _FLAT else "falls" if ratio < 1 / _FLAT else "flat"
    return [
        f"{what}: {verdict}, {ratio:,.2f}x from {unit} = {places[0]:,} to "
        f"{places[-1]:,} ({places[-1] / places[0]:,.0f}x)."
    ]
