"""Print a throughput report: a table for the terminal, or the same in Markdown."""

from __future__ import annotations

from bench._crowd_results import CrowdReport, CrowdRow
from bench._crowds import CROWDS
from bench._grid import aligned, markdown

_HEADINGS = (
    "N",
    "contestant",
    "callers",
    "pairs/s",
    "CPU µs",
    "p50 µs",
    "p99 µs",
    "pairs/s / floor",
    "CPU / floor",
)
_LEFT = ("contestant", "callers")


def text_of(report: CrowdReport) -> str:
    """Return the report for a terminal."""
    table = aligned(_HEADINGS, _rows(report), left=_LEFT, grouped=True)
    targets = ["", "Targets:", *map(str, report.targets)] if report.targets else []
    return "\n".join([*table, "", *_captions(report), *targets])


def markdown_of(report: CrowdReport) -> str:
    """Return the report ready to be pasted into a README."""
    table = markdown(_HEADINGS, _rows(report), left=_LEFT)
    captions = [f"- {line}" for line in _captions(report)]
    targets = [f"- {target}" for target in report.targets]
    if targets:
        targets = ["", "Against the speeds asked for:", "", *targets]
    return "\n".join([*table, "", *captions, *targets])


def _rows(report: CrowdReport) -> list[tuple[str, ...]]:
    return [_cells(row) for row in report.rows]


def _cells(row: CrowdRow) -> tuple[str, ...]:
    crowd = CROWDS[row.crowd]
    return (
        str(row.masters),
        crowd.label,
        crowd.callers(row.size),
        f"{row.pairs_per_s:,.0f}",
        f"{row.cpu_us:,.1f}",
        f"{row.p50_us:,.0f}",
        f"{row.p99_us:,.0f}",
        _times(row.to_floor),
        _times(row.cpu_to_floor),
    )


def _times(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    digits = 3 if ratio < 0.1 else 2 if ratio < 10 else 0
    return f"{ratio:,.{digits}f}x"


def _captions(report: CrowdReport) -> list[str]:
    lines = [
        report.method,
        report.noise,
        f"Machine: {report.machine}.",
        f"Versions: {report.versions}.",
        *report.notes,
    ]
    return [line for line in lines if line]
