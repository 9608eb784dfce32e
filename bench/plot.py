"""Draw a report: one panel per N, a dot at the p50, a line on to the p99.

Dots, not bars: the axis is logarithmic, where a bar's length would mean nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench._peers import FLOOR, LABELS
from bench._results import OURS, Report, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#1f2933"
_MUTED = "#5f6c7b"
_GRID = "#e4e9ee"
_COLOURS = {FLOOR: "#3e4c59", OURS: "#d1495b"}
_PEER = "#a9b8c6"
_ROW_HEIGHT = 0.27  # inches
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.hashsalt": "fastredlock",  # the same figures give the same file
    "xtick.labelsize": 8,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "xtick.color": _MUTED,
    "ytick.color": _INK,
}


def plot(report: Report, path: Path) -> None:
    """Write the picture; the name's suffix decides the format, .svg or .png."""
    rows = report.contestants
    panels = [
        [row for row in rows if row.masters == masters]
        for masters in sorted({row.masters for row in rows})
    ]
    height = 1.25 + sum(_ROW_HEIGHT * len(panel) + 0.4 for panel in panels)
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(8, height), facecolor="white")
        column = figure.subplots(
            len(panels),
            1,
            sharex=True,
            squeeze=False,
            height_ratios=[len(panel) for panel in panels],
        )[:, 0]
        for axes, panel in zip(column, panels, strict=True):
            _draw_panel(axes, panel)
        _draw_scale(column[-1], rows)
        _draw_words(figure, report, height)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=160, metadata=metadata)


def _draw_panel(axes: Axes, rows: list[Row]) -> None:
    axes.grid(axis="x", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for place, row in enumerate(rows):
        _draw_row(axes, place, row)
    axes.set_yticks(range(len(rows)), [LABELS[row.contestant] for row in rows])
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_fontweight(_weight(row))
    axes.set_ylim(len(rows) - 0.45, -0.55)
    masters = rows[0].masters
    title = f"{masters} master{'s' if masters > 1 else ''}"
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold", pad=3)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_row(axes: Axes, place: int, row: Row) -> None:
    colour = _COLOURS.get(row.contestant, _PEER)
    axes.plot([row.p50_us, row.p99_us], [place, place], color=colour, linewidth=2)
    axes.plot([row.p99_us], [place], "|", color=colour, markersize=8, markeredgewidth=2)
    axes.plot([row.p50_us], [place], "o", color=colour, markersize=8.5)
    axes.annotate(
        _label(row),
        (row.p99_us, place),
        xytext=(8, 0),
        textcoords="offset points",
        va="center_baseline",
        fontweight=_weight(row),
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )


def _draw_scale(axes: Axes, rows: list[Row]) -> None:
    least = min(row.p50_us for row in rows) / 1.4
    most = max(row.p99_us for row in rows)
    axes.set_xscale("log")
    axes.set_xlim(least, most * (most / least) ** 0.3)  # 0.3: room for the last label
    steps = [digit * 10**power for power in range(8) for digit in (1, 2, 5)]
    marks = [step for step in steps if least <= step <= 2 * most]
    axes.xaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda us, _: _duration(us)))
    axes.set_xlabel("time per acquire + release, logarithmic")


def _draw_words(figure: Figure, report: Report, height: float) -> None:
    title = "Acquire + release of a free lock: dot and label = p50, line on to p99"
    figure.text(0.012, 1 - 0.26 / height, title, fontsize=11, fontweight="bold")
    figure.text(0.012, 0.09 / height, report.machine, fontsize=7, color=_MUTED)
    figure.tight_layout(rect=(0, 0.2 / height, 1, 1 - 0.34 / height))


def _weight(row: Row) -> str:
    return "bold" if row.contestant == OURS else "normal"


def _label(row: Row) -> str:
    if row.p50_to_floor is None or row.contestant == FLOOR:
        return _duration(row.p50_us)
    digits = 2 if row.p50_to_floor < 10 else 0
    return f"{_duration(row.p50_us)}   {row.p50_to_floor:.{digits}f} x floor"


def _duration(us: float) -> str:
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.0f} µs"
