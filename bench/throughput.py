"""How many pairs a second does one process do with many tasks, threads or in batches?

For N = 3 and 5 masters: the entries, as `asyncio:200`, run in alternation, A B C A B C
..., each in a process of its own. An entry whose library is missing, or that fails, is
left out with a note; the last lines name which of the speeds asked for were met.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from bench.contestants.tables import (
    FLOOR,
    MANY_CALLERS,
    NATIVE_FLOOR,
    contestant_of,
    for_server,
    libraries_of,
    present,
    size_of,
    words_of,
)
from bench.harness.alternation import Round, alternate, middle, noise, ratio
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import (
    add_blocks,
    add_server,
    count_of,
    end_with,
    new_parser,
    report_with,
)
from bench.harness.servers import local_masters, server_version
from bench.report import HIDDEN, RATIO, Report, Table, target

_TARGETS_AT = 5  # masters, or the largest N of a run without them
_RATE = "pairs_per_s"
_FLOOR = f"{FLOOR}:100"  # of the noise
_NATIVE = f"{NATIVE_FLOOR}:100"
_ALL = [f"{name}:{size}" for name, each in MANY_CALLERS.items() for size in each.sizes]
_COLUMNS = (
    ("N", "d"),
    ("contestant", ""),
    ("callers", ""),
    ("entry", HIDDEN),
    ("pairs/s", ",.0f"),
    ("CPU µs", ",.1f"),
    ("servers' CPU µs", ",.1f"),
    ("p50 µs", ",.0f"),
    ("p99 µs", ",.0f"),
    ("pairs/s / floor", RATIO),
    ("CPU / floor", RATIO),
    ("servers' CPU / floor", RATIO),
    ("pairs/s / native floor", RATIO),
)
# entry, relative to which other, in which figure of a Block, the bound
_TARGETS = (
    ("asyncio:200", _FLOOR, "pairs_per_s", ">=", 0.85),
    ("asyncio:200", "pottery:200", "pairs_per_s", ">=", 50.0),
    ("asyncio:200", "redis-py:200", "pairs_per_s", ">=", 6.0),
    ("each:100", _FLOOR, "pairs_per_s", ">=", 0.95),
    ("threads:16", "threads:1", "pairs_per_s", ">=", 2.2),
    ("threads:64", "threads:1", "pairs_per_s", ">=", 2.6),
    ("threads:16", "redlock-py-threads:16", "pairs_per_s", ">=", 10.0),
    ("asyncio:1", "threads:1", "p50_us", "<=", 1.5),
)
_NATIVE_TARGETS = (  # where the masters have DELIFEQ; the floor has the script
    *_TARGETS,
    ("each:100", _FLOOR, "pairs_per_s", ">=", 1.3),
    ("each:100", _NATIVE, "pairs_per_s", ">=", 0.95),
    ("each:100", _FLOOR, "servers_cpu_us", "<=", 0.6),
    ("asyncio:200", _FLOOR, "servers_cpu_us", "<=", 0.6),
)
_WORDS = {"p50_us": "p50 of ", "servers_cpu_us": "servers' CPU of "}


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure, has_plot=True)


def floor_for(entry: str, floor: str = FLOOR) -> str:
    """Return the floor with the largest batch no larger than the number of callers."""
    sizes = MANY_CALLERS[floor].sizes
    return f"{floor}:{max(size for size in sizes if size <= size_of(entry))}"


def _measure(options: argparse.Namespace) -> Report:
    entries, notes = present(options.only or _ALL)
    entries.sort(key=size_of)  # few callers first
    rows: list[list[Any]] = []
    noises: list[str] = []
    targets: list[str] = []
    targets_at = _TARGETS_AT if _TARGETS_AT in options.masters else options.masters[-1]
    server = ""
    for masters in options.masters:
        with local_masters(masters, options.server) as urls:
            server = server_version(urls[0])
            rounds, run_notes = alternate(
                for_server(entries, urls[0]),
                urls,
                seconds=options.seconds,
                blocks=options.blocks,
            )
        completed = [entry for entry in _in_order(entries) if entry in rounds[0]]
        rows += [[masters, *_row(entry, rounds)] for entry in completed]
        noises += [f"{n} at N = {masters}" for n in noise(rounds, _FLOOR, _RATE)]
        notes += run_notes
        if masters == targets_at:
            asked = _NATIVE_TARGETS if _NATIVE in rounds[0] else _TARGETS
            targets = [_target(masters, rounds, *each) for each in asked]
    return Report(
        name="throughput",
        tables=[Table(_COLUMNS, rows)],
        machine=machine_line(server),
        versions=versions_line(libraries_of(entries)),
        method=_method(options, noises),
        notes=notes,
        targets=targets,
        caption="pairs per second by one process",
    )


def _in_order(entries: Sequence[str]) -> list[str]:
    names = [*MANY_CALLERS]
    return sorted(
        entries, key=lambda entry: (names.index(entry.split(":")[0]), size_of(entry))
    )


def _row(entry: str, rounds: Sequence[Round]) -> list[object]:
    contestant = contestant_of(entry)
    figures = (_RATE, "cpu_us", "servers_cpu_us", "p50_us", "p99_us")
    return [
        contestant.label,
        contestant.callers(size_of(entry)),
        entry,
        *(middle(rounds, entry, figure) for figure in figures),
        ratio(rounds, entry, floor_for(entry), _RATE),
        ratio(rounds, entry, floor_for(entry), "cpu_us"),
        ratio(rounds, entry, floor_for(entry), "servers_cpu_us"),
        ratio(rounds, entry, floor_for(entry, NATIVE_FLOOR), _RATE),
    ]


def _target(
    masters: int,
    rounds: Sequence[Round],
    above: str,
    below: str,
    figure: str,
    sign: str,
    bound: float,
) -> str:
    words = _WORDS.get(figure, "")
    text = f"{words}{words_of(above)} / {words_of(below)}, N = {masters}"
    return target(text, ratio(rounds, above, below, figure), sign, bound)


def _method(options: argparse.Namespace, noises: Sequence[str]) -> list[str]:
    lines = [
        f"Uncontended acquire + release by one process; medians of {options.blocks} "
        f"alternating blocks of about {options.seconds:g} s; CPU of the client process "
        "per pair; p50 and p99 of a pair as one of the callers sees it, or of a whole "
        "batch."
    ]
    if noises:
        lines.append(f"Noise: a second floor made {', '.join(noises)}.")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("throughput", __doc__)
    add_server(parser)
    add_blocks(parser, blocks=7, seconds=0.5, masters=(3, 5))
    all_sizes = "; ".join(
        f"{name}:{','.join(map(str, contestant.sizes))}"
        for name, contestant in MANY_CALLERS.items()
    )
    parser.add_argument(
        "--only",
        type=_entries_of,
        metavar="NAME,NAME",
        help=f"some of {all_sizes}; a name alone means all its sizes; None: all that "
        "are installed",
    )
    return parser


def _entries_of(text: str) -> list[str]:
    entries = []
    for part in text.split(","):
        name, _, size = part.partition(":")
        if name not in MANY_CALLERS:
            raise argparse.ArgumentTypeError(
                f"{name!r} is none of {', '.join(MANY_CALLERS)}"
            )
        sizes = [count_of(size)] if size else MANY_CALLERS[name].sizes
        entries += [f"{name}:{each}" for each in sizes]
    return entries


if __name__ == "__main__":
    end_with(main, "throughput")
