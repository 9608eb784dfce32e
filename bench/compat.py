"""How much faster is the replacement of a library than the library itself?

For N = 1, 3 and 5 masters each library and its replacement in fastredlock.compat get
the same calls, in alternation, each in a process of its own, so that a noisy machine is
noisy for both. A library that is not installed is left out with a note. Locks that know
one master only are measured at N = 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.contestants.tables import REPLACEMENTS, sides_of
from bench.harness.alternation import Round, alternate, middle, ratios
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import (
    add_blocks,
    end_with,
    names_of,
    new_parser,
    report_with,
)
from bench.harness.servers import local_masters, server_version
from bench.report import RATIO, Report, Table, times

_COLUMNS = (
    ("N", "d"),
    ("library", ""),
    ("callers", ",d"),
    ("its pairs/s", ",.0f"),
    ("ours", ",.0f"),
    ("its CPU µs", ",.0f"),
    ("ours", ",.0f"),
    ("times as fast", RATIO),
    ("within", ">s"),
    ("asked for", ">s"),
)


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


def _measure(options: argparse.Namespace) -> Report:
    missing = {name: REPLACEMENTS[name].missing() for name in options.only}
    notes = [
        f"{REPLACEMENTS[name].label} was left out: no module {module}."
        for name, module in missing.items()
        if module
    ]
    names = [name for name in options.only if not missing[name]]
    rows: list[list[Any]] = []
    server = ""
    for masters in options.masters:
        with local_masters(masters) as urls:
            server = server_version(urls[0])
            for name in names:
                if masters == 1 or not REPLACEMENTS[name].one_master:
                    found, run_notes = _compare(name, urls, options)
                    rows += [[masters, *row] for row in found]
                    notes += run_notes
    return Report(
        name="compat",
        tables=[Table(_COLUMNS, rows)],
        machine=machine_line(server),
        versions=versions_line(
            sorted({"fastredlock", *(REPLACEMENTS[name].library for name in names)})
        ),
        method=[
            "Uncontended acquire + release, the same calls of both; medians of "
            f"{options.blocks} alternating blocks of about {options.seconds:g} s; "
            "CPU of the client process per pair; the ratio is that of pairs/s within "
            "a round: its median, and from the lowest to the highest."
        ],
        notes=notes,
    )


def _compare(
    name: str, urls: Sequence[str], options: argparse.Namespace
) -> tuple[list[list[object]], list[str]]:
    """Measure one library and its replacement; return rows, and notes on failures."""
    print(f"{REPLACEMENTS[name].label} ...", file=sys.stderr, flush=True)
    rows: list[list[object]] = []
    notes: list[str] = []
    for callers in REPLACEMENTS[name].wanted:
        rounds, run_notes = alternate(
            sides_of(name, callers),
            urls,
            seconds=options.seconds,
            blocks=options.blocks,
        )
        rows += _row(name, callers, rounds)
        notes += run_notes
    return rows, notes


def _row(name: str, callers: int, rounds: Sequence[Round]) -> list[list[object]]:
    """Return one row, or none where one of the two did not run."""
    sides = sides_of(name, callers)
    found = ratios(rounds, sides[1], sides[0], "pairs_per_s")
    if not found:
        return []
    faster, wanted = median(found), REPLACEMENTS[name].wanted[callers]
    return [
        [
            REPLACEMENTS[name].label,
            callers,
            *(middle(rounds, side, "pairs_per_s") for side in sides),
            *(middle(rounds, side, "cpu_us") for side in sides),
            faster,
            f"{times(min(found))} to {times(max(found))}",
            f"{wanted:g}x {'met' if faster >= wanted else 'missed'}",
        ]
    ]


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("compat", __doc__)
    add_blocks(parser, blocks=11, seconds=0.5, masters=(1, 3, 5))
    parser.add_argument(
        "--only",
        type=names_of(REPLACEMENTS),
        default=[*REPLACEMENTS],
        metavar="NAME,NAME",
        help=f"some of {', '.join(REPLACEMENTS)}",
    )
    return parser


if __name__ == "__main__":
    end_with(main, "compat")
