"""Eight processes that hold a lock for 5 ms, with each library in alternation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from statistics import median
from typing import Any

from bench.contending.clients import LIBRARIES, OURS
from bench.contending.crew import Crew
from bench.contending.findings import Finding, gaps_ms, middle_run
from bench.contending.scene import Scene
from bench.contending.turns import Run, percentile
from bench.report import HIDDEN, Table

TITLE = "Eight processes, 5 ms hold, taking again at once: beside other libraries."
GRANTS, GAPS = "grants of each", "percentiles of the gap, ms"
_PROCESSES = 8
_HOLD = 0.005
_RIVAL = "python-redis-lock"
_COLUMNS = (
    ("client", ""),
    ("N", "d"),
    ("grants/s", ",.0f"),
    ("fewest", ",d"),
    ("most", ",d"),
    ("fewest / most", ".3f"),
    ("longest wait s", ",.3f"),
    ("gap p50 ms", ",.2f"),
    ("gap p99 ms", ",.2f"),
    ("to another", ".0%"),
    ("commands per grant", ",.1f"),
    ("overlaps", ",d"),
    ("lost updates", ",d"),
    (GRANTS, HIDDEN),
    (GAPS, HIDDEN),
)


def libraries(scene: Scene) -> tuple[Table, list[Finding]]:
    """Return a row for each client, and how ours compare with the best rival."""
    entries, notes = _entries(len(scene.urls))
    runs: dict[tuple[str, int], list[Run]] = {entry: [] for entry in entries}
    commands: dict[tuple[str, int], float | None] = {}
    with ExitStack() as opened:
        crews = {
            (name, masters): opened.enter_context(
                closing(Crew(scene.urls[:masters], name, processes=_PROCESSES))
            )
            for name, masters in entries
        }
        for _ in range(scene.blocks):
            for entry, crew in crews.items():
                if not crew.notes:
                    runs[entry].append(crew.run(scene.seconds, _HOLD))
        for (name, masters), crew in crews.items():
            if not crew.notes:
                urls = scene.urls[:masters]
                sent = scene.commands_per_grant(crew, urls, _HOLD)
                commands[name, masters] = sent
            notes += [f"{name}, N = {masters}: {note}." for note in crew.notes]
    rows = [_row(*entry, runs[entry], commands.get(entry)) for entry in entries]
    return Table(_COLUMNS, rows, TITLE, notes), _findings(runs, len(scene.urls))


def _entries(n: int) -> tuple[list[tuple[str, int]], list[str]]:
    """Return clients with their numbers of masters, and notes on missing ones."""
    missing = {name: each.missing() for name, each in LIBRARIES.items()}
    entries = [(OURS, n), (OURS, 1)] if n > 1 else [(OURS, n)]
    entries += [
        (name, 1 if each.one_master else n)
        for name, each in LIBRARIES.items()
        if name != OURS and not missing[name]
    ]
    notes = [
        f"{name} was left out: no module {module}."
        for name, module in missing.items()
        if module
    ]
    return entries, notes


def _row(
    name: str, masters: int, runs: Sequence[Run], commands: float | None
) -> list[Any]:
    run = middle_run(runs)
    grants = run.grants()
    gaps = gaps_ms(runs)
    all_grants = sum(sum(each.grants()) for each in runs)
    return [
        *(LIBRARIES[name].label, masters, median(each.rate() for each in runs)),
        *(min(grants), max(grants), run.fairness()),
        max(each.longest_wait_ns() for each in runs) / 1e9,
        *(percentile(gaps, 50), percentile(gaps, 99)),
        len(gaps) / all_grants if all_grants else None,
        commands,
        sum(each.overlaps() for each in runs),
        sum(each.lost_updates() for each in runs),
        sorted(grants),
        [percentile(gaps, percent) for percent in range(1, 101)] if gaps else [],
    ]


def _findings(runs: dict[tuple[str, int], list[Run]], n: int) -> list[Finding]:
    """Compare the p50 of the gaps, round by round."""
    return [
        Finding(
            f"gap p50, fastredlock N = {masters} / {_RIVAL}",
            _ratio(runs.get((OURS, masters), []), runs.get((_RIVAL, 1), [])),
            bound=bound,
        )
        for masters, bound in ({n: 1.3} | {1: 1.0}).items()
    ]


def _ratio(above: Sequence[Run], below: Sequence[Run]) -> float | None:
    ratios = [
        ours / theirs
        for ours, theirs in zip(map(_p50, above), map(_p50, below), strict=False)
        if ours and theirs
    ]
    return median(ratios) if ratios else None


def _p50(run: Run) -> float | None:
    return percentile(run.gaps_ns(), 50)
