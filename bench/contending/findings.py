"""A figure beside its target, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, median_low
from typing import Any

from bench.contending.turns import Run, percentile
from bench.report import HIDDEN, Table

_COLUMNS = (
    ("scenario", ""),
    ("figure", ""),
    ("measured", ">"),
    ("target", ">"),
    ("", ""),
    ("value", HIDDEN),
    ("bound", HIDDEN),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure in a format and a unit; `sign` is ">=" or "<=", None without a bound."""

    figure: str
    value: float | None
    form: str = ",.2f"
    unit: str = ""
    sign: str = "<="
    bound: float | None = None

    def is_met(self) -> bool | None:
        """Return whether the value is within its bound; None without one of the two."""
        if self.value is None or self.bound is None:
            return None
        if self.sign == ">=":
            return self.value >= self.bound
        return self.value <= self.bound

    def row(self, scenario: str) -> list[Any]:
        """Return the row of a table."""
        verdict = {True: "met", False: "missed", None: ""}[self.is_met()]
        target = "" if self.bound is None else f"{self.sign} {self._words(self.bound)}"
        measured = "-" if self.value is None else self._words(self.value)
        return [
            *(scenario, self.figure, measured, target, verdict),
            *(self.value, self.bound),
        ]

    def _words(self, value: float) -> str:
        return f"{value:{self.form}}{self.unit}"


def table_of(title: str, found: Sequence[tuple[str, Sequence[Finding]]]) -> Table:
    """Return the findings of several scenarios, by their names in words."""
    rows = [finding.row(name) for name, findings in found for finding in findings]
    return Table(_COLUMNS, rows, title)


def fewest_most(runs: Sequence[Run], bound: float) -> Finding:
    """Return the middle one of several windows, with its grants."""
    run = middle_run(runs)
    grants = run.grants()
    text = f"fewest / most grants ({min(grants):,} / {max(grants):,})"
    return Finding(text, run.fairness(), sign=">=", bound=bound)


def longest_wait(runs: Sequence[Run], bound_ms: float | None) -> Finding:
    """Return the longest of all windows."""
    longest = max(run.longest_wait_ns() for run in runs) / 1e6
    return Finding("longest wait", longest, ",.0f", " ms", bound=bound_ms)


def gap(runs: Iterable[Run], percent: int, bound_ms: float | None) -> Finding:
    """Return the time from a release to another process's grant, over all windows."""
    found = percentile(gaps_ms(runs), percent)
    text = f"release to another process's grant, p{percent}"
    return Finding(text, found, ",.2f", " ms", bound=bound_ms)


def exclusion(runs: Iterable[Run]) -> list[Finding]:
    """Return what must never be."""
    runs = [*runs]
    overlaps = sum(run.overlaps() for run in runs)
    lost = sum(run.lost_updates() for run in runs)
    return [
        Finding("overlapping holders", overlaps, ",.0f", bound=0),
        Finding("lost updates", lost, ",.0f", bound=0),
    ]


def stalls(runs: Iterable[Run]) -> Finding:
    """Return how often a free lock was left alone."""
    text = "stalls (0.1 s free, with waiters)"
    return Finding(text, sum(run.stalls() for run in runs), ",.0f", bound=0)


def gaps_ms(runs: Iterable[Run]) -> list[float]:
    """Return the gaps of all windows."""
    return [gap_ns / 1e6 for run in runs for gap_ns in run.gaps_ns()]


def middle_run(runs: Sequence[Run]) -> Run:
    """Return the one whose fairness is the median."""
    middle = median_low(run.fairness() for run in runs)
    return next(run for run in runs if run.fairness() == middle)


def middle_of(values: Sequence[float]) -> float | None:
    """Return the median, None of nothing."""
    return median(values) if values else None
