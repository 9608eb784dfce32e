"""How often does one lock change hands inside of a process?

Tasks or threads of one process, or of several, take one lock and give it back at once,
all the time: with cohorts, without (each grant is a round), and the locks of Python
handed over at each grant, which know of no other process. All in alternation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import monotonic
from typing import Any

from bench.harness.jobs import run_job
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import count_of, end_with, new_parser, report_with
from bench.harness.servers import local_masters, server_version
from bench.report import Report, Table, target

_START = 1.5  # s; until all processes are there
_COHORT = 0.002  # s, the default
_KINDS = {  # of callers: the job, how many, in how many processes, the yardstick
    "100 tasks": ("cohort_tasks", 100, 1, "asyncio.Lock"),
    "16 threads": ("cohort_threads", 16, 1, "a fair lock in Python"),
    "4 processes of 50 tasks": ("cohort_tasks", 50, 4, ""),
}
_OURS, _ROUNDS = "cohorts", "each a round"


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


def _measure(options: argparse.Namespace) -> Report:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with local_masters(options.n) as urls:
        server = server_version(urls[0])
        for block in range(options.blocks):
            print(f"block {block + 1} of {options.blocks} ...", file=sys.stderr)
            for kind, (_, _, _, yardstick) in _KINDS.items():
                whose = {_OURS: _COHORT, _ROUNDS: 0.0, yardstick: None}
                for name, cohort in whose.items():
                    if name:
                        run = _run(urls, kind, cohort, options.seconds)
                        found.setdefault((kind, name), []).append(run)
    rows = [
        [*entry, *(median(run[name] for run in runs) for name in runs[0])]
        for entry, runs in found.items()
    ]
    columns = (
        ("callers", ""), ("lock", ""), ("grants/s", ",.0f"), ("fewest / most", ".2f"),
        ("longest wait ms", ",.1f"),
    )  # fmt: skip
    by_entry = {(row[0], row[1]): row for row in rows}
    title = f"One lock, taken again and again without a hold, N = {options.n}."
    table = Table(columns, rows, title, list(_targets(by_entry)))
    versions = versions_line(["fastredlock"])
    return Report("cohort", [table], machine_line(server), versions)


def _targets(by_entry: dict[tuple[str, str], list[Any]]) -> Any:
    for kind, (_, _, count, yardstick) in _KINDS.items():
        ours, rounds = by_entry[kind, _OURS], by_entry[kind, _ROUNDS]
        if yardstick:
            share = ours[2] / by_entry[kind, yardstick][2]
            goal = 0.8 if yardstick == "asyncio.Lock" else 0.7
            yield target(f"{kind}, of {yardstick}", share, ">=", goal)
        else:
            yield target(f"{kind}, of rounds", ours[2] / rounds[2], ">=", 20)
            yield target(f"{kind}, longest wait", ours[4], "<=", rounds[4])
        goal = 0.8 if count > 1 else 0.9 if "threads" in kind else 0.95
        yield target(f"{kind}, fewest / most", ours[3], ">=", goal)


def _run(
    urls: Sequence[str], kind: str, cohort: float | None, seconds: float
) -> dict[str, Any]:
    job, count, processes, _ = _KINDS[kind]
    at = monotonic() + _START
    with ThreadPoolExecutor(processes) as pool:
        runs = [
            pool.submit(
                run_job, job, urls, count=count, seconds=seconds, cohort=cohort, at=at
            )
            for _ in range(processes)
        ]
        each = [run.result() for run in runs]
    if processes == 1:
        return each[0]
    rates = [run["rate"] for run in each]
    return {
        "rate": sum(rates),
        "fair": min(rates) / max(rates),
        "wait_ms": max(run["wait_ms"] for run in each),
    }


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("cohort", __doc__)
    add = parser.add_argument
    add("--n", type=count_of, default=5, help="masters")
    add("--blocks", type=count_of, default=5, help="of runs")
    add("--seconds", type=float, default=2.0, help="of each run")
    return parser


if __name__ == "__main__":
    end_with(main, "cohort")
