"""What do thousands of tasks of one loop cost, at work and idle?

Three parts, one table each: cold (all begin at once, without and with connections),
pairs (each takes and releases a lock of its own all the time), idle (each waits for a
resource of its own, then all are released at once).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from bench.harness.jobs import run_job
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import (
    count_of,
    counts_of,
    end_with,
    names_of,
    new_parser,
    report_with,
)
from bench.harness.servers import local_masters, server_version
from bench.report import Report, Table, target

_TIMEOUT = 1.0  # s, of each task that begins cold
_IDLE_CPU, _IDLE_LAG_MS, _COMMANDS, _GRANTED_S = 5.0, 20.0, 10.0, 2.0
_SHARE = 0.8  # of the rate of the fewest tasks


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


def _measure(options: argparse.Namespace) -> Report:
    tables = []
    with local_masters(options.n) as urls:
        server = server_version(urls[0])
        for name in options.only or list(_PARTS):
            print(f"{name} ...", file=sys.stderr, flush=True)
            tables.append(_PARTS[name](urls, options))
    versions = versions_line(["fastredlock"])
    return Report("crowds", tables, machine_line(server), versions)


def _cold(urls: Sequence[str], options: argparse.Namespace) -> Table:
    rows: list[list[Any]] = []
    for count in options.tasks:
        for is_connected in (False, True):
            found = run_job(
                "cold", urls, count=count, timeout=_TIMEOUT, is_connected=is_connected
            )
            where = "connected" if is_connected else "new client"
            rows.append([count, where, found["served"], found["s"], found["cpu_s"]])
    columns = (
        ("tasks", ",d"), ("", ""), ("served", ",d"), ("s", ".2f"), ("CPU s", ".2f"),
    )  # fmt: skip
    title = f"Tasks that begin at once, timeout {_TIMEOUT:g} s, N = {len(urls)}."
    unserved = sum(row[0] - row[2] for row in rows)
    return Table(columns, rows, title, [target("not served", unserved, "<=", 0)])


_SHOWN = "pairs_per_s", "cpu_us", "p99_ms"


def _pairs(urls: Sequence[str], options: argparse.Namespace) -> Table:
    found: dict[int, list[dict[str, Any]]] = {count: [] for count in options.tasks}
    for _ in range(options.blocks):
        for count, runs in found.items():
            runs.append(run_job("crowd", urls, count=count, seconds=options.seconds))
    rows = [
        [count, *(median(run[name] for run in runs) for name in _SHOWN)]
        for count, runs in found.items()
    ]
    columns = (
        ("tasks", ",d"), ("pairs/s", ",.0f"), ("CPU µs", ",.1f"), ("p99 ms", ",.0f"),
    )  # fmt: skip
    share = rows[-1][1] / rows[0][1]
    text = f"rate of {rows[-1][0]:,} tasks, of that of {rows[0][0]:,}"
    title = f"Pairs of tasks of one loop, each with a lock of its own, N = {len(urls)}."
    return Table(columns, rows, title, [target(text, share, ">=", _SHARE)])


def _idle(urls: Sequence[str], options: argparse.Namespace) -> Table:
    rows = []
    for count in options.tasks:
        found = run_job("idle", urls, count=count, seconds=options.seconds)
        rows.append([count, *found.values()])
    columns = (
        ("resources", ",d"), ("CPU %", ".1f"), ("loop lag, most, ms", ".1f"),
        ("commands/s, busiest master", ".1f"), ("granted", ",d"), ("in s", ".2f"),
    )  # fmt: skip
    title = (
        f"One task waits for each of so many held resources, N = {len(urls)}; "
        f"over {options.seconds:g} s. Then all are released at once."
    )
    last = rows[-1]
    remarks = [
        target(f"{text}, {last[0]:,} resources", figure, "<=", bound)
        for text, figure, bound in (
            ("CPU %", last[1], _IDLE_CPU),
            ("loop lag, ms", last[2], _IDLE_LAG_MS),
            ("commands/s", last[3], _COMMANDS),
            ("s until all are granted", last[5], _GRANTED_S),
        )
    ]
    return Table(columns, rows, title, remarks)


_PARTS: dict[str, Callable[[Sequence[str], argparse.Namespace], Table]] = {
    "cold": _cold,
    "pairs": _pairs,
    "idle": _idle,
}


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("crowds", __doc__)
    add = parser.add_argument
    add("--only", type=names_of(_PARTS), metavar="PART,PART", help=", ".join(_PARTS))
    add("--n", type=count_of, default=5, help="masters")
    add("--tasks", type=counts_of, default=[200, 1000, 5000, 20_000], help="how many")
    add("--blocks", type=count_of, default=3, help="runs of the part pairs")
    add("--seconds", type=float, default=3.0, help="of each run")
    return parser


if __name__ == "__main__":
    end_with(main, "crowds")
