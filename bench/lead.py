"""How long nobody leads: after a leader that ends in order, and after one that dies.

    python -m bench.lead [--terms 100] [--deaths 5] [--ttl 2]

Two processes and three masters on this machine. A term ends by its process's clock,
just before the lease is given back; the next one begins where the other's loop has it.
The clock is that of the machine, and so the same for both.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters

PATIENCE = 60.0  # s


def stand_by(urls: list[str], ttl: float, events: Connection, lasts: float) -> None:
    """Lead for a moment, again and again, and send when each term begins and ends."""
    with FastRedlock(urls, ttl=ttl) as locks:
        for _ in locks.lead("leader"):
            events.send(("begins", time.monotonic_ns(), os.getpid()))
            time.sleep(lasts)
            events.send(("ends", time.monotonic_ns(), os.getpid()))


class Stage:
    """Two processes that lead in turn."""

    def __init__(self, urls: Sequence[str], ttl: float, lasts: float) -> None:
        self._made = (list(urls), ttl), lasts
        self._ends: list[Connection] = []
        self._processes: dict[int, multiprocessing.Process] = {}
        self.start()
        self.start()

    def start(self) -> None:
        """Start one more."""
        ours, theirs = multiprocessing.Pipe(False)
        (urls, ttl), lasts = self._made
        process = multiprocessing.Process(
            target=stand_by, args=(urls, ttl, theirs, lasts)
        )
        process.start()
        theirs.close()
        self._ends.append(ours)
        self._processes[process.pid or 0] = process

    def next(self) -> tuple[str, int, int]:
        """Wait for what happens next: its kind, its time (ns), whose it is."""
        while ready := wait(self._ends, PATIENCE):
            for end in ready:
                assert isinstance(end, Connection)
                try:
                    found: tuple[str, int, int] = end.recv()
                except EOFError:
                    self._ends.remove(end)
                else:
                    return found
        raise RuntimeError(f"nobody leads for {PATIENCE:.0f} s")

    def kill(self, pid: int) -> None:
        """Kill one, and start another one instead."""
        os.kill(pid, signal.SIGKILL)
        self._processes.pop(pid).join()
        self.start()

    def close(self) -> None:
        """End both."""
        for process in self._processes.values():
            process.kill()
            process.join()


def hand_overs(urls: Sequence[str], ttl: float, count: int) -> list[float]:
    """Return the times (ms) from the end of a term to the next one of the other."""
    stage = Stage(urls, ttl, 0.02)
    gaps: list[float] = []
    ended: tuple[str, int, int] | None = None
    try:
        while len(gaps) < count:
            event = stage.next()
            if event[0] == "ends":
                ended = event
            elif ended is not None and event[2] != ended[2]:
                gaps.append((event[1] - ended[1]) / 1e6)
    finally:
        stage.close()
    return gaps


def deaths(urls: Sequence[str], ttl: float, count: int) -> list[float]:
    """Return the times (ms) from the kill of a leader to the next term."""
    stage = Stage(urls, ttl, 2 * PATIENCE)
    gaps: list[float] = []
    try:
        leader = stage.next()[2]
        while len(gaps) < count:
            time.sleep(1.5 * ttl * len(gaps) / count + 0.5)  # anywhere between renewals
            began_ns = time.monotonic_ns()
            stage.kill(leader)
            _, at_ns, leader = stage.next()
            gaps.append((at_ns - began_ns) / 1e6)
    finally:
        stage.close()
    return gaps


def line(name: str, gaps: list[float]) -> str:
    """Return a line of the table."""
    ordered = sorted(gaps)
    high = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    median = statistics.median(ordered)
    return f"{name:24} {median:10.1f} {high:10.1f} {ordered[-1]:10.1f} {len(gaps):6}"


def main() -> None:
    """Measure both, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.lead")
    parser.add_argument("--terms", type=int, default=100)
    parser.add_argument("--deaths", type=int, default=5)
    parser.add_argument("--ttl", type=float, default=2.0, help="s")
    given = parser.parse_args()
    print(f"{'nobody leads, ms':24} {'median':>10} {'p99':>10} {'most':>10} {'n':>6}")
    with LocalMasters(3) as masters:
        gaps = hand_overs(masters.urls, given.ttl, given.terms)
        print(line("after the end of a term", gaps))
        gaps = deaths(masters.urls, given.ttl, given.deaths)
        print(line(f"after a kill, ttl {given.ttl:g} s", gaps))


if __name__ == "__main__":
    main()
