"""Run the command `fastredlock`: which command it is, and its exit status."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COMMANDS = {
    "run": "run a command while a lock is held",
    "who": "say who holds a lock",
    "list": "list the locks whose names match a pattern",
    "break": "break a lock whose holder is gone",
    "renumber": "let the numbers of a lock (fencing) begin anew",
    "check": "look for what would lose locks on the masters",
    "demo": "watch the lock keep a counter right while masters fail",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv`); return the exit status."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    try:
        try:
            if not words or words[0] not in _COMMANDS:
                return _without_command(words)
            return _run(words[0], _main_of(words[0]), words[1:])
        finally:
            if sys.stdout is not None:  # it was closed
                sys.stdout.flush()
    except KeyboardInterrupt:  # before a command looks after signals itself
        return 130
    except BrokenPipeError:  # `fastredlock demo | head`
        _say_no_more()
        return 141
    except OSError as error:  # 1 would say that the lock is taken, or free
        from ._cli.status import Status

        _say_no_more()
        print(f"fastredlock: {error}", file=sys.stderr)
        return Status.SYSTEM


def _say_no_more() -> None:
    # What is left to be written would fail again at the end of the interpreter.
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main_of(command: str) -> Callable[[Sequence[str]], int]:
    # Only the one that is run: each import counts before a command can start.
    if command == "run":
        from ._cli import run

        return run.main
    if command == "demo":
        from ._cli import demo

        return demo.main
    if command == "check":
        from ._cli import check

        return check.main
    if command == "renumber":
        from ._cli import numbers

        return numbers.renumber
    from ._cli import locks

    return {"who": locks.who, "list": locks.list_, "break": locks.break_}[command]


def _run(
    command: str, main: Callable[[Sequence[str]], int], words: Sequence[str]
) -> int:
    from ._cli.status import CommandError, Status
    from .errors import ConfigurationError, FastRedlockError

    try:
        return main(words)
    except CommandError as error:
        print(f"fastredlock {command}: {error}", file=sys.stderr)
        return error.status
    except ConfigurationError as error:  # of a name, which the locks check
        print(f"fastredlock {command}: {error}", file=sys.stderr)
        return Status.USAGE
    except FastRedlockError as error:
        print(f"fastredlock {command}: {error}", file=sys.stderr)
        return Status.INTERNAL


def _without_command(words: Sequence[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(
        prog="fastredlock",
        description="Locks over independent Redis masters: use, watch and test them.",
        epilog="commands:\n"
        + "".join(f"  {name:10}{text}\n" for name, text in _COMMANDS.items())
        + "\n`fastredlock COMMAND --help` tells the rest.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="see below")
    parser.add_argument(
        "--version", action="store_true", help="show the version and exit"
    )
    options, _ = parser.parse_known_args(words)
    if options.version:
        print(f"fastredlock {_version()}")
        return 0
    asked = f"{options.command!r} is no command" if options.command else "no command"
    parser.error(f"{asked}: give {', '.join(_COMMANDS)} (or --version, --help)")


def _version() -> str:
    from importlib import metadata  # slow to import

    try:
        return metadata.version("fastredlock")
    except metadata.PackageNotFoundError:
        return "(not installed)"
