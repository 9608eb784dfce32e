"""What the commands share: their parsers, the masters, the options of a FastRedlock."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from .._options.keys import MOST_PERMITS
from .._options.settings import (
    CONFIG,
    MASTERS,
    REMEDY,
    TAKES_NO_LOCKS,
    options_of_environment,
)
from .._options.settings import masters_in as urls_in
from ..errors import ConfigurationError
from . import CommandError, Status

if TYPE_CHECKING:
    from .. import FastRedlock, Retry


MASTERS_END = f"""\
masters:
  --masters, or ${MASTERS}, of the same form, or the list `masters` in
  the TOML file named by ${CONFIG}. Write a comma in a password as %2C.
  All users of a machine can read its command lines: keep passwords in the file.
  It may also set ttl, max_ttl, key_prefix, drift_factor, round_timeout,
  connect_timeout and, for `run`, unreachable_tries; set max_ttl and key_prefix
  if the other clients do, and changing_to (--changing-to, $FASTREDLOCK_CHANGING_TO)
  while the list changes. $FASTREDLOCK_TTL and $FASTREDLOCK_MAX_TTL come first.
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Format help by $COLUMNS, or to 80: argparse imports shutil (5 ms) to ask more.

    It makes one for each argument, whether help is asked for or not.
    """

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        super().__init__(prog, width=int(columns) - 2 if columns.isdecimal() else 78)


class Parser(argparse.ArgumentParser):
    """Parse the arguments of one command; a wrong one ends it with Status.USAGE."""

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"fastredlock {command}".rstrip(),
            description=description,
            epilog=epilog,
            formatter_class=_Help,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and where the help is."""
        print(f"{self.prog}: {message}", file=sys.stderr)
        print(f"Try '{self.prog} --help'.", file=sys.stderr)
        sys.exit(Status.USAGE)

    def add_masters(self) -> None:
        self.add_argument(
            "--masters",
            type=masters_in,
            metavar="URL,URL,...",
            help=f"the masters (default: ${MASTERS}, then the file ${CONFIG})",
        )
        self.add_argument(
            "--changing-to",
            type=masters_in,
            metavar="URL,URL,...",
            help="the list that the masters change to, while it changes",
        )
        self.add_argument(
            "--key-prefix",
            metavar="TEXT",
            help="of all keys: the same as the other clients of these locks have",
        )

    def add_max_ttl(self) -> None:
        self.add_argument(
            "--max-ttl",
            **number("S", float, 0.003),
            help="the longest ttl of all clients (default: as of the masters)",
        )

    def add_json(self) -> None:
        self.add_argument(
            "--json", action="store_true", help="print JSON, for programs"
        )

    def add_name(self) -> None:
        self.add_argument("name", type=resource, metavar="NAME", help="the lock")

    def add_number(
        self, name: str, metavar: str, kind: Callable[[str], float],
        allowed: tuple[int, int], default: int, text: str,
    ) -> None:  # fmt: skip
        least, most = allowed
        self.add_argument(
            name,
            **number(metavar, kind, least, most),
            default=default,
            help=f"{text}, {least} to {most} (default: {default})",
        )

    def add_permits(self, text: str) -> None:
        self.add_argument("--permits", **number("K", int, 1, MOST_PERMITS), help=text)


def masters_in(text: str) -> tuple[str, ...]:
    try:
        return urls_in(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def resource(text: str) -> str | bytes:
    """Return a lock's name; bytes where it is no text of this locale."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def number(
    metavar: str, kind: Callable[[str], float], least: float, most: float = math.inf
) -> dict[str, Any]:
    """Return what an argument is given that is a number in this range."""

    def checked(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            allowed = f"not within {least}..{most}"
            if most == math.inf:
                allowed = f"not a number from {least} on"
            raise argparse.ArgumentTypeError(f"{text!r} is {allowed}")
        return value

    return {"type": checked, "metavar": metavar}


def duration(seconds: int) -> str:
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {name}"
    return f"{seconds} s"


# ---- the masters


def given_options(asked: argparse.Namespace) -> dict[str, Any]:
    options = options_of_environment(asked.masters)
    if asked.changing_to is not None:
        options["changing_to"] = asked.changing_to
    if asked.key_prefix is not None:
        options["key_prefix"] = asked.key_prefix
    if getattr(asked, "max_ttl", None) is not None:
        options["max_ttl"] = asked.max_ttl
    if not options.get("masters"):
        raise CommandError(
            f"no masters: give --masters URL,URL,URL, or {REMEDY}", Status.USAGE
        )
    return options


def agrees(question: str) -> bool:
    """Ask the user; return whether the answer is yes. CommandError where none can."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError(
            "nothing was changed: nobody can be asked, for standard input is no "
            "terminal: give --yes",
            Status.USAGE,
        )
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def new_reader(asked: argparse.Namespace) -> FastRedlock:
    """Return a FastRedlock that takes no locks: it asks masters in quarantine, too.

    All connections are decided by then: without a quorum, those that answer are asked.
    """
    from ..errors import QuorumUnreachableError

    options = given_options(asked)
    options["max_ttl"] = TAKES_NO_LOCKS
    locks = new_locks(options)
    with suppress(QuorumUnreachableError):
        locks.connect()
    return locks


def new_locks(options: dict[str, Any], kind: type[Retry] | None = None) -> FastRedlock:
    """Return a FastRedlock of these options; raises CommandError for wrong ones."""
    from .. import FastRedlock, Retry

    tries = options.get("unreachable_tries")  # None: a wait holds through outages
    others = {name: options[name] for name in options if name != "unreachable_tries"}
    try:
        return FastRedlock(retry=(kind or Retry)(unreachable_tries=tries), **others)
    except ConfigurationError as error:
        raise CommandError(str(error), Status.USAGE) from None
