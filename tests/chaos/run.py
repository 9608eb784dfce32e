"""One run: five real masters, a schedule, processes that contend, and the count."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fastredlock.testing import LocalMasters

from .checker import violations
from .schedule import Options, carry_out, draw_schedule
from .worker import RESOURCES, Counter, load, now_ns
from .worker import run as run_worker

START_TIME = 1.5  # s; what the processes get to import their client
GRACE = 30.0  # s; a client may wait that long for a server before it is given up


class Figures(NamedTuple):
    """What a run came to."""

    client: str
    seconds: float
    leases: int
    violations: int
    lost_updates: int
    faults: int
    hung: int

    @property
    def leases_per_second(self) -> float:
        return self.leases / self.seconds

    def per_thousand(self, count: int) -> float:
        return 1000 * count / max(1, self.leases)


def run(
    client: str,
    seconds: float,
    seed: int,
    options: Options = Options(),  # noqa: B008 - frozen
    workers: int = 6,
) -> Figures:
    """Let the workers contend for so long; return what the checker found."""
    faults = draw_schedule(seed, seconds, options)
    with TemporaryDirectory(prefix="chaos-") as name, LocalMasters(5) as masters:
        folder = Path(name)
        until_ns = now_ns() + int((START_TIME + seconds) * 1e9)
        spawn = multiprocessing.get_context("spawn")
        shared = (client, masters.urls, options.restarts_at_once, folder)
        processes = [
            spawn.Process(target=run_worker, args=(*shared, i, seed, until_ns))
            for i in range(workers)
        ]
        for process in processes:
            process.start()
        processes[0].join(START_TIME)  # they begin as they come
        carry_out(masters, faults)
        for process in processes:
            process.join(max(0.0, (until_ns - now_ns()) / 1e9) + GRACE)
        hung = sum(process.is_alive() for process in processes)
        for process in processes:
            process.kill()
            process.join()
            process.close()
        return count(client, seconds, folder, len(faults), hung)


def count(client: str, seconds: float, folder: Path, faults: int, hung: int) -> Figures:
    """Read what the workers and the counters say."""
    saved = [load(path) for path in folder.glob("worker*")]
    windows = [window for _, theirs in saved for window in theirs]
    updates = sum(made for made, _ in saved)
    counted = sum(Counter(folder / f"counter{i}").read() for i in range(RESOURCES))
    return Figures(
        client=client,
        seconds=seconds,
        leases=len(windows),
        violations=len(violations(windows)),
        lost_updates=updates - counted,
        faults=faults,
        hung=hung,
    )
