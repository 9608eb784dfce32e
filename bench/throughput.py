"""How many pairs a second does one process do with many tasks, threads or in batches?

For N = 3 and 5 masters: the players, as `asyncio:200`, play in turns, A B C A B C ...,
each in a process of its own, and all over again in the next round. A player that is
not there, or that fails, is left out with a note; the last lines say which of the
speeds asked for were met.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from bench._crowd_results import (
    CrowdReport,
    CrowdRow,
    Target,
    crowd_rows,
    crowd_targets,
    noise_of,
)
from bench._crowd_table import markdown_of, text_of
from bench._crowds import CROWDS, crowd_and_size, player_of, present
from bench._machine import distributions_line, machine_line
from bench._marked import fill_with_picture
from bench._match import Match
from bench._options import add_report, add_rounds, add_seconds, count_of, end_with
from bench._servers import local_masters, server_version

_TARGETS_AT = 5  # masters, or the largest N of a run without them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0."""
    options = _parser().parse_args(arguments)
    report = CrowdReport.load(options.load) if options.load else _measure(options)
    print(markdown_of(report) if options.markdown else text_of(report))
    if options.json:
        report.save(options.json)
    if options.plot:
        from bench._crowd_plot import plot  # matplotlib is needed only here

        plot(report, options.plot)
    if options.into:
        text, caption = markdown_of(report), "pairs per second by one process"
        fill_with_picture(options.into, "throughput", text, options.plot, caption)
    return 0


def _measure(options: argparse.Namespace) -> CrowdReport:
    players, notes = _players(options.only)
    rows: list[CrowdRow] = []
    targets: list[Target] = []
    noise: list[str] = []
    targets_at = _TARGETS_AT if _TARGETS_AT in options.masters else options.masters[-1]
    server = ""
    for masters in options.masters:
        with local_masters(masters) as urls:
            server = server_version(urls[0])
            with Match(players, urls, options.seconds) as match:
                rounds = match.completed(
                    [match.play() for _ in _progress(masters, options.blocks)]
                )
        notes += [f"N = {masters}: {note}" for note in match.notes]
        rows += crowd_rows(masters, rounds)
        noise += filter(None, [noise_of(masters, rounds)])
        if masters == targets_at:
            targets = crowd_targets(masters, rounds)
    libraries = {
        library
        for player in players
        for library in CROWDS[crowd_and_size(player)[0]].libraries
    }
    return CrowdReport(
        machine=machine_line(server),
        versions=distributions_line(sorted(libraries)),
        method=(
            "Uncontended acquire + release by one process; medians of "
            f"{options.blocks} alternating blocks of about {options.seconds:g} s; CPU "
            "of the client process per pair; p50 and p99 of a pair as one of the "
            "callers sees it, or of a whole batch."
        ),
        noise=f"Noise: a second floor made {', '.join(noise)}." if noise else "",
        notes=notes,
        rows=rows,
        targets=targets,
    )


def _players(only: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return who plays, small crowds first, and a note for each who cannot."""
    asked = only or [
        player_of(crowd, size) for crowd in CROWDS for size in CROWDS[crowd].sizes
    ]
    players, notes = present(asked)
    return sorted(players, key=lambda player: crowd_and_size(player)[1]), notes


def _progress(masters: int, blocks: int) -> Iterator[int]:
    for block in range(blocks):
        text = f"N = {masters}: round {block + 1} of {blocks} ..."
        print(text, file=sys.stderr, flush=True)
        yield block


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_throughput", description=__doc__
    )
    add = parser.add_argument
    add_seconds(parser)
    add_rounds(parser, blocks=7, masters=(3, 5))
    add(
        "--only",
        type=_players_of,
        metavar="NAME,NAME",
        help="some of "
        + "; ".join(
            f"{name}:{','.join(map(str, crowd.sizes))}"
            for name, crowd in CROWDS.items()
        )
        + "; a name alone means all its sizes (default: all that are there)",
    )
    add_report(parser, plot=True, into=True)
    return parser


def _players_of(text: str) -> list[str]:
    players = []
    for name in text.split(","):
        crowd, _, size = name.partition(":")
        if crowd not in CROWDS:
            raise argparse.ArgumentTypeError(
                f"{crowd!r} is none of {', '.join(CROWDS)}"
            )
        sizes = [count_of(size)] if size else CROWDS[crowd].sizes
        players += [player_of(crowd, each) for each in sizes]
    return players


if __name__ == "__main__":
    end_with(main, "bench_throughput")
