"""Print a report: a table for the terminal, or the same in Markdown."""

from __future__ import annotations

from bench._grid import aligned, markdown
from bench._peers import LABELS
from bench._results import Report, Row

_HEADINGS = (
    "N",
    "contestant",
    "p50 µs",
    "p99 µs",
    "pairs/s",
    "CPU µs",
    "syscalls",
    "p50 / floor",
    "CPU / floor",
    "p50 / fastredlock",
)
_LEFT = ("contestant",)


def text_of(report: Report) -> str:
    """Return the report for a terminal: aligned columns, a blank line between the N."""
    table = aligned(_HEADINGS, _rows(report), left=_LEFT, grouped=True)
    return "\n".join([*table, "", *_captions(report)])


def markdown_of(report: Report) -> str:
    """Return the report ready to be pasted into a README."""
    table = markdown(_HEADINGS, _rows(report), left=_LEFT)
    return "\n".join([*table, "", *(f"- {line}" for line in _captions(report))])


def _rows(report: Report) -> list[tuple[str, ...]]:
    return [_cells(row) for row in report.contestants]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.masters),
        LABELS[row.contestant],
        f"{row.p50_us:,.0f}",
        f"{row.p99_us:,.0f}",
        f"{row.pairs_per_s:,.0f}",
        f"{row.cpu_us:,.0f}",
        "-" if row.syscalls is None else f"{row.syscalls:,.1f}",
        _times(row.p50_to_floor),
        _times(row.cpu_to_floor),
        _times(row.p50_to_ours),
    )


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


def _captions(report: Report) -> list[str]:
    lines = [
        report.method,
        report.noise,
        report.syscall_method,
        f"Machine: {report.machine}.",
        f"Versions: {report.versions}.",
        *report.notes,
    ]
    return [line for line in lines if line]
