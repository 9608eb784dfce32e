"""Lay out cells: aligned for a terminal, or as a Markdown table."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
    grouped: bool = False,
) -> list[str]:
    """Return one line per row under the headings; columns in `left` to the left.

    `grouped` puts a blank line wherever the first cell changes.
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    group = None
    for cells in (headings, *rows):
        if grouped and cells is not headings and cells[0] != group:
            lines.append("")
            group = cells[0]
        padded = [
            cell.ljust(width) if heading in left else cell.rjust(width)
            for cell, width, heading in zip(cells, widths, headings, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def markdown(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = (),
) -> list[str]:
    """Return the lines of a Markdown table."""
    rule = "|".join(":--" if heading in left else "--:" for heading in headings)
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return [lines[0], f"|{rule}|", *lines[1:]]
