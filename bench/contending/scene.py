"""What all scenarios share: the masters, the lengths, and the uncontended caller.

A ratio to the uncontended speed, U, is that to the windows which ran just before and
just after: a machine that is disturbed for a while is so for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from bench.contending.clients import OURS
from bench.contending.commands import commands_sent
from bench.contending.crew import Crew
from bench.contending.turns import Run, Window, percentile

_COUNTED = 1.0  # s, in which commands are counted
_SOLO = 0.5  # of the length of a window


class Solo(NamedTuple):
    """A window of the uncontended caller."""

    rate: float  # pairs/s
    pair_ms: float  # p50


@dataclass(slots=True)
class Contention:
    """The windows of one crew, and those of the uncontended caller between them."""

    runs: list[Run] = field(default_factory=list)
    solos: list[Solo] = field(default_factory=list)
    commands: float | None = None  # per grant, over all masters

    @property
    def ratios(self) -> list[float]:
        """Return the grants/s of each window over U, just before and after it."""
        return [
            run.rate() * 2 / (before.rate + after.rate)
            for run, (before, after) in zip(
                self.runs, pairwise(self.solos), strict=True
            )
        ]

    @property
    def pair_ms(self) -> float:
        """Return the p50 of an uncontended pair in that time."""
        return median(solo.pair_ms for solo in self.solos)


class Scene:
    """Masters, and one caller with a free lock of its own; `close` it."""

    def __init__(
        self, urls: Sequence[str], *, seconds: float, blocks: int, repeats: int
    ) -> None:
        self.urls = urls
        self.seconds = seconds
        self.blocks = blocks
        self.repeats = repeats
        self.notes: list[str] = []
        self.solos: list[Solo] = []
        self._solo = Crew(urls)

    def uncontended(self) -> Solo:
        """Run a window of the one caller."""
        run = self._solo.run(self.seconds * _SOLO, lead=0.05)
        pair_ms = percentile(pairs_ms(run), 50)
        if run.notes or pair_ms is None:
            raise RuntimeError(f"the uncontended caller: {'; '.join(run.notes)}")
        self.solos.append(Solo(run.rate(), pair_ms))
        return self.solos[-1]

    def contend(
        self,
        library: str = OURS,
        *,
        processes: int = 1,
        callers: int = 1,
        hold: float = 0.0,
        longer: int = 1,
        counted: bool = False,
    ) -> Contention:
        """Have a crew contend for all windows, each beside the uncontended caller.

        `longer`: so many times the usual length, where there are many callers.
        `counted`: count the commands as well, in a window of their own.
        """
        found = Contention()
        crew = Crew(self.urls, library, processes=processes, callers=callers)
        with closing(crew):
            found.solos.append(self.uncontended())
            for _ in range(self.blocks):
                found.runs.append(crew.run(self.seconds * longer, hold))
                found.solos.append(self.uncontended())
                if crew.notes:
                    break
            if counted and not crew.notes:
                found.commands = self.commands_per_grant(crew, self.urls, hold)
            self.notes += crew.notes
        return found

    def commands_per_grant(
        self, crew: Crew, urls: Sequence[str], hold: float
    ) -> float | None:
        """Run one more window; return the commands that clients sent per grant."""
        window = crew.soon(min(_COUNTED, self.seconds))
        commands, run = counted_in(crew, window, urls, hold)
        grants = sum(run.grants())
        return sum(commands) / grants if grants else None

    def close(self) -> None:
        """End the one caller."""
        self._solo.close()


def counted_in(
    crew: Crew, window: Window, urls: Sequence[str], hold: float
) -> tuple[list[int], Run]:
    """Run a window; return the commands sent to each master, and the turns."""
    crew.start(window, hold)
    commands = commands_sent(urls, window)
    return commands, crew.finish()


def pairs_ms(run: Run) -> list[float]:
    """Return how long each pair of one caller took, from its call to the next one's."""
    wanted = sorted(turn.wanted_ns for turn in run.turns)
    return [
        (after_ns - before_ns) / 1e6
        for before_ns, after_ns in pairwise(wanted)
        if run.window.counts(before_ns)
    ]
