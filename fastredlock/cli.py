"""Run the command `fastredlock`: its arguments, its help and its exit status."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence

_DEMO = """\
Let several processes increment one counter in a file: read it, wait a moment,
write it back. First without the lock, so that updates get lost, then with it,
so that none may. While the lock is in use, one of five local masters is stopped
and another one paused (SIGSTOP). At the end, one worker alone measures how fast
the lock is.
"""

_DEMO_END = """\
exit status:
  0    no update was lost with the lock
  1    updates were lost with the lock
  2    cannot run: bad argument, rich not installed, no redis-server found
  3    fewer than a quorum of the masters could be reached
  4    a worker process died
  130  ended by Ctrl-C (143: by SIGTERM); nothing is left running

examples:
  fastredlock demo
  fastredlock demo --workers 8 --seconds 20
  fastredlock demo --masters redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv`); return the exit status."""
    parser, demo_parser = _parsers()
    try:
        options = parser.parse_args(arguments)
        if options.version:
            print(f"fastredlock {_version()}")
            return 0
        if options.command is None:
            parser.error("say what to do: demo (or --version, --help)")
        return _demo(options, demo_parser.prog)
    except KeyboardInterrupt:  # before the demo looks after signals itself
        return 130
    except BrokenPipeError:  # `fastredlock demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _demo(options: argparse.Namespace, prog: str) -> int:
    from .demo.errors import DemoError
    from .demo.story import Options, play  # only here: the rest needs none of it

    try:
        return play(
            Options(
                masters=options.masters,
                workers=options.workers,
                seconds=options.seconds,
                pause=options.pause_ms / 1000,
            )
        )
    except DemoError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return error.status


def _version() -> str:
    from importlib import metadata  # slow to import

    try:
        return metadata.version("fastredlock")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(
        prog="fastredlock", description="A fast Redlock client: see it work."
    )
    parser.add_argument(
        "--version", action="store_true", help="show the version and exit"
    )
    commands = parser.add_subparsers(dest="command", title="commands")
    demo = commands.add_parser(
        "demo",
        help="watch the lock keep a counter right while masters fail",
        description=_DEMO,
        epilog=_DEMO_END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument(
        "--masters",
        type=_masters,
        metavar="URL,URL,...",
        help="use these masters instead of five local ones; they are neither stopped "
        "nor paused, and keep nothing (one key, for 2 s at most)",
    )
    demo.add_argument(
        "--workers",
        type=_number(int, 2, 64),
        default=4,
        metavar="N",
        help="worker processes, 2 to 64 (default: 4)",
    )
    demo.add_argument(
        "--seconds",
        type=_number(float, 1, 3600),
        default=5.0,
        metavar="S",
        help="time for all phases together, 1 to 3600 (default: 5)",
    )
    demo.add_argument(
        "--pause-ms",
        type=_number(float, 0, 1000),
        default=1.0,
        metavar="MS",
        help="time between reading and writing the counter, 0 to 1000 (default: 1)",
    )
    return parser, demo


def _masters(text: str) -> tuple[str, ...]:
    urls = tuple(url.strip() for url in text.split(","))
    if not all(urls):
        raise argparse.ArgumentTypeError("one of the URLs is empty")
    return urls


def _number(
    kind: Callable[[str], float], least: int, most: int
) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not within {least}..{most}")
        return value

    return number
