"""The parts of bench_scale: each measures over running masters, returns a table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench._crowd_results import Target
from bench._crowds import CROWDS, crowd_and_size, present
from bench._match import Match
from bench._scale_report import Part, trend

_ROOT = Path(__file__).parent.parent
MASTERS = (1, 3, 5, 7, 9, 11, 13, 15)
_PLAYERS = ("floor:100", "each:100", "asyncio:200", "threads:1")
_WAITERS = (1, 10, 100, 1000)
HELD_STEPS = (1_000, 10_000, 100_000)
_HOLDERS = {"acquire": "threads", "acquire_each": "each", "asyncio": "asyncio"}
_PAIRS_PLAYERS = ("threads:1", "threads:16", "asyncio:100", "each:100")
_PAIRS_WARM_UP = 100_000  # until allocators and buffers have reached their size
_LEASE_BYTES = 600
_WAITING_BYTES = 1024
_GROWTH_BYTES = 1 << 20


def _masters(urls: Sequence[str], options: argparse.Namespace) -> Part:
    """Play over the first 1, 3, 5 ... of the masters, in turns."""
    players, notes = present(_PLAYERS)
    with ExitStack() as stack:
        matches = {
            n: stack.enter_context(Match(players, urls[:n], options.seconds))
            for n in MASTERS
        }
        rounds: dict[int, list[Any]] = {n: [] for n in matches}
        for block in range(options.blocks):
            print(f"round {block + 1} of {options.blocks}", file=sys.stderr, flush=True)
            for n, match in matches.items():
                rounds[n].append(match.play())
        played = {n: match.completed(rounds[n]) for n, match in matches.items()}
        notes += [f"N = {n}: {note}" for n, m in matches.items() for note in m.notes]
    rows: list[list[Any]] = []
    remarks: list[str] = []
    for player in players:
        crowd, size = crowd_and_size(player)
        who = f"{CROWDS[crowd].label}, {CROWDS[crowd].callers(size)}"
        counts = [n for n in MASTERS if player in played[n][0]]
        cpu = [_median(played[n], player, "cpu_us_per_pair") for n in counts]
        rate = [_median(played[n], player, "pairs_per_s") for n in counts]
        per_master = [each / n for each, n in zip(cpu, counts, strict=True)]
        rows += [[who, *row] for row in zip(counts, rate, cpu, per_master, strict=True)]
        remarks += trend(f"CPU per pair, {who}", "N", counts, cpu)
        remarks += trend(f"CPU per pair and master, {who}", "N", counts, per_master)
    return Part(
        "masters",
        "A pair over N masters, of free locks.",
        [
            ["contestant", ""],
            ["N", "d"],
            ["pairs/s", ",.0f"],
            ["CPU µs", ",.2f"],
            ["CPU µs / master", ",.2f"],
        ],
        rows,
        remarks + notes,
    )


def _waiting(urls: Sequence[str], options: argparse.Namespace) -> Part:
    """Count what tasks cost that wait, and what each of them takes."""
    whos, notes = _awaitable(["fastredlock", "redis-py"])
    rows: list[list[Any]] = []
    remarks: list[str] = []
    for who in whos:
        told = [
            _job("waiting", urls, who=who, count=count, seconds=options.wait_seconds)
            for count in _WAITERS
        ]
        cpu = [each["cpu_us_per_s"] / 1e4 for each in told]
        commands = [each["commands_per_s"] for each in told]
        per_waiter = [all_ / n for all_, n in zip(commands, _WAITERS, strict=True)]
        cpu_each = [each * 1e4 / n for each, n in zip(cpu, _WAITERS, strict=True)]
        rows += [
            [who, *row]
            for row in zip(_WAITERS, cpu, cpu_each, commands, per_waiter, strict=True)
        ]
        remarks += trend(f"CPU per waiting task, {who}", "tasks", _WAITERS, cpu_each)
        remarks += trend(
            f"commands per waiting task, {who}", "tasks", _WAITERS, per_waiter
        )
    memory = {
        who: median(
            _job("waiting_memory", urls, who=who, first=500, count=2000)["bytes_each"]
            for _ in range(options.memory_blocks)
        )
        for who in (*whos, "asyncio.sleep")
    }
    plain = memory["asyncio.sleep"]
    remarks += [f"A task in {who}: {size:,.0f} bytes." for who, size in memory.items()]
    beyond = memory["fastredlock"] - plain if "fastredlock" in memory else None
    text = "bytes of a waiting task beyond one in asyncio.sleep"
    remarks.append(str(Target(text, beyond, _WAITING_BYTES, is_ceiling=True)))
    return Part(
        "waiting",
        f"Tasks of one loop that all want one held lock, N = {len(urls)} (redis-py: "
        f"1 master); over {options.wait_seconds:g} s.",
        [
            ["client", ""],
            ["tasks", ",d"],
            ["CPU %", ",.2f"],
            ["CPU µs/s per task", ",.1f"],
            ["server commands/s", ",.0f"],
            ["per task", ",.1f"],
        ],
        rows,
        remarks + notes,
    )


def _held(urls: Sequence[str], options: argparse.Namespace) -> Part:
    """Hold more and more leases."""
    rows: list[list[Any]] = []
    remarks: list[str] = []
    notes: list[str] = []
    for who, crowd in _HOLDERS.items():
        if need := CROWDS[crowd].missing():
            notes.append(f"{who} was left out: no {need}.")
            continue
        steps = [step for step in HELD_STEPS if step <= options.held]
        told = _job("held", urls, who=who, steps=steps, pairs=options.held_pairs)
        columns = [told[name] for name in ("held", "bytes_each", "cpu_us", "p50_us")]
        rows += [[who, *row] for row in zip(*columns, strict=True)]
        remarks += trend(f"CPU per pair, {who}", "held", told["held"], told["cpu_us"])
        text = f"bytes per lease of {who}"
        size = told["bytes_each"][-1]
        remarks.append(str(Target(text, size, _LEASE_BYTES, is_ceiling=True)))
    return Part(
        "held",
        f"Leases held, and a pair beside them by one blocking caller, N = {len(urls)}.",
        [
            ["taken by", ""],
            ["held", ",d"],
            ["bytes per added lease", ",.0f"],
            ["CPU µs per pair", ",.1f"],
            ["p50 µs", ",.0f"],
        ],
        rows,
        remarks + notes,
    )


def _pairs(urls: Sequence[str], options: argparse.Namespace) -> Part:
    """Look for growth over many pairs."""
    players, notes = present(_PAIRS_PLAYERS)
    rows: list[list[Any]] = []
    remarks: list[str] = []
    pairs = options.pairs
    for player in players:
        crowd, size = crowd_and_size(player)
        who = f"{CROWDS[crowd].label}, {CROWDS[crowd].callers(size)}"
        warm_up = min(pairs, _PAIRS_WARM_UP)
        told = _job("pairs", urls, player=player, warm_up=warm_up, pairs=pairs)
        rows.append([who, pairs, told["growth_bytes"] / 1024, told["growth_fds"]])
        growth = told["growth_bytes"] / 1024
        text = f"KiB that {pairs:,} pairs leave behind, {who}"
        remarks.append(str(Target(text, growth, _GROWTH_BYTES / 1024, is_ceiling=True)))
    return Part(
        "pairs",
        f"Memory after many pairs, N = {len(urls)}.",
        [["contestant", ""], ["pairs", ",d"], ["grown KiB", "+,.0f"], ["fds", "+d"]],
        rows,
        remarks + notes,
    )


PARTS: dict[str, Callable[[Sequence[str], argparse.Namespace], Part]] = {
    "masters": _masters,
    "waiting": _waiting,
    "held": _held,
    "pairs": _pairs,
}


def _awaitable(whos: Sequence[str]) -> tuple[list[str], list[str]]:
    needs = {"fastredlock": CROWDS["asyncio"], "redis-py": CROWDS["redis-py"]}
    missing = {who: needs[who].missing() for who in whos}
    return (
        [who for who in whos if not missing[who]],
        [f"{who} was left out: no {need}." for who, need in missing.items() if need],
    )


def _median(rounds: Sequence[Any], player: str, figure: str) -> float:
    figures: list[float] = [getattr(played[player], figure) for played in rounds]
    return median(figures)


def _job(job: str, urls: Sequence[str], **arguments: Any) -> dict[str, Any]:
    """Run one measurement in a process of its own; return what it tells."""
    command = [sys.executable, "-m", "bench._scale_worker", job, json.dumps(arguments)]
    done = subprocess.run(
        [*command, *urls], stdout=subprocess.PIPE, text=True, cwd=_ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{job} {arguments} ended with status {done.returncode}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told
