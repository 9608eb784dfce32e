"""Draw the table of the libraries: the gap's distribution, and the grants of each.

The share of the gaps up to a length, on a logarithmic axis; and under it a dot for
each process, at its grants beside an equal share: all dots at 1 are fair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from bench.contending.clients import LIBRARIES, OURS
from bench.contending.libraries import GAPS, GRANTS, TITLE
from bench.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = dict[str, Any]

_GRID = "#e4e9ee"
_INK = "#1f2933"
_MUTED = "#5f6c7b"
_OURS = ("#d1495b", "#e8890c")  # with all masters, with one
_PEERS = ("#3e4c59", "#7b8794", "#4b7f9c", "#9cb3c9")
_LEAST_MS = 0.01
_ROW_HEIGHT = 0.28  # inches


def draw_contention(report: Report) -> Figure:
    """Return the picture; raise RuntimeError where the libraries were not measured."""
    tables = [table for table in report.tables if table.title == TITLE]
    rows = tables[0].records() if tables else []
    if not rows:
        raise RuntimeError("a picture needs the scenario `libraries`")
    looks = _looks(rows)
    low = _ROW_HEIGHT * len(rows) + 0.5
    figure = Figure(figsize=(8, 4.8 + low), facecolor="white")
    above, below = figure.subplots(2, 1, height_ratios=[3, low])
    for axes in (above, below):
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    _draw_gaps(above, rows, looks)
    _draw_grants(below, rows, looks)
    height = figure.get_size_inches()[1]
    title = "A lock that eight processes want: 5 ms hold, taken again at once"
    figure.text(0.012, 1 - 0.26 / height, title, fontsize=11, fontweight="bold")
    figure.text(0.012, 0.09 / height, report.machine, fontsize=7, color=_MUTED)
    figure.tight_layout(rect=(0, 0.2 / height, 1, 1 - 0.34 / height), h_pad=2)
    return figure


def _draw_gaps(axes: Axes, rows: list[Record], looks: list[str]) -> None:
    axes.set_title(
        "from a release to the grant of another process: share up to that time",
        loc="left",
        fontsize=9,
        fontweight="bold",
    )
    for row, colour in zip(rows, looks, strict=True):
        if gaps := row[GAPS]:
            axes.plot(
                [max(gap, _LEAST_MS) for gap in gaps],
                range(1, len(gaps) + 1),
                color=colour,
                linewidth=2.2 if _is_ours(row) else 1.5,
                label=f"{_name(row)} ({row['to another']:.0%} of its grants)",
            )
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g} ms"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0f} %"))
    axes.set_ylim(0, 101)
    axes.grid(color=_GRID, linewidth=0.7)
    axes.legend(
        fontsize=7.5,
        frameon=False,
        ncols=2,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.08),
    )


def _draw_grants(axes: Axes, rows: list[Record], looks: list[str]) -> None:
    axes.set_title(
        "grants of each process, 1 is an equal share",
        loc="left",
        fontsize=9,
        fontweight="bold",
    )
    axes.axvline(1, color=_MUTED, linewidth=0.8)
    for place, (row, colour) in enumerate(zip(rows, looks, strict=True)):
        grants = row[GRANTS]
        share = sum(grants) / len(grants) or 1
        axes.plot(
            [count / share for count in grants],
            [place] * len(grants),
            "o",
            color=colour,
            markersize=6,
            alpha=0.65,
            markeredgewidth=0,
        )
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.grid(axis="x", color=_GRID, linewidth=0.7)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_fontweight("bold" if _is_ours(row) else "normal")
        tick.set_color(_INK)


def _looks(rows: list[Record]) -> list[str]:
    ours, peers = iter(_OURS), iter(_PEERS)
    return [next(ours if _is_ours(row) else peers) for row in rows]


def _name(row: Record) -> str:
    masters = row["N"]
    return f"{row['client']}, {masters} master{'s' if masters > 1 else ''}".replace(
        " Lock,", ","
    )


def _is_ours(row: Record) -> bool:
    return bool(row["client"] == LIBRARIES[OURS].label)
