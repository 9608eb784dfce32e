"""Show the demo: on a terminal redrawn in place, elsewhere line by line; its report."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .play import Demo, Outcome, Phase, alone

STYLES = {"up": "green", "stopped": "bold red", "paused": "bold yellow"}
VOTES = ("GRANTED", "TAKEN", "FAILED", "SILENT", "PENDING")
BAR_WIDTH = 16


class _Console(Console):
    """Raise when the reader has gone, where rich would exit with our status 1."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich is handling


class View:
    """Show a demo on stdout; a context manager that gives the terminal back."""

    def __init__(self, title: str) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # "µ" in a C locale
        self._console = console = _Console(highlight=False)
        self._title = Text(title, style="bold")
        self._printed = 0  # events
        self._live: Live | None = None
        if sys.stdout and sys.stdout.isatty() and not console.is_dumb_terminal:
            self._live = Live(self._title, console=console, auto_refresh=False)

    def __enter__(self) -> View:
        if self._live:
            self._live.start(refresh=True)
        else:
            self._print(self._title.plain)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, demo: Demo) -> None:
        """Redraw, or print the new events."""
        if self._live:
            self._live.update(Group(self._title, "", *_frame(demo)), refresh=True)
            return
        for at, text in demo.events[self._printed :]:
            self._print(f"{at:6.1f} s  {text}")
        self._printed = len(demo.events)

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)
        self._console.file.flush()

    def report(self, demo: Demo) -> None:
        """Print times, votes and the verdict, below the last drawing."""
        self.__exit__()
        unlocked, locked, _ = demo.phases
        self._console.print("", _times(demo), "", _votes(locked.outcome), "")
        for remark in _remarks(locked.outcome):
            self._console.print(Text(f"  {remark}", style="dim"))
        hint = "" if unlocked.lost else "; a longer --pause-ms would show some"
        style = "bold red" if locked.lost else "bold green"
        self._console.print(f"\nwithout the lock: {_lost(unlocked)}{hint}")
        self._console.print(Text(f"with the lock:    {_lost(locked)}", style=style))


def _frame(demo: Demo) -> Iterator[RenderableType]:
    yield from (_phases(demo), "")
    if demo.local:  # nobody knows about the user's own masters
        masters = Text("masters", style="dim")
        for number, condition in enumerate(demo.conditions, 1):
            masters.append(f"   {number} ", style="not dim")
            masters.append(condition, style=f"not dim {STYLES[condition]}")
        yield from (masters, "")
    for at, text in demo.events:
        yield Text(f"{at:5.1f} s  ", style="dim").append(text, style="not dim")


def _table(first: str, width: int, *names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    return table


def _phases(demo: Demo) -> Table:
    table = _table("", 11, "", "increments", "counter", "lost")
    for phase in demo.phases:
        bar = ProgressBar(phase.seconds, phase.elapsed, width=BAR_WIDTH)
        style = "bold red" if phase.lost else "bold green"
        lost = Text(f"{phase.lost:,}", style=style)
        numbers = [f"{phase.increments:,}", f"{phase.counter:,}", lost]
        if phase.work is alone:
            numbers = [f"{phase.increments:,} locks"]
        table.add_row(phase.name, bar, *(numbers if phase.elapsed else ()))
    return table


def _times(demo: Demo) -> Table:
    _, locked, last = demo.phases
    table = _table("how fast", 8, "p50", "p99", "per second")
    table.add_row("one worker alone, nobody else wants the lock")
    _add_times(table, last, "acquire")
    fail = ", 2 masters fail" if demo.local else ""
    table.add_row()
    table.add_row(f"{demo.workers} workers want the same lock{fail}")
    _add_times(table, locked, "acquire, waiting for others included")
    return table


def _add_times(table: Table, phase: Phase, acquire: str) -> None:
    outcome = phase.outcome
    rate = f"{outcome.counts['leases'] / phase.seconds:,.0f}"
    table.add_row(f"  {acquire}", *percentiles(outcome.acquire_us), rate)
    table.add_row("  release", *percentiles(outcome.release_us))


def percentiles(times_us: Counter[int]) -> list[str]:
    """Return the times that 50 % and 99 % of `times_us` do not exceed."""
    in_order = sorted(times_us.elements())
    ranks = (-(-len(in_order) * percent // 100) for percent in (50, 99))
    return [_time(in_order[rank - 1]) if in_order else "-" for rank in ranks]


def _time(us: int) -> str:
    if us < 1000:
        return f"{us} µs"
    return f"{us / 1e3:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"


def _votes(outcome: Outcome) -> Table:
    counts: Counter[tuple[int, str]] = Counter()
    for (number, _, name, _), count in outcome.votes.items():
        counts[number, name] += count
    table = _table("who voted what (with the lock)", 0, *map(str.lower, VOTES))
    for (number, master), text in outcome.masters().items():
        table.add_row(
            f"{number}  {master}", *(f"{counts[number, name]:,}" for name in VOTES)
        )
        if text:
            table.add_row(Text(f"   {text}", style="yellow"))
    return table


def _remarks(outcome: Outcome) -> Iterator[str]:
    counts = outcome.counts
    tries = f"{counts['taken']:,} more tries found the lock taken"
    yield f"{counts['leases']:,} leases; {tries}"
    if any(name == "PENDING" for _, _, name, _ in outcome.votes):
        yield "pending: a quorum had decided before this master answered"
    if counts["expired"]:
        yield f"{counts['expired']:,} leases ended too early to write"
    if counts["failures"]:
        yield f"{counts['failures']:,} acquires failed, the last: {outcome.failure}"


def _lost(phase: Phase) -> str:
    share = f" ({phase.lost / phase.increments:.0%})" if phase.lost else ""
    return f"{phase.lost:,} of {phase.increments:,} updates lost{share}"
