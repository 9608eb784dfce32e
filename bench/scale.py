"""How does the cost grow: with masters, with waiting callers, with locks held?

Four parts, one table each, and under each table which figures stay flat or grow:
masters (N = 1 ... 15), waiting (tasks that all want one held lock), held (leases, their
memory, and the cost of a pair beside them), pairs (memory left by many pairs; a
few minutes, and only where it is asked for).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from statistics import median
from typing import Any

from bench.contestants.base import first_missing
from bench.contestants.tables import present, words_of
from bench.harness.alternation import Alternation, Round, middle
from bench.harness.jobs import run_job
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import (
    add_blocks,
    count_of,
    end_with,
    names_of,
    new_parser,
    report_with,
)
from bench.harness.servers import local_masters, server_version
from bench.report import Report, Table, target, trend

_MASTERS = (1, 3, 5, 7, 9, 11, 13, 15)
_MASTERS_ENTRIES = ("floor:100", "each:100", "asyncio:200", "threads:1")
_WAITING_TASKS = (1, 10, 100, 1000)
_WAITING_BYTES = 1024
_HELD_STEPS = (1_000, 10_000, 100_000)
_HELD_BY = ("acquire", "acquire_each", "asyncio")
_LEASE_BYTES = 600
_PAIRS_ENTRIES = ("threads:1", "threads:16", "asyncio:100", "each:100")
_PAIRS_WARM_UP = 100_000  # until allocators and buffers have reached their size
_GROWTH_KIB = 1024


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


def _measure(options: argparse.Namespace) -> Report:
    tables: list[Table] = []
    server = ""
    for name in options.only or [name for name in _PARTS if name != "pairs"]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        count = max(_MASTERS) if name == "masters" else options.n
        with local_masters(count) as urls:
            server = server_version(urls[0])
            tables.append(_PARTS[name](urls, options))
    versions = versions_line(["fastredlock", "redis"])
    return Report("scale", tables, machine_line(server), versions)


def _masters(urls: Sequence[str], options: argparse.Namespace) -> Table:
    """Run over the first 1, 3, 5 ... of the masters, in alternation."""
    entries, notes = present(_MASTERS_ENTRIES)
    completed, run_notes = _rounds_over(entries, urls, options)
    rows: list[list[Any]] = []
    remarks: list[str] = []
    for entry in entries:
        words = words_of(entry)
        counts = [n for n in _MASTERS if entry in completed[n][0]]
        cpu = [middle(completed[n], entry, "cpu_us") for n in counts]
        rate = [middle(completed[n], entry, "pairs_per_s") for n in counts]
        each = [cost / n for cost, n in zip(cpu, counts, strict=True)]
        rows += [[words, *row] for row in zip(counts, rate, cpu, each, strict=True)]
        remarks += trend(f"CPU per pair, {words}", "N", counts, cpu)
        remarks += trend(f"CPU per pair and master, {words}", "N", counts, each)
    columns = (
        ("contestant", ""),
        ("N", "d"),
        ("pairs/s", ",.0f"),
        ("CPU µs", ",.2f"),
        ("CPU µs / master", ",.2f"),
    )
    title = "A pair over N masters, of free locks."
    return Table(columns, rows, title, remarks + notes + run_notes)


def _rounds_over(
    entries: Sequence[str], urls: Sequence[str], options: argparse.Namespace
) -> tuple[dict[int, list[Round]], list[str]]:
    """Return the rounds by number of masters, and notes."""
    with ExitStack() as opened:
        runs = {
            n: opened.enter_context(
                closing(Alternation(entries, urls[:n], options.seconds))
            )
            for n in _MASTERS
        }
        rounds: dict[int, list[Round]] = {n: [] for n in runs}
        for block in range(options.blocks):
            print(f"round {block + 1} of {options.blocks}", file=sys.stderr, flush=True)
            for n, run in runs.items():
                rounds[n].append(run.run_round())
        completed = {n: run.completed(rounds[n]) for n, run in runs.items()}
        return completed, [note for run in runs.values() for note in run.notes]


def _waiting(urls: Sequence[str], options: argparse.Namespace) -> Table:
    """Measure the cost of tasks that wait, and the memory of each."""
    clients, remarks = ["fastredlock"], []
    rows: list[list[Any]] = []
    if first_missing(("redis",)) is None:
        clients.append("redis-py")
    for client in clients:
        found = [
            run_job(
                "waiting", urls, client=client, count=n, seconds=options.wait_seconds
            )
            for n in _WAITING_TASKS
        ]
        for n, each in zip(_WAITING_TASKS, found, strict=True):
            cpu, commands = each["cpu_us_per_s"], each["commands_per_s"]
            rows.append([client, n, cpu / 1e4, cpu / n, commands, commands / n])
        cpu_each, commands_each = (
            [row[place] for row in rows if row[0] == client] for place in (3, 5)
        )
        for text, figures in (("CPU", cpu_each), ("commands", commands_each)):
            text = f"{text} per waiting task, {client}"
            remarks += trend(text, "tasks", _WAITING_TASKS, figures)
    columns = (
        ("client", ""),
        ("tasks", ",d"),
        ("CPU %", ",.2f"),
        ("CPU µs/s per task", ",.1f"),
        ("server commands/s", ",.0f"),
        ("per task", ",.1f"),
    )
    title = (
        f"Tasks of one loop that all want one held lock, N = {len(urls)} (redis-py: "
        f"1 master); over {options.wait_seconds:g} s."
    )
    remarks += _memory_of_waiting(clients, urls, options.memory_blocks)
    return Table(columns, rows, title, remarks)


def _memory_of_waiting(
    clients: Sequence[str], urls: Sequence[str], blocks: int
) -> list[str]:
    memory = {
        client: median(
            run_job("waiting_memory", urls, client=client, first=500, count=2000)[
                "bytes_each"
            ]
            for _ in range(blocks)
        )
        for client in (*clients, "asyncio.sleep")
    }
    text = "bytes of a waiting task beyond one in asyncio.sleep"
    beyond = memory["fastredlock"] - memory["asyncio.sleep"]
    return [
        *(f"A task in {client}: {size:,.0f} bytes." for client, size in memory.items()),
        target(text, beyond, "<=", _WAITING_BYTES),
    ]


def _held(urls: Sequence[str], options: argparse.Namespace) -> Table:
    """Hold more and more leases."""
    rows: list[list[Any]] = []
    remarks: list[str] = []
    steps = [step for step in _HELD_STEPS if step <= options.held]
    for by in _HELD_BY:
        found = run_job(
            "held", urls, taken_by=by, steps=steps, pairs=options.held_pairs
        )
        figures = [found[name] for name in ("held", "bytes_each", "cpu_us", "p50_us")]
        rows += [[by, *row] for row in zip(*figures, strict=True)]
        remarks += trend(f"CPU per pair, {by}", "held", found["held"], found["cpu_us"])
        size = found["bytes_each"][-1]
        remarks.append(target(f"bytes per lease of {by}", size, "<=", _LEASE_BYTES))
    columns = (
        ("taken by", ""),
        ("held", ",d"),
        ("bytes per added lease", ",.0f"),
        ("CPU µs per pair", ",.1f"),
        ("p50 µs", ",.0f"),
    )
    title = (
        f"Leases held, and a pair beside them by one blocking caller, N = {len(urls)}."
    )
    return Table(columns, rows, title, remarks)


def _pairs(urls: Sequence[str], options: argparse.Namespace) -> Table:
    """Look for growth over many pairs."""
    entries, remarks = present(_PAIRS_ENTRIES)
    rows: list[list[Any]] = []
    pairs = options.pairs
    for entry in entries:
        warm_up = min(pairs, _PAIRS_WARM_UP)
        found = run_job("growth", urls, entry=entry, warm_up=warm_up, pairs=pairs)
        grown = (found["bytes"][1] - found["bytes"][0]) / 1024
        rows.append([words_of(entry), pairs, grown, found["fds"][1] - found["fds"][0]])
        text = f"KiB that {pairs:,} pairs leave behind, {words_of(entry)}"
        remarks.append(target(text, grown, "<=", _GROWTH_KIB))
    columns = (
        ("contestant", ""),
        ("pairs", ",d"),
        ("grown KiB", "+,.0f"),
        ("fds", "+d"),
    )
    return Table(columns, rows, f"Memory after many pairs, N = {len(urls)}.", remarks)


_PARTS: dict[str, Callable[[Sequence[str], argparse.Namespace], Table]] = {
    "masters": _masters,
    "waiting": _waiting,
    "held": _held,
    "pairs": _pairs,
}


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("scale", __doc__)
    add = parser.add_argument
    add(
        "--only",
        type=names_of(_PARTS),
        metavar="PART,PART",
        help=f"some of {', '.join(_PARTS)}; pairs runs only when it is named",
    )
    add("--n", type=count_of, default=5, help="masters in the other parts")
    add_blocks(parser, blocks=5, seconds=0.3)
    add("--wait-seconds", type=float, default=3.0, help="how long waiting is watched")
    add("--memory-blocks", type=count_of, default=3, help="processes per memory figure")
    add("--held", type=count_of, default=_HELD_STEPS[-1], help="leases held, at most")
    add("--held-pairs", type=count_of, default=2000, help="pairs beside them")
    add("--pairs", type=count_of, default=1_000_000, help="pairs of the part pairs")
    return parser


if __name__ == "__main__":
    end_with(main, "scale")
