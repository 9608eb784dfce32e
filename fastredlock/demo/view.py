"""Show a running demo: on a terminal redrawn in place, elsewhere line by line."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .job import Work
from .report import report
from .scene import Condition, Event, Phase, Progress, Scene

if TYPE_CHECKING:
    from .stage import View

_BAR_WIDTH = 16
_CONDITION_STYLES = {
    Condition.UP: "green",
    Condition.STOPPED: "bold red",
    Condition.PAUSED: "bold yellow",
}


def open_view() -> View:
    """Return the view for stdout: redrawn on a terminal, else lines."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # "µ" in a C locale
    console = _Console(highlight=False)
    if sys.stdout and sys.stdout.isatty() and not console.is_dumb_terminal:
        return LiveView(console)
    return LineView(console)


class _Console(Console):
    """Raise when the reader has gone, where rich would exit with our status 1."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich is handling


class LiveView:
    """Redraw the scene in place; the last drawing stays above the report."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, scene: Scene) -> None:
        """Redraw."""
        self._live.update(_frame(scene), refresh=True)

    def report(self, scene: Scene) -> None:
        """Leave the last drawing on the screen and print the report below."""
        self.close()
        report(self._console, scene)

    def close(self) -> None:
        """Show the cursor again."""
        self._live.stop()


class LineView:
    """Print a line for each event and each finished phase; for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed: set[object] = set()

    def show(self, scene: Scene) -> None:
        """Print the events since the last call."""
        if self._is_new(_title):
            self._print(_title(scene))
        for event in scene.events:
            if self._is_new(event):
                self._print(f"{event.at:6.1f} s  {event.text}")
        for phase in scene.phases.values():
            if phase.progress is Progress.DONE and self._is_new(phase.work):
                self._print(f"{'':10}{phase.work.value}: {_line(phase)}")

    def report(self, scene: Scene) -> None:
        """Print the report."""
        report(self._console, scene)

    def close(self) -> None:
        """Do nothing: nothing was taken."""

    def _is_new(self, thing: object) -> bool:
        is_new = thing not in self._printed
        self._printed.add(thing)
        return is_new

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)
        self._console.file.flush()


def _title(scene: Scene) -> str:
    owner = "your own masters" if scene.conditions is None else "5 local masters"
    return f"fastredlock demo: {scene.workers} processes, one counter, {owner}"


def _line(phase: Phase) -> str:
    if phase.work is Work.ALONE:
        return f"{phase.outcome.leases:,} times acquired and released"
    counted = f"{phase.increments:,} increments, counter {phase.counter:,}"
    return f"{counted}, {phase.lost:,} lost"


def _frame(scene: Scene) -> RenderableType:
    return Group(
        Text(_title(scene), style="bold"),
        "",
        _phases(scene),
        "",
        *_masters(scene),
        *[_event(event) for event in scene.events],
    )


def _phases(scene: Scene) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", min_width=16)
    table.add_column("", width=_BAR_WIDTH)
    for name in ("increments", "counter", "lost"):
        table.add_column(name, justify="right", min_width=11)
    for phase in scene.phases.values():
        table.add_row(phase.work.value, _bar(phase), *_numbers(phase))
    return table


def _bar(phase: Phase) -> ProgressBar:
    done = phase.seconds if phase.progress is Progress.DONE else phase.elapsed
    return ProgressBar(total=phase.seconds, completed=done, width=_BAR_WIDTH)


def _numbers(phase: Phase) -> list[RenderableType]:
    if phase.progress is Progress.WAITING:
        return []
    if phase.work is Work.ALONE:
        return [Text(f"{phase.increments:,} locks")]
    style = "bold red" if phase.lost else "bold green"
    return [
        f"{phase.increments:,}",
        f"{phase.counter:,}",
        Text(f"{phase.lost:,}", style=style),
    ]


def _masters(scene: Scene) -> list[RenderableType]:
    if scene.conditions is None:  # nobody knows about the user's own
        return []
    line = Text("masters", style="dim")
    for number, condition in enumerate(scene.conditions, 1):
        line.append(f"   {number} ", style="not dim")
        line.append(condition.value, style=f"not dim {_CONDITION_STYLES[condition]}")
    return [line, ""]


def _event(event: Event) -> Text:
    line = Text(f"{event.at:5.1f} s  ", style="dim")
    return line.append(event.text, style="not dim")
