"""Show the demo: what happens, line by line; bars on a terminal; its report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from .play import Counts, Demo, Phase

VOTES = ("GRANTED", "TAKEN", "FAILED", "SILENT", "PENDING")


class _Console(Console):
    """Raise when the reader has gone, where rich would exit with our status 1."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich is handling


class View(Progress):
    """Show a demo on stdout; a context manager that gives the terminal back."""

    def __init__(self, title: str) -> None:
        console = _Console(highlight=False)
        is_drawn = console.file.isatty() and not console.is_dumb_terminal
        super().__init__(
            BarColumn(16),
            TextColumn("{task.description}"),
            console=console,
            auto_refresh=False,
            disable=not is_drawn,
        )
        self._began = time.monotonic()
        self._print(title)

    def note(self, text: str) -> None:
        """Print what has happened, above the bars."""
        self._print(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def _print(self, line: str) -> None:
        # The bars are drawn with the same options; a pipe has no width to wrap at.
        self.console.print(Text(line), soft_wrap=self.disable)
        self.console.file.flush()

    def begin(self, phase: Phase) -> None:
        """Add a bar below the others."""
        self._bar = self.add_task(phase.name, total=phase.seconds)

    def show(self, phase: Phase) -> None:
        """Redraw the bar of the phase that has begun."""
        text = f"[{_style(phase)}]{phase}"
        self.update(self._bar, completed=phase.elapsed, description=text, refresh=True)

    def report(self, demo: Demo) -> None:
        """Print times, votes and the verdict."""
        _, unlocked, locked, _ = demo.phases
        self.console.print("", _times(demo), "", _votes(locked.counts), "")
        for remark in _remarks(locked.counts):
            self.console.print(Text(f"  {remark}", style="dim"))
        hint = "" if unlocked.lost else "; a longer --pause-ms would show some"
        self.console.print(f"\nwithout the lock: {_lost(unlocked)}{hint}")
        verdict = f"with the lock:    {_lost(locked)}"
        self.console.print(Text(verdict, style=_style(locked)))


def _style(phase: Phase) -> str:
    return "bold red" if phase.lost else "bold green"


def _table(first: str, *names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _times(demo: Demo) -> Table:
    _, _, locked, alone = demo.phases
    fail = ", 2 masters fail" if demo.local else ""
    together = f"{locked.workers} workers want the same lock{fail}"
    table = _table("how fast", "p50", "p99", "per second")
    for phase, title, waiting in (
        (alone, "one worker alone, nobody else wants the lock", ""),
        (locked, together, ", waiting for others included"),
    ):
        counts = phase.counts
        rate = f"{counts.acquire_us.total() / phase.seconds:,.0f}"
        table.add_row(title)
        table.add_row(f"  acquire{waiting}", *percentiles(counts.acquire_us), rate)
        table.add_row("  release", *percentiles(counts.release_us))
    return table


def percentiles(times_us: Counter[int]) -> list[str]:
    """Return the times that 50 % and 99 % of `times_us` do not exceed."""
    in_order = sorted(times_us.elements())
    ranks = (-(-len(in_order) * percent // 100) for percent in (50, 99))
    return [_time(in_order[rank - 1]) if in_order else "-" for rank in ranks]


def _time(us: int) -> str:
    if us < 1000:
        return f"{us} µs"
    return f"{us / 1e3:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"


def _votes(counts: Counts) -> Table:
    table = _table("who voted what (with the lock)", *map(str.lower, VOTES))
    for master in dict.fromkeys(master for master, _ in counts.votes):
        table.add_row(master, *(f"{counts.votes[master, vote]:,}" for vote in VOTES))
        if text := counts.texts.get(master):
            table.add_row(Text(f"   {text}", style="yellow"))
    return table


def _remarks(counts: Counts) -> Iterator[str]:
    tries, leases = counts.tries, counts.acquire_us.total()
    yield f"{leases:,} leases; {tries['taken']:,} more tries found the lock taken"
    yield "pending: a quorum had decided before this master answered"
    if tries["expired"]:
        yield f"{tries['expired']:,} leases ended too early to write"
    if tries["failed"]:
        yield f"{tries['failed']:,} acquires failed, the last: {counts.texts['']}"


def _lost(phase: Phase) -> str:
    share = f" ({phase.lost / phase.increments:.0%})" if phase.lost else ""
    return f"{phase.lost:,} of {phase.increments:,} updates lost{share}"
