"""How much faster is the replacement of a library than the library itself?

For N = 1, 3 and 5 masters each library and its replacement in fastredlock.compat make
the same calls, in turns, each in a process of its own, so that a noisy machine is noisy
for both. A library that is not installed is left out with a note. Locks that know one
master only are measured at N = 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench._machine import distributions_line, machine_line
from bench._match import Match
from bench._options import add_report, add_rounds, add_seconds, end_with, names_of
from bench._servers import local_masters, server_version
from bench._swap_results import SwapReport, SwapRow, swap_row
from bench._swaps import SWAPS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0."""
    options = _parser().parse_args(arguments)
    report = SwapReport.load(options.load) if options.load else _measure(options)
    print(report.markdown() if options.markdown else report.text())
    if options.json:
        report.save(options.json)
    return 0


def _measure(options: argparse.Namespace) -> SwapReport:
    absent = {name: SWAPS[name].missing() for name in options.only}
    notes = [
        f"{SWAPS[name].label} did not play: no {module}."
        for name, module in absent.items()
        if module
    ]
    swaps = [name for name in options.only if not absent[name]]
    rows: list[SwapRow] = []
    server = ""
    for masters in options.masters:
        with local_masters(masters) as urls:
            server = server_version(urls[0])
            for name in swaps:
                if masters == 1 or not SWAPS[name].one_master:
                    found, said = _swap(name, urls, options)
                    rows += found
                    notes += [f"N = {masters}: {note}" for note in said]
    return SwapReport(
        machine=machine_line(server),
        versions=distributions_line(
            sorted({"fastredlock", *(SWAPS[name].library for name in swaps)})
        ),
        method=(
            "Uncontended acquire + release, the same calls of both; medians of "
            f"{options.blocks} alternating blocks of about {options.seconds:g} s; "
            "CPU of the client process per pair; the ratio is that of pairs/s within "
            "a round: its median, and from the lowest to the highest."
        ),
        notes=notes,
        rows=rows,
    )


def _swap(
    name: str, urls: Sequence[str], options: argparse.Namespace
) -> tuple[list[SwapRow], list[str]]:
    """Measure one library and its replacement; return rows, and who failed."""
    print(f"N = {len(urls)}: {SWAPS[name].label} ...", file=sys.stderr, flush=True)
    rows: list[SwapRow] = []
    notes: list[str] = []
    for callers in SWAPS[name].wanted:
        players = SWAPS[name].players(name, callers)
        with Match(players, urls, options.seconds) as match:
            rounds = match.completed([match.play() for _ in range(options.blocks)])
        notes += match.notes
        rows += filter(None, [swap_row(len(urls), name, callers, rounds)])
    return rows, notes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_compat", description=__doc__
    )
    add = parser.add_argument
    add_seconds(parser)
    add_rounds(parser, blocks=11, masters=(1, 3, 5))
    add(
        "--only",
        type=names_of(SWAPS),
        default=list(SWAPS),
        metavar="NAME,NAME",
        help=f"some of {', '.join(SWAPS)} (default: all)",
    )
    add_report(parser)
    return parser


if __name__ == "__main__":
    end_with(main, "bench_compat")
