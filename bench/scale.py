"""How does the cost grow: with masters, with waiting callers, with locks held?

Four parts, one table each, and under each table what stays flat and what grows:
masters (N = 1 ... 15), waiting (tasks that all want one held lock), held (leases, their
memory, and what a pair costs beside them), pairs (what many pairs leave in memory; a
few minutes, and only where it is asked for).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench._machine import distributions_line, machine_line
from bench._marked import fill
from bench._options import add_report, end_with, names_of
from bench._scale_parts import HELD_STEPS, MASTERS, PARTS
from bench._scale_report import Part, ScaleReport
from bench._servers import local_masters, server_version


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0."""
    options = _parser().parse_args(arguments)
    report = ScaleReport.load(options.load) if options.load else _measure(options)
    print(report.markdown() if options.markdown else report.text())
    if options.json:
        report.save(options.json)
    if options.into:
        fill(options.into, "scale", report.markdown())
    return 0


def _measure(options: argparse.Namespace) -> ScaleReport:
    parts: list[Part] = []
    server = ""
    names = options.only or [name for name in PARTS if name != "pairs"]
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        count = max(MASTERS) if name == "masters" else options.n
        with local_masters(count) as urls:
            server = server_version(urls[0])
            parts.append(PARTS[name](urls, options))
    return ScaleReport(
        machine=machine_line(server),
        versions=distributions_line(["fastredlock", "redis"]),
        parts=parts,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_scale",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--only",
        type=names_of(PARTS),
        metavar="PART,PART",
        help=f"some of {', '.join(PARTS)}; pairs runs only when it is named",
    )
    add("--n", type=int, default=5, help="masters in the other parts")
    add("--blocks", type=int, default=5, help="blocks per contestant and N")
    add("--seconds", type=float, default=0.3, help="length of such a block")
    add("--wait-seconds", type=float, default=3.0, help="how long waiting is watched")
    add("--memory-blocks", type=int, default=3, help="processes per memory figure")
    add("--held", type=int, default=HELD_STEPS[-1], help="leases held, at most")
    add("--held-pairs", type=int, default=2000, help="pairs beside them")
    add("--pairs", type=int, default=1_000_000, help="pairs of the part pairs")
    add_report(parser, into=True)
    return parser


if __name__ == "__main__":
    end_with(main, "bench_scale")
