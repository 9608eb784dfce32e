"""Draw a throughput report: pairs/s against the number of callers, one panel per N."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench._crowd_results import CrowdReport, CrowdRow
from bench._crowds import CROWDS
from bench._peers import FLOOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#1f2933"
_MUTED = "#5f6c7b"
_GRID = "#e4e9ee"
_FLOOR = "#3e4c59"
_PEER = "#a9b8c6"
# crowd: colour, dashes, marker; ours are warm, and the rest are told by their labels
_OURS = {
    "each": ("#8f2738", "-", "s"),
    "each-asyncio": ("#8f2738", ":", "s"),
    "asyncio": ("#d1495b", "-", "o"),
    "uvloop": ("#d1495b", "--", "o"),
    "threads": ("#e8890c", "-", "^"),
}
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.hashsalt": "fastredlock",  # the same figures give the same file
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
}
_PANEL_HEIGHT = 3.9  # inches
_LABEL_GAP = 11.5  # points between the labels of two lines that end close together


def plot(report: CrowdReport, path: Path) -> None:
    """Write the picture; the name's suffix decides the format, .svg or .png."""
    panels = [
        [row for row in report.rows if row.masters == masters]
        for masters in sorted({row.masters for row in report.rows})
    ]
    height = 0.9 + _PANEL_HEIGHT * len(panels)
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(8, height), facecolor="white")
        column = figure.subplots(
            len(panels), 1, sharex=True, sharey=True, squeeze=False
        )[:, 0]
        for axes, panel in zip(column, panels, strict=True):
            _draw_scales(axes, report.rows)
            _draw_panel(axes, panel)
        column[-1].set_xlabel("tasks, threads, or locks in a batch")
        _draw_words(figure, report, height)
        for axes, panel in zip(column, panels, strict=True):
            _draw_labels(axes, panel, 72 / figure.dpi)  # the axes have their final size
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=160, metadata=metadata)


def _draw_scales(axes: Axes, rows: list[CrowdRow]) -> None:
    least = min(row.pairs_per_s for row in rows)
    most = max(row.pairs_per_s for row in rows)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.85, max(row.size for row in rows) * 1.2)
    axes.set_ylim(least / 1.5, most * 1.5)
    steps = [digit * 10**power for power in range(7) for digit in (1, 2, 5)]
    marks = [step for step in steps if least / 1.5 <= step <= most * 1.5]
    axes.yaxis.set_major_locator(FixedLocator(marks))
    axes.xaxis.set_major_locator(FixedLocator(sorted({row.size for row in rows})))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _draw_panel(axes: Axes, rows: list[CrowdRow]) -> None:
    axes.grid(color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for crowd in dict.fromkeys(row.crowd for row in rows):
        line = _line_of(crowd, rows)
        colour, dashes, marker = _look(crowd)
        axes.plot(
            [row.size for row in line],
            [row.pairs_per_s for row in line],
            color=colour,
            linestyle=dashes,
            marker=marker,
            markersize=5,
            linewidth=1.8,
        )
    masters = rows[0].masters
    title = f"{masters} master{'s' if masters > 1 else ''}"
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold", pad=3)
    axes.set_ylabel("pairs per second")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_labels(axes: Axes, rows: list[CrowdRow], points_per_pixel: float) -> None:
    """Name every line at the right edge, pushed apart where lines end together."""
    lines = [_line_of(crowd, rows) for crowd in dict.fromkeys(r.crowd for r in rows)]
    ends = sorted((line[-1] for line in lines), key=lambda row: row.pairs_per_s)
    heights = [
        axes.transData.transform((1, row.pairs_per_s))[1] * points_per_pixel
        for row in ends
    ]
    for height, row in zip(_spread(heights), ends, strict=True):
        is_named = row.crowd in (*_OURS, FLOOR)
        axes.annotate(
            CROWDS[row.crowd].label,
            (row.size, row.pairs_per_s),
            xytext=(axes.bbox.x1 * points_per_pixel + 6, height),
            textcoords="figure points",
            color=_look(row.crowd)[0] if is_named else _MUTED,
            fontsize=7.5,
            va="center",
        )


def _line_of(crowd: str, rows: list[CrowdRow]) -> list[CrowdRow]:
    return sorted((row for row in rows if row.crowd == crowd), key=lambda row: row.size)


def _look(crowd: str) -> tuple[str, str, str]:
    if crowd == FLOOR:
        return _FLOOR, "-", "D"
    threads = CROWDS[crowd].unit == "thread"
    return _OURS.get(crowd, (_PEER, "-", "^" if threads else "o"))


def _spread(places: list[float]) -> list[float]:
    """Move ascending places apart, up and down alike, to `_LABEL_GAP` at least."""
    groups = [[place] for place in places]
    centres = [*places]
    i = 0
    while i + 1 < len(groups):
        needed = _LABEL_GAP * (len(groups[i]) + len(groups[i + 1])) / 2
        if centres[i + 1] - centres[i] >= needed:
            i += 1
            continue
        groups[i : i + 2] = [groups[i] + groups[i + 1]]
        centres[i : i + 2] = [sum(groups[i]) / len(groups[i])]
        i = max(0, i - 1)
    return [
        centre + _LABEL_GAP * (place - (len(group) - 1) / 2)
        for centre, group in zip(centres, groups, strict=True)
        for place in range(len(group))
    ]


def _draw_words(figure: Figure, report: CrowdReport, height: float) -> None:
    title = "Acquire + release of free locks by one process"
    figure.text(0.012, 1 - 0.26 / height, title, fontsize=11, fontweight="bold")
    figure.text(0.012, 0.09 / height, report.machine, fontsize=7, color=_MUTED)
    figure.tight_layout(rect=(0, 0.2 / height, 0.76, 1 - 0.34 / height))
