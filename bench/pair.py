"""How long does an acquire and release take, and what does it cost?

One table for N = 1, 3, 5 masters: the contestants run in alternation, A B C A B C ...,
each in a process of its own, so that a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from bench.contestants.tables import (
    BY_NAME_ALONE,
    FLOOR,
    NATIVE_FLOOR,
    ONE_CALLER,
    OURS,
    for_server,
    libraries_of,
    present,
)
from bench.harness.alternation import CONTROL, Round, alternate, middle, noise, ratio
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import (
    add_blocks,
    add_server,
    end_with,
    names_of,
    new_parser,
    report_with,
)
from bench.harness.placement import PLACES, placed
from bench.harness.servers import local_masters, server_version
from bench.harness.syscalls import (
    SyscallCount,
    Tracer,
    count_in_alternation,
    find_tracer,
)
from bench.report import RATIO, Report, Table, target

_COUNT_TOLERANCE = 0.02
_WORDS = {"p50_us": "p50", "cpu_us": "CPU", "servers_cpu_us": "servers' CPU"}
_COLUMNS = (
    ("N", "d"),
    ("contestant", ""),
    ("p50 µs", ",.0f"),
    ("p99 µs", ",.0f"),
    ("pairs/s", ",.0f"),
    ("CPU µs", ",.0f"),
    ("servers' CPU µs", ",.0f"),
    ("syscalls", ",.1f"),
    ("p50 / floor", RATIO),
    ("CPU / floor", RATIO),
    ("servers' CPU / floor", RATIO),
    ("p50 / native floor", RATIO),
    ("p50 / fastredlock", RATIO),
)


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure, has_plot=True)


def _measure(options: argparse.Namespace) -> Report:
    # Named contestants that are not installed fail and are noted by the alternation.
    usual = [name for name in ONE_CALLER if name not in BY_NAME_ALONE]
    entries, notes = (options.only, []) if options.only else present(usual)
    tracer = Tracer(None, reason="--syscall-pairs 0")
    if options.syscall_pairs:
        tracer = find_tracer()
    rows: list[list[Any]] = []
    noises: list[str] = []
    targets: list[str] = []
    server = ""
    for masters in options.masters:
        with local_masters(masters, options.server) as urls, placed(options.place):
            server = server_version(urls[0])
            rounds, run_notes = alternate(
                for_server(entries, urls[0]),
                urls,
                seconds=options.seconds,
                blocks=options.blocks,
            )
            completed = [name for name in rounds[0] if name != CONTROL]
            counts = count_in_alternation(
                tracer, completed, urls, options.syscall_pairs
            )
        rows += [[masters, *_row(name, rounds, counts.get(name))] for name in completed]
        targets += _targets(masters, rounds)
        noises += [f"{n} at N = {masters}" for n in noise(rounds, FLOOR, "p50_us")]
        notes += run_notes + _doubts(masters, counts)
    return Report(
        name="pair",
        tables=[Table(_COLUMNS, rows)],
        machine=machine_line(server),
        versions=versions_line(libraries_of(entries)),
        method=_method(options, noises, tracer),
        notes=notes,
        targets=targets,
        caption="p50 of acquire + release",
    )


def _row(
    name: str, rounds: Sequence[Round], counted: SyscallCount | None
) -> list[object]:
    figures = ("p50_us", "p99_us", "pairs_per_s", "cpu_us", "servers_cpu_us")
    return [
        ONE_CALLER[name].label,
        *(middle(rounds, name, figure) for figure in figures),
        counted.per_pair if counted else None,
        ratio(rounds, name, FLOOR, "p50_us"),
        ratio(rounds, name, FLOOR, "cpu_us"),
        ratio(rounds, name, FLOOR, "servers_cpu_us"),
        ratio(rounds, name, NATIVE_FLOOR, "p50_us"),
        ratio(rounds, name, OURS, "p50_us"),
    ]


def _targets(masters: int, rounds: Sequence[Round]) -> list[str]:
    bounds = [(FLOOR, "p50_us", 1.15), (FLOOR, "cpu_us", 1.3)]
    if NATIVE_FLOOR in rounds[0]:  # the masters have DELIFEQ; the floor has the script
        bounds = [(FLOOR, "p50_us", 1.0), (NATIVE_FLOOR, "p50_us", 1.15)]
        bounds.append((FLOOR, "servers_cpu_us", 0.6))
    return [
        target(
            f"{_WORDS[figure]} / {ONE_CALLER[floor].label}, N = {masters}",
            ratio(rounds, OURS, floor, figure),
            "<=",
            bound,
        )
        for floor, figure, bound in bounds
    ]


def _method(
    options: argparse.Namespace, noises: Sequence[str], tracer: Tracer
) -> list[str]:
    lines = [
        f"Uncontended acquire + release; medians of {options.blocks} alternating "
        f"blocks of about {options.seconds:g} s; CPU of the client process alone; "
        f"{PLACES[options.place]}."
    ]
    if noises:
        lines.append(f"Noise: a second floor took {', '.join(noises)}.")
    counted = f"counted with {tracer.name}"
    if not tracer.name:
        counted = f"not counted ({tracer.reason})"
    return [*lines, f"System calls per pair {counted}."]


def _doubts(masters: int, counts: dict[str, SyscallCount]) -> list[str]:
    """Check the tracer against the floor's own count; report a difference."""
    return [
        f"N = {masters}: the floor counted {count.own_per_pair:.1f} system calls "
        f"itself, the tracer {count.per_pair:.1f}: do not trust that column."
        for count in counts.values()
        if count.own_per_pair
        if abs(count.per_pair - count.own_per_pair) > _COUNT_TOLERANCE * count.per_pair
    ]


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("pair", __doc__)
    add_server(parser)
    add_blocks(parser, blocks=15, seconds=0.5, masters=(1, 3, 5))
    add = parser.add_argument
    add("--place", choices=PLACES, default="servers", help=_PLACE_HELP)
    add(
        "--only",
        type=names_of(ONE_CALLER),
        metavar="NAME,NAME",
        help=f"some of {', '.join(ONE_CALLER)}; None: all that are installed, "
        f"but {', '.join(BY_NAME_ALONE)}",
    )
    add(
        "--syscall-pairs",
        type=int,
        default=5000,
        metavar="PAIRS",
        help="pairs in the separate pass that counts system calls; 0 leaves it out",
    )
    return parser


_PLACE_HELP = "; ".join(f"{place}: {text}" for place, text in PLACES.items())


if __name__ == "__main__":
    end_with(main, "pair")
