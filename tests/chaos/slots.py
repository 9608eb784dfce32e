"""Processes contend for the slots of one semaphore while masters and holders die.

    python -m tests.chaos.slots [--client NAME|all] [--setups N] [--seconds N]
        [--seed S]

Processes (slot_worker.py) want one of k slots all the time, ttl 1 s, and hold it for
some ms, now and then beyond its validity. Masters are paused, and killed, to come back
empty after a ttl (schedule.py). After a life that was drawn, a process kills itself
with a slot in its hands, and another is started.

Each notes from when to when it could believe to hold, by one clock. slot_judge.py
counts how many did so at one instant, and how long after the death of a holder its slot
was granted again. Beside it, by the same schedule: a semaphore that counts, counting.py

Exit code 1 if more than k of ours held at once, or if a key was left.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import redis

from fastredlock.testing import LocalMasters

from .clients import TTL
from .ledger import now_ns, windows_of
from .population import Population
from .run import BOUND, Run
from .schedule import Fault, Options, draw_schedule
from .servers import Servers
from .slot_judge import Figures, begin_of, judged

START_TIME = 20.0  # s; what the processes get to import their client, at the most
CLIENTS = ("fastredlock", "counting")


class Setup(NamedTuple):
    """What a run is of."""

    masters: int
    permits: int
    processes: int = 16
    has_faults: bool = True


SETUPS = (
    Setup(5, 3),
    Setup(3, 3),
    Setup(5, 3, has_faults=False),
    Setup(3, 2, has_faults=False),
    Setup(3, 2, processes=4, has_faults=False),
)


# --- the run --------------------------------------------------------------------------


class Crew(Population):
    """The processes of a run: one that has died is replaced."""

    module = "tests.chaos.slot_worker"

    def gone(self) -> list[int]:
        """Start another for each that has died; none ends in good order."""
        for place, (process, generation) in enumerate(self._places):
            if process.poll() is not None:
                if process.returncode != -signal.SIGKILL:
                    self._note_crash(process, generation)
                self._places[place] = self._start()
        return []


def run(client: str, setup: Setup, seconds: float, seed: int) -> Figures:
    """Let the processes contend for so long; return what they have noted."""
    faults: list[Fault] = []
    if setup.has_faults:
        faults = draw_schedule(seed, seconds, Options(), masters=setup.masters)
    with (
        TemporaryDirectory(prefix="chaos-") as name,
        LocalMasters(setup.masters) as masters,
    ):
        folder, servers = Path(name), Servers(masters)
        given = [str(setup.permits), *masters.urls]
        crew = Crew(client, given, folder, seed, False, setup.processes)
        try:
            until_all_work(folder, setup.processes)
            began_ns = now_ns()
            Run(servers, crew, folder).carry_out(faults, seconds)
        finally:
            crew.close()
            servers.close()
        if crew.crashes:
            raise RuntimeError(crew.crashes[0])
        time.sleep(TTL + BOUND)
        left = sum(len(keys_of(url)) for url in masters.urls)
        lots = [lot for path in folder.glob("windows*") for lot in windows_of(path)]
        windows = sorted((each for lot in lots for each in lot), key=begin_of)
        windows = [each for each in windows if each.begin_ns > began_ns]
        return judged(windows, setup.permits, len(faults), left)


def until_all_work(folder: Path, processes: int) -> None:
    """Block until all processes have begun."""
    ends = time.monotonic() + START_TIME
    while len(list(folder.glob("windows*"))) < processes and time.monotonic() < ends:
        time.sleep(0.02)


def keys_of(url: str) -> list[bytes]:
    """Return the keys of a master that hold something."""
    with redis.Redis.from_url(url, protocol=2) as master:
        keys: list[bytes] = list(master.scan_iter(count=1000))
    return [key for key in keys if not key.startswith(b"fastredlock:")]  # the queue's


# --- the table ------------------------------------------------------------------------

HEADER = (
    *("client", "clients", "N", "k", "faults", "leases/s", "most", "over k, ms"),
    *("died", "away, ms", "(worst)", "late, ms", "(worst)", "left"),
)


def row_of(
    client: str, setup: Setup, seconds: float, told: Figures
) -> tuple[object, ...]:
    """Return a row of the table."""
    return (
        *(client, setup.processes, setup.masters, setup.permits, told.faults),
        *(round(told.leases / seconds), told.most, ms(told.excess), told.died),
        *median_and_worst(told.away),
        *median_and_worst(told.late),
        told.left,
    )


def median_and_worst(times: tuple[float, ...]) -> tuple[str, str]:
    """Return both as text."""
    return (ms(median(times)), ms(max(times))) if times else ("-", "-")


def ms(seconds: float) -> str:
    """Return a time as text."""
    return f"{1000 * seconds:.1f}"


def line_of(row: tuple[object, ...]) -> str:
    """Return a row as a line."""
    return f"{row[0]:12}" + "".join(f"{cell!s:>11}" for cell in row[1:])


def main() -> int:
    """Run one client or all in each setup; say how many held at once."""
    parser = argparse.ArgumentParser("python -m tests.chaos.slots")
    parser.add_argument("--client", choices=[*CLIENTS, "all"], default="all")
    parser.add_argument(
        "--setups", type=int, default=len(SETUPS), help="the first ones"
    )
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.seconds:g} s")
    print(line_of(HEADER))
    is_broken = False
    for setup in SETUPS[: given.setups]:
        for client in CLIENTS if given.client == "all" else [given.client]:
            told = run(client, setup, given.seconds, given.seed)
            row = row_of(client, setup, given.seconds, told)
            print(line_of(row), flush=True)
            if client == "fastredlock":
                is_broken |= told.most > setup.permits or told.left > 0
    return 1 if is_broken else 0


if __name__ == "__main__":
    sys.exit(main())
