"""Draw a report: `pair` as dots, `throughput` as lines, one panel per N; `contend`.

Dots, not bars: the axis is logarithmic, where a bar's length would mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench.contending.picture import draw_contention
from bench.contestants.tables import (
    FLOOR,
    MANY_CALLERS,
    NATIVE_FLOOR,
    ONE_CALLER,
    OURS,
    contestant_of,
    size_of,
)
from bench.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = dict[str, Any]  # a row of the table, its figures by heading

_INK = "#1f2933"
_MUTED = "#5f6c7b"
_GRID = "#e4e9ee"
_FLOOR = "#3e4c59"
_PEER = "#a9b8c6"
_DOTS = {ONE_CALLER[FLOOR].label: _FLOOR, ONE_CALLER[OURS].label: "#d1495b"}
# colour, dashes, marker; ours are warm, and the rest are distinguished by their labels
_LINES = {
    FLOOR: (_FLOOR, "-", "D"),
    NATIVE_FLOOR: (_FLOOR, ":", "D"),
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
_ROW_HEIGHT = 0.27  # inches, of a row of dots
_LINES_HEIGHT = 3.9  # inches, of a panel of lines
_LABEL_GAP = 11.5  # points between the labels of two lines that end close together


def plot(report: Report, path: Path) -> None:
    """Write the picture; the name's suffix decides the format, .svg or .png."""
    with mpl.rc_context(_SETTINGS):
        figure = _draw(report)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=160, metadata=metadata)


def _draw(report: Report) -> Figure:
    if report.name == "contend":
        return draw_contention(report)
    rows = report.tables[0].records()
    panels = [
        [row for row in rows if row["N"] == masters]
        for masters in sorted({row["N"] for row in rows})
    ]
    draw = _draw_dots if report.name == "pair" else _draw_lines
    return draw(panels, report.machine)


def _draw_dots(panels: Sequence[list[Record]], machine: str) -> Figure:
    sizes = [len(panel) for panel in panels]
    height = 1.25 + sum(_ROW_HEIGHT * size + 0.4 for size in sizes)
    figure, column = _new_figure(panels, height, sharey=False, height_ratios=sizes)
    for axes, panel in zip(column, panels, strict=True):
        axes.grid(axis="x", color=_GRID, linewidth=0.7)
        axes.set_yticks(range(len(panel)), [row["contestant"] for row in panel])
        axes.set_ylim(len(panel) - 0.45, -0.55)
        for place, row in enumerate(panel):
            _draw_dot(axes, place, row)
        for tick, row in zip(axes.get_yticklabels(), panel, strict=True):
            tick.set_fontweight(_weight(row))
            tick.set_fontsize(9)
            tick.set_color(_INK)
    rows = [row for panel in panels for row in panel]
    least = min(row["p50 µs"] for row in rows) / 1.4
    most = max(row["p99 µs"] for row in rows)
    scale = column[-1].xaxis
    column[-1].set_xscale("log")
    column[-1].set_xlim(least, most * (most / least) ** 0.3)  # room for the last label
    _mark(scale, [mark for mark in _marks() if least <= mark <= 2 * most])
    scale.set_major_formatter(FuncFormatter(lambda us, _: _duration(us)))
    column[-1].set_xlabel("time per acquire + release, logarithmic")
    title = "Acquire + release of a free lock: dot and label = p50, line on to p99"
    _write_texts(figure, title, machine, right=1)
    return figure


def _draw_dot(axes: Axes, place: int, row: Record) -> None:
    p50, p99 = row["p50 µs"], row["p99 µs"]
    colour = _DOTS.get(row["contestant"], _PEER)
    axes.plot([p50, p99], [place, place], color=colour, linewidth=2)
    axes.plot([p99], [place], "|", color=colour, markersize=8, markeredgewidth=2)
    axes.plot([p50], [place], "o", color=colour, markersize=8.5)
    label = _duration(p50)
    ratio = row["p50 / floor"]
    if ratio is not None and row["contestant"] != ONE_CALLER[FLOOR].label:
        label += f"   {ratio:.{2 if ratio < 10 else 0}f} x floor"
    axes.annotate(
        label,
        (p99, place),
        xytext=(8, 0),
        textcoords="offset points",
        va="center_baseline",
        fontweight=_weight(row),
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )


