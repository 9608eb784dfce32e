"""What does an acquire and release cost while one of five masters is out of order?

Each contestant has one process per condition, and they run in alternation: healthy,
paused, black-holed, refusing, healthy, ... A pair that fails or is not granted is
counted and timed as well: that is the time its caller sees. The other libraries get
socket timeouts (their own default is none, with which a paused master stops them for
ever), and a block ends after `--seconds`; a process that does not end in time is killed
and shown as hanging.
"""

from __future__ import annotations

import argparse
import select
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from bench.contestants.tables import ONE_CALLER, OURS, libraries_of, present
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import (
    add_blocks,
    count_of,
    end_with,
    new_parser,
    report_with,
)
from bench.harness.process import Block, Process
from bench.harness.servers import server_version
from bench.report import RATIO, Failure, Report, Table

_HEALTHY = "all healthy"
_CONDITIONS = (_HEALTHY, "paused", "black-holed", "refusing")
_ENTRIES = (OURS, "redlock-py", "pottery")
_THEIR_TIMEOUTS = "?socket_timeout=0.2&socket_connect_timeout=0.2"
_COLUMNS = (
    ("contestant", ""),
    ("one of five is", ""),
    ("p50 µs", ",.0f"),
    ("p99 µs", ",.0f"),
    ("p50 / healthy", RATIO),
    ("p99 / healthy", RATIO),
    ("pairs", ",d"),
    ("failed", ",d"),
)


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


class Watched:
    """One contestant under one condition, in a process of its own."""

    def __init__(self, entry: str, condition: str, urls: Sequence[str]) -> None:
        self.entry = entry
        self.condition = condition
        self.blocks: list[Block] = []
        self.hangs = False
        if entry != OURS:
            urls = [url + _THEIR_TIMEOUTS for url in urls]
        self.process = Process(entry, urls)

    def run(self, pairs: int, seconds: float) -> None:
        """Run one more block, unless it has hung already."""
        if self.hangs:
            return
        try:
            self.blocks.append(self.process.attempt(pairs, seconds))
        except TimeoutError:
            self.hangs = True

    def has_failed(self) -> bool:
        """Return whether it is ours and did no pair: four masters are well."""
        done = sum(block.pairs - block.failures for block in self.blocks)
        return self.entry == OURS and (self.hangs or not done)


def _measure(options: argparse.Namespace) -> Report:
    from fastredlock.testing import LocalMasters

    entries, notes = present(_ENTRIES)
    watched: list[Watched] = []
    with ExitStack() as opened:
        for condition in _CONDITIONS:
            masters = opened.enter_context(LocalMasters(5))
            urls = list(masters.urls)
            if condition == "black-holed":
                urls[0] = opened.enter_context(_black_hole())
            here = [Watched(entry, condition, urls) for entry in entries]
            watched += here
            for each in here:
                opened.callback(each.process.close)
            if condition == "paused":
                for each in here:  # connected before it
                    each.run(20, options.seconds)
                masters.pause(0)
            elif condition == "refusing":
                masters.stop(0)
        version = server_version(urls[1])
        for block in range(options.blocks + 1):
            print(f"block {block} of {options.blocks} ...", file=sys.stderr, flush=True)
            for each in watched:
                each.run(options.pairs, options.seconds)
                if block == 0:  # it is the warm-up
                    each.blocks.clear()
    return Report(
        name="degraded",
        tables=[
            Table(_COLUMNS, [row for each in entries for row in _rows(each, watched)])
        ],
        machine=machine_line(version),
        versions=versions_line(libraries_of(entries)),
        notes=[*notes, *(_failure(each) for each in watched if each.has_failed())],
    )


def _failure(ours: Watched) -> Failure:
    return Failure(f"{ours.entry}, {ours.condition}: no pair was done, or one hung.")


def _rows(entry: str, watched: Sequence[Watched]) -> list[list[Any]]:
    """Return a row per condition; ratios are medians of the ratios within a round."""
    mine = {each.condition: each for each in watched if each.entry == entry}
    healthy = mine[_HEALTHY].blocks
    rows: list[list[Any]] = []
    for condition, each in mine.items():
        label = ONE_CALLER[entry].label
        if each.hangs or not each.blocks:
            rows.append([label, f"{condition}: hangs", *[None] * 6])
            continue
        # Shorter where the healthy one came to hang.
        pairs = list(zip(each.blocks, healthy, strict=False))
        rows.append(
            [
                label,
                condition,
                median(block.p50_us for block in each.blocks),
                median(block.p99_us for block in each.blocks),
                median(b.p50_us / base.p50_us for b, base in pairs) if pairs else None,
                median(b.p99_us / base.p99_us for b, base in pairs) if pairs else None,
                sum(block.pairs for block in each.blocks),
                sum(block.failures for block in each.blocks),
            ]
        )
    return rows


@contextmanager
def _black_hole() -> Iterator[str]:
    """Yield a URL that swallows the SYN: the accept queue is full (listen(2))."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            select.select([], [filler], [], 0.05)
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("degraded", __doc__)
    parser.add_argument("--pairs", type=count_of, default=500, help="pairs in a block")
    add_blocks(parser, blocks=7, seconds=2.0)
    return parser


if __name__ == "__main__":
    end_with(main, "degraded")
