"""Run contestants in alternation, A B C A B C ..., a process for each.

One block of each is a round. A machine that is disturbed for a while is so for all of
them: therefore a ratio is the median of the ratios within one round.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from statistics import median

from bench.contestants.tables import FLOOR, NODE, contestant_of, size_of
from bench.harness.process import Block, Process
from bench.harness.servers import cpu_used
from bench.report import Failure

CONTROL = "control"  # a second floor: how far it is from the first is the run's noise
_CONTROLLED = (FLOOR, f"{FLOOR}:100")  # it is one of these
_SETTLE = 10  # this part of a block is run before it: caches and places are its own
_TRIES = 3  # of ours: on a busy machine a pair may not be granted in time
_REST = 0.02  # s; replies and threads left over from the last block end in it

Round = Mapping[str, Block]  # by entry


class Alternation:
    """Processes, started and warmed up; `close` ends them.

    An entry that fails is left out from then on, and `notes` names it; one of ours that
    does not start is tried again, and is a `Failure` in the end. Where a floor
    runs, a second one runs last: as far from the first as can be.
    """

    def __init__(
        self, entries: Iterable[str], urls: Sequence[str], seconds: float
    ) -> None:
        self.notes: list[str] = []
        self._urls = urls
        self._seconds = seconds
        self._processes: dict[str, Process] = {}
        self._pairs: dict[str, int] = {}
        self._stack = ExitStack()
        try:
            for entry in entries:
                self._start(entry, entry)
            for entry in _CONTROLLED:
                if entry in self._processes:
                    self._start(CONTROL, entry)
        except BaseException:
            self.close()
            raise

    def run_round(self) -> dict[str, Block]:
        """Have each process run one block."""
        blocks: dict[str, Block] = {}
        for name, process in [*self._processes.items()]:
            pairs = self._pairs[name]
            time.sleep(_REST)
            try:
                process.run(max(1, pairs // _SETTLE))
                used_s = cpu_used(self._urls)
                block = process.run(pairs)
                used_us = (cpu_used(self._urls) - used_s) * 1e6
                blocks[name] = replace(block, servers_cpu_us=used_us / block.pairs)
            except (RuntimeError, OSError) as error:
                self._note(f"{name} is left out: {error}.")
                del self._processes[name]
        return blocks

    def completed(self, rounds: Sequence[Round]) -> list[Round]:
        """Return the rounds with those entries alone that ran in all of them."""
        return [{name: blocks[name] for name in self._processes} for blocks in rounds]

    def close(self) -> None:
        """End the processes."""
        self._stack.close()

    def _start(self, name: str, entry: str) -> None:
        tries = _TRIES if _is_ours(entry) else 1
        for tried in range(1, tries + 1):
            try:
                process = Process(entry, self._urls)
                self._stack.callback(process.close)
                self._pairs[name] = _pairs_for(process, self._seconds)
            except (RuntimeError, OSError) as error:  # or there is no compiler
                self._note(f"{entry} did not run: {error}.")
                if tried == _TRIES:
                    self.notes[-1] = Failure(self.notes[-1])
            else:
                self._processes[name] = process
                return

    def _note(self, text: str) -> None:
        self.notes.append(f"N = {len(self._urls)}: {text}")


def alternate(
    entries: Iterable[str], urls: Sequence[str], *, seconds: float, blocks: int
) -> tuple[list[Round], list[str]]:
    """Return the rounds of the entries that completed all, and notes on the others."""
    with closing(Alternation(entries, urls, seconds)) as alternation:
        rounds = []
        for block in range(blocks):
            print(
                f"N = {len(urls)}: round {block + 1} of {blocks} ...",
                file=sys.stderr,
                flush=True,
            )
            rounds.append(alternation.run_round())
        return alternation.completed(rounds), alternation.notes


def middle(rounds: Sequence[Round], entry: str, figure: str) -> float:
    """Return the median of one figure of a `Block` over the rounds."""
    figures: list[float] = [getattr(blocks[entry], figure) for blocks in rounds]
    return median(figures)


def ratios(rounds: Sequence[Round], above: str, below: str, figure: str) -> list[float]:
    """Return the ratio within each round, nothing where one of the two did not run."""
    if above not in rounds[0] or below not in rounds[0]:
        return []
    return [
        getattr(blocks[above], figure) / getattr(blocks[below], figure)
        for blocks in rounds
    ]


def ratio(rounds: Sequence[Round], above: str, below: str, figure: str) -> float | None:
    """Return the median of the ratios, None where one of the two did not run."""
    found = ratios(rounds, above, below, figure)
    return median(found) if found else None


def noise(rounds: Sequence[Round], below: str, figure: str) -> list[str]:
    """Compare the second floor with the first, in text; nothing without a floor."""
    found = ratio(rounds, CONTROL, below, figure)
    return [] if found is None else [f"{found:.2f}x"]


def _is_ours(entry: str) -> bool:
    """Return whether it is no other library, which may be missing here, or fail."""
    name = entry.partition(":")[0]
    if "/" in name:  # of `bench.compat`
        return name.endswith("/ours")
    return name != NODE and contestant_of(entry).module == "fastredlock"


def _pairs_for(process: Process, seconds: float) -> int:
    """Warm it up; return how many pairs it does in a block of that length."""
    size = size_of(process.entry)
    pairs = 2 * size
    while (block := process.run(pairs)).pairs / block.pairs_per_s < seconds / 4:
        pairs *= 4
    return max(2, round(block.pairs_per_s * seconds / size)) * size
