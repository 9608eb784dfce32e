"""The client processes of a run: started, stopped, killed, told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from .ledger import now_ns

ROOT = Path(__file__).parents[2]
ASKED = {signal.SIGTERM, signal.SIGUSR1}  # to end: worker.py
GRACE = 40.0  # s; from the signal to the end of a process: then it is hung


class Leaving(NamedTuple):
    """A process that was told to end."""

    process: subprocess.Popen[bytes]
    generation: int
    asked_ns: int


class Population:
    """So many places, each with one process at a time; each process a generation."""

    def __init__(
        self, client: str, urls: list[str], folder: Path, seed: int, is_guarded: bool,
        places: int,
    ) -> None:  # fmt: skip
        self._argv = (client, str(folder)), (str(seed), str(is_guarded), *urls)
        self._folder = folder
        self.generations = 0
        self.hung = 0
        self.crashes: list[str] = []
        self.stopped: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._stopped_ns: dict[int, int] = {}  # by place
        self._leaving: list[Leaving] = []
        self._places = [self._start() for _ in range(places)]

    def _start(self) -> tuple[subprocess.Popen[bytes], int]:
        self.generations += 1
        before, behind = self._argv
        argv = [sys.executable, "-m", "tests.chaos.worker", *before]
        # Blocked from its first instruction on: it may be told to end before it waits
        # for the signal, and would die of it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)
        try:
            with (self._folder / f"stderr{self.generations}").open("wb") as errors:
                process = subprocess.Popen(
                    [*argv, str(self.generations), *behind], cwd=ROOT, stderr=errors
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return process, self.generations

    def kill(self, place: int) -> None:
        """End a process as the kernel does; start another in its place."""
        process, generation = self._places[place]
        if process.poll() is not None:
            self._note_crash(process, generation)
        process.kill()
        process.wait()
        self._places[place] = self._start()
        self.go_on(place, generation)

    def stop(self, place: int) -> None:
        self._places[place][0].send_signal(signal.SIGSTOP)
        self._stopped_ns[place] = now_ns()

    def go_on(self, place: int, generation: int = 0) -> None:
        began_ns = self._stopped_ns.pop(place, None)
        if began_ns is not None:
            process, present = self._places[place]
            process.send_signal(signal.SIGCONT)
            self.stopped[generation or present].append((began_ns, now_ns()))

    def end(self, place: int, is_abrupt: bool) -> None:
        """Tell a process to close and exit; start another in its place."""
        self._report(place, is_abrupt)
        self._places[place] = self._start()

    def end_all(self) -> None:
        """Tell all to end in good order."""
        for place in range(len(self._places)):
            self._report(place, is_abrupt=False)
        self._places.clear()

    def _report(self, place: int, is_abrupt: bool) -> None:
        self.go_on(place)
        process, generation = self._places[place]
        process.send_signal(signal.SIGUSR1 if is_abrupt else signal.SIGTERM)
        self._leaving.append(Leaving(process, generation, now_ns()))

    def is_leaving(self) -> bool:
        """Whether one that was told to end is still there."""
        return bool(self._leaving)

    def gone(self) -> list[int]:
        """Return the generations that have ended since the last call."""
        ended = []
        for each in list(self._leaving):
            if each.process.poll() is not None:
                self._leaving.remove(each)
                ended.append(each.generation)
                self._note_crash(each.process, each.generation)
            elif now_ns() - each.asked_ns > GRACE * 1e9:
                self._leaving.remove(each)
                self.hung += 1
                each.process.kill()
                each.process.wait()
        return ended

    def _note_crash(self, process: subprocess.Popen[bytes], generation: int) -> None:
        if process.returncode == 0:
            return
        said = (self._folder / f"stderr{generation}").read_text(errors="replace")
        self.crashes.append(f"exit code {process.returncode}: {said[-2000:]}")

    def close(self) -> None:
        for process, _ in [*self._places, *((e.process, 0) for e in self._leaving)]:
            process.kill()
            process.wait()
