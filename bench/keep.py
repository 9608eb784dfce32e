"""What do kept leases cost, and how soon is a loss reported?

Thousands of leases are kept at the same time: the CPU of the client and of the masters,
the renewals and the writes per master and second, the memory of each, and a pair by
another caller, beside them and without any, in turns. Then losses: how long before the
end of the validity, or after the keys are gone, each is reported.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench.harness.jobs import run_job
from bench.harness.machine import machine_line
from bench.harness.options import count_of, end_with, names_of, new_parser, report_with
from bench.harness.servers import server_version
from bench.report import Report, Table, target
from fastredlock.testing import LocalMasters

_KINDS = ("blocking", "asyncio")
_WRITES, _CPU_PERCENT, _BYTES = 5, 2, 900
_BESIDE_MOST = {"p50": 1.1, "p99": 1.5}  # times the pair without kept leases
_COST = (
    ("keeper", ""),
    ("kept", ",d"),
    ("client CPU %", ".2f"),
    ("each master %", ".2f"),
    ("renewals/s", ",.0f"),
    ("writes/s and master", ".1f"),
    ("bytes per lease", ",.0f"),
    ("lost", ",d"),
)
_BESIDE = (
    ("keeper", ""),
    ("kept", ",d"),
    ("p50 µs", ",.0f"),
    ("p99 µs", ",.0f"),
)
_LOSSES = (
    ("keeper", ""),
    ("what happens", ""),
    ("ttl s", "g"),
    ("losses", "d"),
    ("told, of the ttl", ".2f"),
    ("before the end, ms", ",.1f"),
    ("the last, ms", ",.1f"),
)


def main() -> int:
    """Run the bench; return 0."""
    parser = new_parser("keep", __doc__)
    add = parser.add_argument
    add("--kept", type=count_of, default=10_000, help="leases")
    add("--ttl", type=float, default=10.0, help="of each (s)")
    add("--seconds", type=float, default=60.0, help="for which they are watched")
    add("--pairs", type=count_of, default=20_000, help="beside them")
    add("--losses", type=count_of, default=20, help="of each kind")
    add("--only", type=names_of(_KINDS), default=[*_KINDS], metavar="KEEPER,KEEPER")
    return report_with(parser, _measure)


def _measure(options: argparse.Namespace) -> Report:
    cost: list[list[Any]] = []
    beside: list[list[Any]] = []
    losses: list[list[Any]] = []
    remarks: list[str] = []
    remarks_beside: list[str] = []
    with LocalMasters(5) as masters:
        machine = machine_line(server_version(masters.urls[0]))
    for kind in options.only:
        print(f"{kind} ...", file=sys.stderr, flush=True)
        with LocalMasters(5) as masters:
            pids = [masters.pid(i) for i in range(5)]
            found = run_job(
                "kept",
                masters.urls,
                kind=kind,
                count=options.kept,
                ttl=options.ttl,
                seconds=options.seconds,
                pairs=options.pairs,
                pids=pids,
            )
        names = ("cpu", "master_cpu", "renewals", "writes", "bytes_each", "lost")
        cost.append([kind, options.kept, *(found[name] for name in names)])
        remarks += [
            target(f"CPU % of {kind}", found["cpu"], "<=", _CPU_PERCENT),
            target(f"writes per master, {kind}", found["writes"], "<=", _WRITES),
            target(f"bytes per lease, {kind}", found["bytes_each"], "<=", _BYTES),
        ]
        beside += [[kind, *row] for row in found["beside"]]
        remarks_beside += [
            target(f"{name} beside / alone, {kind}", ratio, "<=", _BESIDE_MOST[name])
            for name, ratio in zip(_BESIDE_MOST, found["ratios"], strict=True)
        ]
        losses += _losses(kind, options.losses)
    tables = [
        Table(_COST, cost, f"Leases of {options.ttl:g} s that are kept.", remarks),
        Table(
            _BESIDE,
            beside,
            "A pair by a caller that shares their client.",
            remarks_beside,
        ),
        Table(_LOSSES, losses, "When a loss is told."),
    ]
    return Report("keep", tables, machine)


def _losses(kind: str, count: int) -> list[list[Any]]:
    """Lose kept leases in several ways, each on masters of its own."""
    rows: list[list[Any]] = []
    for ttl, harm in ((3.0, "flushed"), (3.0, "killed"), (3.0, "paused")):
        with LocalMasters(5) as masters:
            pids = [masters.pid(i) for i in range(5)]
            found = run_job(
                "lost",
                masters.urls,
                kind=kind,
                ttl=ttl,
                harm=harm,
                count=count,
                pids=pids,
            )
        before = sorted(found["before_ms"])
        rows.append(
            [
                *(kind, _WORDS[harm], ttl, len(before), found["after"] / ttl),
                *(before[len(before) // 2], before[0]),
            ]
        )
    return rows


_WORDS = {
    "flushed": "FLUSHALL on all five",
    "killed": "kill -9 of three of five",
    "paused": "SIGSTOP of three of five",
}


if __name__ == "__main__":
    end_with(main, "keep")
