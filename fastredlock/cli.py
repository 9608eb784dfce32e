"""Run the command `fastredlock`: which command it is, and its exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

# In _cli the module and the function of each, and what it does.
_COMMANDS = {
    "run": ("run", "main", "run a command while a lock is held"),
    "who": ("locks", "who", "say who holds a lock"),
    "list": ("locks", "list_", "list the locks whose names match a pattern"),
    "break": ("locks", "break_", "break a lock whose holder is gone"),
    "check": ("check", "main", "look for what would lose locks on the masters"),
    "masters": ("masters", "main", "say which masters clients have, to change them"),
    "quarantine": ("quarantine", "main", "show who waits after a restart, and end it"),
    "servers": ("local", "servers", "keep masters on this machine, to try things out"),
    "demo": ("local", "demo", "watch the lock keep a counter right while masters fail"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: `sys.argv`); return the exit status."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal may not show every name
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            if not words or words[0] not in _COMMANDS:
                return _without_command(words)
            return _run(words[0], words[1:])
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # before a command looks after signals itself
        return 130
    except BrokenPipeError:  # `fastredlock demo | head`
        _discard_output()
        return 141
    except OSError as error:  # 1 would mean that the lock is taken, or free
        from ._cli import Status

        _discard_output()
        print(f"fastredlock: {error}", file=sys.stderr)
        return Status.SYSTEM
    except Exception:  # likewise
        from ._cli import Status

        sys.excepthook(*sys.exc_info())
        return Status.INTERNAL


def _discard_output() -> None:
    # What is left to be written would fail again at the end of the interpreter.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Let no socket get the number of a stream that is closed; an answer to it fails.

    A master would read what is written to that number. A command that is run still
    finds it closed.
    """
    while (fd := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(fd)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:  # print() would take the other one
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _run(command: str, words: Sequence[str]) -> int:
    from ._cli import CommandError, Status
    from .errors import ConfigurationError, FastRedlockError

    module, name, _ = _COMMANDS[command]
    try:
        # Only the one that is run: each import counts before a command can start.
        main = getattr(import_module(f"fastredlock._cli.{module}"), name)
        status: int = main(words)
        return status
    except (CommandError, FastRedlockError) as error:
        print(f"fastredlock {command}: {error}", file=sys.stderr)
        if isinstance(error, CommandError):
            return error.status
        if isinstance(error.__cause__, RuntimeError):  # no thread could be started
            return Status.SYSTEM
        is_of_name = isinstance(error, ConfigurationError)  # which the locks check
        return Status.USAGE if is_of_name else Status.INTERNAL


def _without_command(words: Sequence[str]) -> int:
    from ._cli.parser import Parser

    parser = Parser(
        "",
        "Locks over independent Redis masters: use, watch and test them.",
        "commands:\n"
        + "".join(f"  {name:10}{text}\n" for name, (_, _, text) in _COMMANDS.items())
        + "\n`fastredlock COMMAND --help` has the rest.",
    )
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="see below")
    parser.add_argument(
        "--version", action="store_true", help="show the version and exit"
    )
    asked, _ = parser.parse_known_args(words)
    if asked.version:
        print(f"fastredlock {_version()}")
        return 0
    wrong = f"{asked.command!r} is no command" if asked.command else "no command"
    parser.error(f"{wrong}: give {', '.join(_COMMANDS)} (or --version, --help)")


def _version() -> str:
    from importlib import metadata  # slow to import

    try:
        return metadata.version("fastredlock")
    except metadata.PackageNotFoundError:
        return "(not installed)"
