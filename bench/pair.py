"""How long does an acquire and release take, and what does it cost?

One table for N = 1, 3, 5 masters: the contestants play in turns, A B C A B C ..., each
in a process of its own, so that a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench._machine import machine_line, versions_line
from bench._marked import fill_with_picture
from bench._match import Match
from bench._options import add_report, add_rounds, add_seconds, end_with, names_of
from bench._peers import CONTESTANTS, is_installed
from bench._results import Report, Row, rows_of
from bench._servers import local_masters, server_version
from bench._syscalls import SyscallCount, Tracer, count_syscalls, find_tracer
from bench._table import markdown_of, text_of

_COUNT_PASSES = 5  # the median is shown
_COUNT_TOLERANCE = 0.02
_PLACES = {
    "servers": "; servers on one core, the client left to the scheduler",
    "free": "; all left to the scheduler",
    "together": "; servers and client on one core",
    "apart": "; servers on one core, client on another",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0."""
    options = _parser().parse_args(arguments)
    report = Report.load(options.load) if options.load else _measure(options)
    print(markdown_of(report) if options.markdown else text_of(report))
    if options.json:
        report.save(options.json)
    if options.plot:
        from bench._plot import plot  # matplotlib is needed only here

        plot(report, options.plot)
    if options.into:
        text, caption = markdown_of(report), "p50 of acquire + release"
        fill_with_picture(options.into, "pair", text, options.plot, caption)
    return 0


def _measure(options: argparse.Namespace) -> Report:
    players, notes = _players(options.only)
    tracer = Tracer(None, reason="--syscall-pairs 0")
    if options.syscall_pairs:
        tracer = find_tracer()
    rows: list[Row] = []
    server = ""
    for masters in options.masters:
        with local_masters(masters) as urls, _place(options.place):
            server = server_version(urls[0])
            with Match(players, urls, options.seconds) as match:
                rounds = match.completed(
                    [match.play() for _ in _progress(masters, options.blocks)]
                )
            notes += [f"N = {masters}: {note}" for note in match.notes]
            played = [name for name in players if name in rounds[0]]
            counts = _count(tracer, played, urls, options.syscall_pairs)
        rows += rows_of(masters, rounds, counts)
    return Report(
        machine=machine_line(server),
        versions=versions_line(players),
        method=(
            f"Uncontended acquire + release; medians of {options.blocks} alternating "
            f"blocks of about {options.seconds:g} s; CPU of the client process alone"
            f"{_PLACES[options.place]}."
        ),
        syscall_method=(
            f"System calls per pair counted with {tracer.name}."
            if tracer.name
            else f"System calls not counted ({tracer.reason})."
        ),
        notes=notes + _count_notes(rows),
        rows=rows,
    )


@contextmanager
def _place(place: str) -> Iterator[None]:
    """Say on which cores what starts from here on runs, the servers apart.

    Left alone, the scheduler moves servers about, and where they are at a time changes
    a pair by a factor of up to four: more than any client does.
    """
    cores = sorted(os.sched_getaffinity(0))
    if place != "free":
        for child in _children():
            os.sched_setaffinity(child, cores[-1:])
    if place in ("together", "apart"):
        os.sched_setaffinity(0, cores[-1:] if place == "together" else cores[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _children() -> list[int]:
    pid = os.getpid()
    return [
        int(child)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


def _players(only: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return who plays, and a note for each who cannot and was not asked for."""
    if only:
        return [name for name in CONTESTANTS if name in only], []
    missing = [name for name in CONTESTANTS if not is_installed(name)]
    return (
        [name for name in CONTESTANTS if name not in missing],
        [f"{name} is not installed and did not play." for name in missing],
    )


def _progress(masters: int, blocks: int) -> Sequence[int]:
    print(f"N = {masters}: {blocks} rounds ...", file=sys.stderr, flush=True)
    return range(blocks)


def _count(
    tracer: Tracer, players: Sequence[str], urls: Sequence[str], pairs: int
) -> dict[str, SyscallCount]:
    """Count in turns, too: how many replies come at once differs from run to run."""
    if not tracer.name:
        return {}
    passes = [
        {name: count_syscalls(tracer, name, urls, pairs) for name in players}
        for _ in range(_COUNT_PASSES)
    ]
    return {
        name: sorted((counts[name] for counts in passes), key=_per_pair)[
            _COUNT_PASSES // 2
        ]
        for name in players
    }


def _per_pair(count: SyscallCount) -> float:
    return count.per_pair


def _count_notes(rows: Sequence[Row]) -> list[str]:
    """Check the tracer against the floor's own count; say so when they disagree."""
    return [
        f"N = {row.masters}: the floor counted {row.own_syscalls:.1f} system calls "
        f"itself, the tracer {row.syscalls:.1f}: do not trust that column."
        for row in rows
        if row.syscalls and row.own_syscalls
        if abs(row.syscalls - row.own_syscalls) > _COUNT_TOLERANCE * row.syscalls
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_pair", description=__doc__
    )
    add = parser.add_argument
    add_seconds(parser)
    add(
        "--place",
        choices=_PLACES,
        default="servers",
        help="servers: on one core, the client where the scheduler puts it; apart: the "
        "client on another core; together: all on one; free: all left to the scheduler "
        "(default %(default)s)",
    )
    add_rounds(parser, blocks=15, masters=(1, 3, 5))
    add(
        "--only",
        type=names_of(CONTESTANTS),
        metavar="NAME,NAME",
        help=f"some of {', '.join(CONTESTANTS)} (default: all that are installed)",
    )
    add(
        "--syscall-pairs",
        type=int,
        default=5000,
        metavar="PAIRS",
        help="pairs in the separate pass that counts system calls; 0 leaves it out "
        "(default %(default)s)",
    )
    add_report(parser, plot=True, into=True)
    return parser


if __name__ == "__main__":
    end_with(main, "bench_pair")
