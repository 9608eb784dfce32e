"""The players of a bench over one set of masters, a process for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from bench._contestant import Block, Contestant
from bench._crowd_results import CONTROL_PLAYER
from bench._crowds import crowd_and_size
from bench._peers import CONTROL, FLOOR

_CONTROLLED = (FLOOR, CONTROL_PLAYER)  # a second one of these plays last
_SETTLE = 10  # this part of a block is run before it: caches and places are its own
_REST = 0.02  # s; replies and threads left over from the last block end in it


class Match:
    """Players, started and warmed up; a context manager.

    A player that fails is left out from then on, and `notes` says so. Where a floor
    plays, a second one plays last: as far from the first as can be.
    """

    def __init__(
        self, players: Sequence[str], urls: Sequence[str], seconds: float
    ) -> None:
        self.notes: list[str] = []
        self._urls = urls
        self._seconds = seconds
        self._processes: dict[str, Contestant] = {}
        self._pairs: dict[str, int] = {}
        self._stack = ExitStack()
        try:
            for player in players:
                self._enter(player, player)
            for player in _CONTROLLED:
                if player in self._processes:
                    self._enter(CONTROL, player)
        except BaseException:
            self._stack.close()
            raise

    def play(self) -> dict[str, Block]:
        """Have each player run one block, in turns."""
        played: dict[str, Block] = {}
        for name, process in [*self._processes.items()]:
            pairs = self._pairs[name]
            time.sleep(_REST)
            try:
                process.run(max(1, pairs // _SETTLE))
                played[name] = process.run(pairs)
            except (RuntimeError, OSError) as error:
                self.notes.append(f"{name} is left out: {error}.")
                del self._processes[name]
        return played

    def completed(self, rounds: Sequence[dict[str, Block]]) -> list[dict[str, Block]]:
        """Return the rounds with those alone who played all of them."""
        return [{name: played[name] for name in self._processes} for played in rounds]

    def __enter__(self) -> Match:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _enter(self, name: str, player: str) -> None:
        try:
            process = self._stack.enter_context(Contestant(player, self._urls))
            self._pairs[name] = _pairs_for(process, player, self._seconds)
        except (RuntimeError, OSError) as error:  # it failed, or there is no compiler
            self.notes.append(f"{player} did not play: {error}.")
            return
        self._processes[name] = process


def _pairs_for(process: Contestant, player: str, seconds: float) -> int:
    """Warm it up; return how many pairs it does in a block of that length."""
    size = crowd_and_size(player)[1] if ":" in player else 1
    pairs = 2 * size
    while (block := process.run(pairs)).pairs / block.pairs_per_s < seconds / 4:
        pairs *= 4
    return max(2, round(block.pairs_per_s * seconds / size)) * size
