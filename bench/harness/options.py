"""The options that several benches share, and how each of them ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path


def add_rounds(
    parser: argparse.ArgumentParser, blocks: int, masters: Sequence[int]
) -> None:
    """Add how often each contestant plays, and over how many masters."""
    add = parser.add_argument
    add(
        "--blocks",
        type=count_of,
        default=blocks,
        help="blocks per contestant and N (default %(default)s)",
    )
    add(
        "--masters",
        type=counts_of,
        default=[*masters],
        metavar="N,N",
        help=f"numbers of masters (default {','.join(map(str, masters))})",
    )


def add_seconds(parser: argparse.ArgumentParser) -> None:
    """Add the length of a block, for benches that count out its pairs themselves."""
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.5,
        help="length of a block (default %(default)s)",
    )


def add_report(
    parser: argparse.ArgumentParser, *, plot: bool = False, into: bool = False
) -> None:
    """Add where the figures go."""
    add = parser.add_argument
    add("--markdown", action="store_true", help="print the table in Markdown")
    add("--json", type=Path, metavar="FILE", help="save the figures")
    if plot:
        add("--plot", type=Path, metavar="FILE", help="draw them, .svg or .png")
    if into:
        add(
            "--into",
            type=Path,
            metavar="FILE",
            help="write them between the marks of a Markdown file",
        )
    add("--load", type=Path, metavar="FILE", help="measure nothing, show a saved run")


def count_of(text: str) -> int:
    """Return a whole number from 1."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is less than 1")
    return count


def counts_of(text: str) -> list[int]:
    """Return whole numbers from 1, written with commas."""
    return [count_of(part) for part in text.split(",")]


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return what reads names of these, written with commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is none of {', '.join(known)}"
                )
        return names

    return read


def end_with(main: Callable[[], int], name: str) -> None:
    """Run a bench and exit; without a server or a compiler, with what is missing."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (FileNotFoundError, RuntimeError) as error:
        sys.exit(f"{name}: {error}")
