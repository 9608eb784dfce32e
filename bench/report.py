"""The report of every bench: tables, and how they are shown and saved.

Markdown goes between the marks of a document, `<!-- pair: begin -->` and `<!-- pair:
end -->` for the bench `pair`; the JSON keeps the figures in full.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HIDDEN = "hidden"  # a format: only in the JSON and for the plot
RATIO = "ratio"  # a format, as in 0.52x
_FLAT = 1.25  # the last figure over the first, or the other way round, at most


class Failure(str):
    """A note on what did not run: the bench ends with 1."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Figures under headings, and remarks on them.

    `columns`: heading and format of each; without a format it is text, aligned to
    the left. `rows`: the figures, in that order; None where there is no figure.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    remarks: Sequence[str] = ()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows, their figures by heading."""
        headings = [heading for heading, _ in self.columns]
        return [dict(zip(headings, row, strict=True)) for row in self.rows]

    def text(self) -> list[str]:
        """Return aligned lines; a blank one wherever the first column changes."""
        columns, rows = self._shown()
        headings = [heading for heading, _ in columns]
        widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
        lines = [self.title, ""] if self.title else []
        group = None
        for cells in (headings, *rows):
            if cells is not headings and cells[0] != group:
                lines.append("")
                group = cells[0]
            padded = [
                cell.rjust(width) if form else cell.ljust(width)
                for cell, width, (_, form) in zip(cells, widths, columns, strict=True)
            ]
            lines.append("  ".join(padded).rstrip())
        remarks = ["", *self.remarks] if self.remarks else []
        return [*lines, *remarks, ""]

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table, with its title and remarks."""
        columns, rows = self._shown()
        lines = [f"**{self.title}**", ""] if self.title else []
        lines.append(f"| {' | '.join(heading for heading, _ in columns)} |")
        lines.append(f"|{'|'.join('--:' if form else ':--' for _, form in columns)}|")
        lines += [f"| {' | '.join(cells)} |" for cells in rows]
        lines.append("")
        if self.remarks:
            lines += [*(f"- {remark}" for remark in self.remarks), ""]
        return lines

    def _shown(self) -> tuple[list[tuple[str, str]], list[list[str]]]:
        columns = [(name, form) for name, form in self.columns if form != HIDDEN]
        rows = [
            [
                _cell(figure, form)
                for figure, (_, form) in zip(row, self.columns, strict=True)
                if form != HIDDEN
            ]
            for row in self.rows
        ]
        return columns, rows


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the bench `name`: what was found, how, and on which machine."""

    name: str
    tables: Sequence[Table]
    machine: str
    versions: str = ""
    method: Sequence[str] = ()
    notes: Sequence[str] = ()
    targets: Sequence[str] = ()  # see `target`
    caption: str = ""  # of its picture

    def has_failed(self) -> bool:
        """Return whether something that was to be measured did not run."""
        remarks = [each for table in self.tables for each in table.remarks]
        return any(isinstance(note, Failure) for note in [*self.notes, *remarks])

    def text(self) -> str:
        """Return it for a terminal."""
        lines = [line for table in self.tables for line in table.text()]
        targets = ["", "Targets:", *self.targets] if self.targets else []
        return "\n".join([*lines, *self._captions(), *targets])

    def markdown(self) -> str:
        """Return it ready to be pasted into a document."""
        lines = [line for table in self.tables for line in table.markdown()]
        lines += [f"- {caption}" for caption in self._captions()]
        if self.targets:
            lines += ["", "Against the speeds asked for:", ""]
            lines += [f"- {each}" for each in self.targets]
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Report:
        """Read a file that `save` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        tables = [Table(**table) for table in fields.pop("tables")]
        return cls(tables=tables, **fields)

    def _captions(self) -> list[str]:
        lines = [*self.method, f"Machine: {self.machine}."]
        if self.versions:
            lines.append(f"Versions: {self.versions}.")
        return [*lines, *self.notes]


def fill(
    path: Path,
    report: Report,
    picture: Path | None = None,
    section: str | None = None,
) -> None:
    """Write a report, and its picture if there is one, between the marks of its name.

    `section`: another name of marks, where one document has several runs of a bench.

    Raises RuntimeError where the document has no such place; it is unchanged then.
    """
    name = section or report.name
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise RuntimeError(f"{path} has no {begin} ... {end}")
    text = report.markdown()
    if picture:
        address = os.path.relpath(picture, path.parent)
        text += f"\n\n![{report.caption}]({address})"
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")


def target(text: str, figure: float | None, sign: str, bound: float) -> str:
    """Describe whether a figure is within its bound; None: it was not measured.

    `sign` is ">=" or "<=".
    """
    if figure is None:
        return f"{text}: not measured ({sign} {bound:.2f})"
    is_met = figure >= bound if sign == ">=" else figure <= bound
    verdict = "met" if is_met else "missed"
    return f"{text}: {figure:.2f} ({sign} {bound:.2f} {verdict})"


def trend(
    text: str, unit: str, places: Sequence[int], figures: Sequence[float]
) -> list[str]:
    """Describe whether a figure stays flat; nothing where there is one only."""
    if len(places) < 2 or not figures[0]:
        return []
    ratio = figures[-1] / figures[0]
    verdict = "grows" if ratio > _FLAT else "falls" if ratio < 1 / _FLAT else "flat"
    return [
        f"{text}: {verdict}, {ratio:,.2f}x from {unit} = {places[0]:,} to "
        f"{places[-1]:,} ({places[-1] / places[0]:,.0f}x)."
    ]


def times(ratio: float) -> str:
    """Return a ratio in three digits or so."""
    digits = 3 if ratio < 0.1 else 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:,.{digits}f}x"


def _cell(figure: Any, form: str) -> str:
    if figure is None:
        return "-"
    return times(figure) if form == RATIO else format(figure, form)
