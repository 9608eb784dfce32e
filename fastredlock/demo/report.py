"""Print the results of a finished demo: its speed, the votes, the lost updates."""

from __future__ import annotations

from collections import Counter

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from .job import Outcome, Work, percentile_us
from .scene import Phase, Scene

_VOTES = ("GRANTED", "TAKEN", "FAILED", "SILENT", "PENDING")


def report(console: Console, scene: Scene) -> None:
    """Print the tables of times and votes, then the verdict."""
    console.print()
    remarks = _remarks(scene.phases[Work.WITH_LOCK].outcome)
    for part in (_times(scene), _votes(scene), Group(*remarks)):
        console.print(part)
        console.print()
    for line in _verdict(scene):
        console.print(line)


def _times(scene: Scene) -> Table:
    alone, locked = scene.phases[Work.ALONE], scene.phases[Work.WITH_LOCK]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("how fast", min_width=45)
    for name in ("p50", "p99", "per second"):
        table.add_column(name, justify="right", min_width=8)
    table.add_row("one worker alone, nobody else wants the lock")
    _add_times(table, alone, "acquire")
    table.add_row()
    table.add_row(f"{scene.workers} workers want the same lock{_trouble(scene)}")
    _add_times(table, locked, "acquire, waiting for others included")
    return table


def _trouble(scene: Scene) -> str:
    return "" if scene.conditions is None else ", 2 masters fail"


def _add_times(table: Table, phase: Phase, acquire: str) -> None:
    outcome = phase.outcome
    rate = outcome.leases / outcome.seconds if outcome.seconds else 0.0
    table.add_row(f"  {acquire}", *_percentiles(outcome.acquire_us), f"{rate:,.0f}")
    table.add_row("  release", *_percentiles(outcome.release_us))


def _percentiles(times_us: Counter[int]) -> list[str]:
    return [_time(percentile_us(times_us, percent)) for percent in (50, 99)]


def _time(us: int | None) -> str:
    if us is None:
        return "-"
    if us < 1000:
        return f"{us} µs"
    return f"{us / 1e3:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"


def _votes(scene: Scene) -> Table:
    outcome = scene.phases[Work.WITH_LOCK].outcome
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("who voted what (with the lock)", max_width=31, overflow="fold")
    for name in _VOTES:
        table.add_column(name.lower(), justify="right", no_wrap=True)
    for number, tally in enumerate(outcome.masters, 1):
        counts = [f"{tally.counts[name]:,}" for name in _VOTES]
        table.add_row(f"{number}  {tally.master}", *counts)
        if text := tally.usual_text():
            table.add_row(Text(f"   {text}", style="yellow"))
    return table


def _remarks(outcome: Outcome) -> list[Text]:
    remarks = [
        f"{outcome.leases:,} leases; {outcome.taken:,} more tries found the lock taken"
    ]
    if any(tally.counts["PENDING"] for tally in outcome.masters):
        remarks.append("pending: a quorum had decided before this master answered")
    if outcome.expired:
        remarks.append(f"{outcome.expired:,} leases ended too early to write")
    if outcome.failures:
        remarks.append(f"{outcome.failures:,} acquires failed, the last: ")
        remarks[-1] += outcome.failure
    return [Text(f"  {remark}", style="dim") for remark in remarks]


def _verdict(scene: Scene) -> list[Text]:
    unlocked, locked = scene.phases[Work.WITHOUT_LOCK], scene.phases[Work.WITH_LOCK]
    style = "bold red" if locked.lost else "bold green"
    hint = "" if unlocked.lost else "; a longer --pause-ms would show some"
    return [
        Text(f"without the lock: {_lost(unlocked)}{hint}"),
        Text(f"with the lock:    {_lost(locked)}", style=style),
    ]


def _lost(phase: Phase) -> str:
    share = f" ({phase.lost / phase.increments:.0%})" if phase.lost else ""
    return f"{phase.lost:,} of {phase.increments:,} updates lost{share}"
