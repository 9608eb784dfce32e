"""The options that several benches share, and how each of them runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from bench.report import Report, fill


def new_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of `python -m bench.<name>`."""
    return argparse.ArgumentParser(
        prog=f"python -m bench.{name}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )


def add_blocks(
    parser: argparse.ArgumentParser,
    blocks: int,
    seconds: float,
    masters: Iterable[int] = (),
) -> None:
    """Add how often each contestant runs, how long, and over how many masters."""
    add = parser.add_argument
    add("--blocks", type=count_of, default=blocks, help="blocks per contestant and N")
    add("--seconds", type=float, default=seconds, help="length of a block")
    if counts := [*masters]:
        text = "numbers of masters"
        add("--masters", type=counts_of, default=counts, metavar="N,N", help=text)


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add which program is measured against."""
    text = "a program or a name on PATH; None: the first that is found"
    parser.add_argument("--server", metavar="NAME", help=text)


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
    """Return a reader of some of these names, written with commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is none of {', '.join(known)}"
                )
        return names

    return read


def report_with(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], Report],
    *,
    has_plot: bool = False,
) -> int:
    """Measure or load a report, and put it where the options ask for.

    Return 0, or 1 if something that was to be measured did not run.
    """
    add = parser.add_argument
    add("--markdown", action="store_true", help="print the table in Markdown")
    add("--json", type=Path, metavar="FILE", help="save the figures")
    add("--load", type=Path, metavar="FILE", help="measure nothing, show a saved run")
    text = "write them between the marks of a Markdown file"
    add("--into", type=Path, metavar="FILE", help=text)
    text = "the marks' name there, as pair-valkey; None: the bench's"
    add("--section", metavar="NAME", help=text)
    if has_plot:
        add("--plot", type=Path, metavar="FILE", help="draw them, .svg or .png")
    options = parser.parse_args()
    report = Report.load(options.load) if options.load else measure(options)
    print(report.markdown() if options.markdown else report.text())
    if options.json:
        report.save(options.json)
    picture = getattr(options, "plot", None)
    if picture:
        from bench.plot import plot  # matplotlib is needed only here

        plot(report, picture)
    if options.into:
        fill(options.into, report, picture, options.section)
    return int(report.has_failed())


def end_with(main: Callable[[], int], name: str) -> None:
    """Run a bench and exit; a missing server or compiler is one line."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (FileNotFoundError, RuntimeError) as error:
        sys.exit(f"{name}: {error}")