def _draw_lines(panels: Sequence[list[Record]], machine: str) -> Figure:
    height = 0.9 + _LINES_HEIGHT * len(panels)
    figure, column = _new_figure(panels, height, sharey=True)
    rows = [row for panel in panels for row in panel]
    for axes, panel in zip(column, panels, strict=True):
        _draw_scales(axes, rows)
        axes.grid(color=_GRID, linewidth=0.7)
        axes.set_ylabel("pairs per second")
        for name, line in _lines_of(panel).items():
            colour, dashes, marker = _look(name)
            axes.plot(
                [size_of(row["entry"]) for row in line],
                [row["pairs/s"] for row in line],
                color=colour,
                linestyle=dashes,
                marker=marker,
                markersize=5,
                linewidth=1.8,
            )
    column[-1].set_xlabel("tasks, threads, or locks in a batch")
    title = "Acquire + release of free locks by one process"
    _write_texts(figure, title, machine, right=0.76)
    for axes, panel in zip(column, panels, strict=True):
        _draw_labels(axes, panel, 72 / figure.dpi)  # the axes have their final size
    return figure


def _draw_scales(axes: Axes, rows: Sequence[Record]) -> None:
    least = min(row["pairs/s"] for row in rows) / 1.5
    most = max(row["pairs/s"] for row in rows) * 1.5
    sizes = sorted({size_of(row["entry"]) for row in rows})
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.85, max(sizes) * 1.2)
    axes.set_ylim(least, most)
    _mark(axes.xaxis, sizes)
    _mark(axes.yaxis, [mark for mark in _marks() if least <= mark <= most])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _draw_labels(axes: Axes, rows: list[Record], points_per_pixel: float) -> None:
    """Name every line at the right edge, pushed apart where lines end together."""
    ends = {name: line[-1] for name, line in _lines_of(rows).items()}
    names = sorted(ends, key=lambda name: float(ends[name]["pairs/s"]))
    heights = [
        axes.transData.transform((1, ends[name]["pairs/s"]))[1] * points_per_pixel
        for name in names
    ]
    for height, name in zip(_spread(heights), names, strict=True):
        row = ends[name]
        axes.annotate(
            contestant_of(row["entry"]).label,
            (size_of(row["entry"]), row["pairs/s"]),
            xytext=(axes.bbox.x1 * points_per_pixel + 6, height),
            textcoords="figure points",
            color=_look(name)[0] if name in _LINES else _MUTED,
            fontsize=7.5,
            va="center",
        )


def _lines_of(rows: Sequence[Record]) -> dict[str, list[Record]]:
    lines: dict[str, list[Record]] = {}
    for row in sorted(rows, key=lambda row: size_of(row["entry"])):
        lines.setdefault(row["entry"].partition(":")[0], []).append(row)
    return {name: lines[name] for name in MANY_CALLERS if name in lines}


def _look(name: str) -> tuple[str, str, str]:
    marker = "^" if MANY_CALLERS[name].unit == "thread" else "o"
    return _LINES.get(name, (_PEER, "-", marker))


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


def _new_figure(
    panels: Sequence[list[Record]], height: float, **shape: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with one column of panels, each with its number of masters."""
    figure = Figure(figsize=(8, height), facecolor="white")
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, **shape)
    column: list[Axes] = list(grid[:, 0])
    for axes, panel in zip(column, panels, strict=True):
        masters = panel[0]["N"]
        title = f"{masters} master{'s' if masters > 1 else ''}"
        axes.set_title(title, loc="left", fontsize=9, fontweight="bold", pad=3)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure, column


def _write_texts(figure: Figure, title: str, machine: str, right: float) -> None:
    height = figure.get_size_inches()[1]
    figure.text(0.012, 1 - 0.26 / height, title, fontsize=11, fontweight="bold")
    figure.text(0.012, 0.09 / height, machine, fontsize=7, color=_MUTED)
    figure.tight_layout(rect=(0, 0.2 / height, right, 1 - 0.34 / height))


def _marks() -> list[int]:
    return [digit * 10**power for power in range(8) for digit in (1, 2, 5)]


def _mark(axis: Any, marks: Sequence[int]) -> None:
    axis.set_major_locator(FixedLocator(marks))
    axis.set_minor_locator(NullLocator())


def _weight(row: Record) -> str:
    return "bold" if row["contestant"] == ONE_CALLER[OURS].label else "normal"


def _duration(us: float) -> str:
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.0f} µs"
