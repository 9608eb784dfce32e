"""How often does a number that grows take a second write?

One process that takes and releases a lock of its own; then eight that all want one
lock, in turn. For each N: the acquires that were won, and the share of them for which a
master had to be asked for one more, or to be sent a larger number. (What a pair costs
with numbers: `python -m bench.pair --only fastredlock,fencing`.)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.harness.machine import machine_line
from bench.harness.options import end_with, new_parser, report_with
from bench.harness.process import ROOT
from bench.harness.servers import server_version
from bench.report import Report, Table
from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters

_COLUMNS = (
    ("N", "d"),
    ("processes", "d"),
    ("acquires", ",d"),
    ("second writes", ",d"),
    ("share", ".3%"),
)


def main() -> int:
    """Run the bench; return 0."""
    if sys.argv[1:2] == ["--work"]:
        return _work(float(sys.argv[2]), sys.argv[3:])
    parser = new_parser("fencing", __doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row")
    parser.add_argument("--processes", type=int, default=8, help="that contend")
    return report_with(parser, _measure)


def _work(seconds: float, urls: Sequence[str]) -> int:
    won, end = 0, time.monotonic() + seconds
    with FastRedlock(urls, fencing=True) as locks:
        while time.monotonic() < end:
            if lease := locks.acquire("bench:fencing", timeout=1):
                won += 1
                lease.release()
        print(json.dumps([won, locks.stats().fences_written]))
    return 0


def _measure(options: argparse.Namespace) -> Report:
    rows: list[list[Any]] = []
    server = ""
    for count in (1, 3, 5):
        with LocalMasters(count) as masters:
            server = server_version(masters.urls[0])
            for processes in (1, options.processes):
                won, written = _shares(masters.urls, processes, options.seconds)
                rows.append([count, processes, won, written, written / max(1, won)])
    return Report(
        name="fencing",
        tables=[Table(_COLUMNS, rows)],
        machine=machine_line(server),
        versions="",
        method=[f"{options.seconds:g} s a row, everything on one machine."],
        notes=[],
        caption="second writes",
    )


def _shares(urls: Sequence[str], processes: int, seconds: float) -> tuple[int, int]:
    argv = [sys.executable, "-m", "bench.fencing", "--work", str(seconds), *urls]
    running = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(processes)
    ]
    counts = [json.loads(process.communicate()[0]) for process in running]
    return sum(won for won, _ in counts), sum(written for _, written in counts)


if __name__ == "__main__":
    end_with(main, "fencing")
