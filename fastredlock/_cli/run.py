"""`fastredlock run`: a command that runs while a lock is held.

What it waits for is printed once a while, by SIGALRM and not by a thread: where the
command is forked, no other thread may run. The handler interrupts the acquire, so it
asks the masters with a client of its own.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import Retry
from .._reports.votes import is_quorum, printable, votes_of
from ..errors import AcquireError, FastRedlockError, LeaseLostError, ResourceTakenError
from . import CommandError, Status
from .child import Child, Ended, Interrupted, Signals, die_by
from .holding import seen
from .parser import MASTERS_END, Parser, given_options, new_locks, new_reader, number

if TYPE_CHECKING:
    from .. import FastRedlock, MasterVote
    from .._core import Engine, Round


TTL = 30.0  # s; a host that died blocks others no longer, and outages are outlasted
KILL_AFTER = 5.0  # s
SHARE = 3  # of the ttl: SIGTERM comes at a third of it at the earliest

_DESCRIPTION = """\
Run a command while this process holds a lock, on one of all hosts at a time; with
--permits K at most K at a time, with --shared beside others with --shared. The lock
is renewed until the command ends, and then released. No shell is started.
"""
_END = f"""\
If the lock cannot be renewed, the command gets SIGTERM --kill-after seconds before
others may take it, and SIGKILL then; if the lock was broken or deleted, SIGTERM at
once, and SIGKILL that much later.

Signals sent to this process are passed on: those that end it to all of the command's
process group, and the lock is renewed until that is empty. The command has
FASTREDLOCK_RESOURCE and FASTREDLOCK_TOKEN (a secret) in its environment, with
--fencing FASTREDLOCK_FENCE, and with --permits FASTREDLOCK_SLOT: which of the slots
it has, from 0; its resource is then that slot's name, NAME#SLOT. Options of this
command come before COMMAND.

exit status: that of the command, 128 + N if signal N ended it; else
  {Status.TAKEN:<4} others hold the lock, or all slots; nothing was run (-E changes it;
       with -E 0 nothing is said)
  {Status.USAGE:<4} wrong arguments; nothing was run
  {Status.UNREACHABLE:<4} fewer than a quorum answered, or they refuse the user, its
       password or the name, for which nothing waits; nothing was run
  {Status.SYSTEM:<4} an error of the system, as too many processes
  {Status.LOST:<4} the lock was lost while the command ran, whatever its own status
  {Status.NOT_EXECUTABLE:<4} the command cannot be executed
  {Status.NOT_FOUND:<4} the command was not found

{MASTERS_END}
examples:
  fastredlock run -n -E 0 --at-least 20 cron:invoices /usr/local/bin/invoices --all
  fastredlock run -w 60 deploy sh -c 'migrate && restart'
  fastredlock run --shared catalog pg_dump catalog
  fastredlock run --permits 4 gpu sh -c 'CUDA_VISIBLE_DEVICES=$FASTREDLOCK_SLOT train'
"""


def main(words: Sequence[str]) -> int:
    parser = _parser()
    asked = parser.parse_args(words)
    if asked.command[0] == "--":  # behind an option some versions of Python leave it
        del asked.command[0]
    options = given_options(asked)
    for name in ("ttl", "max_ttl", "owner", "unreachable_tries", "fencing"):
        if getattr(asked, name) is not None:
            options[name] = getattr(asked, name)
    if asked.shared and (asked.permits is not None or asked.fencing):
        text = (
            "--shared beside --permits or --fencing: readers have no slots or numbers"
        )
        raise CommandError(text, Status.USAGE)
    options.setdefault("ttl", min(TTL, options.get("max_ttl", TTL)))
    kill_after = _kill_after(asked, options)
    locks = new_locks(options, Patience)
    signals = Signals()
    try:
        signals.let_raise()
        ended = _under_lock(locks, asked, signals, kill_after)
    except Interrupted as interrupted:  # while it waited: nothing was run
        locks.close()
        return die_by(interrupted.number)
    locks.close()
    if ended.is_interrupted:
        return die_by(ended.status - Status.SIGNAL)
    return ended.status


def _under_lock(
    locks: FastRedlock, asked: argparse.Namespace, signals: Signals, kill_after: float
) -> Ended:
    ended = None
    waiting = Waiting(asked)
    name, permits, timeout = asked.name, asked.permits, asked.timeout
    try:
        with (
            locks.lock(
                name, timeout=timeout, at_least=asked.at_least, shared=asked.shared
            )
            if permits is None
            else locks.semaphore(
                name, permits, timeout=timeout, at_least=asked.at_least
            )
        ) as lease:
            waiting.end()
            signals.hold()
            child = Child(asked.command, lease, signals, kill_after)
            try:
                lease.keep_alive(on_lost=child.on_lost)
                ended = child.wait()
            except BaseException:
                child.kill()
                raise
    except ResourceTakenError as error:
        if asked.taken_status != 0:
            _print(_taken(locks, asked, error))
        return Ended(asked.taken_status)
    except AcquireError as error:
        if is_refused(error.votes):
            error.hint = "no wait cures that: `fastredlock check --key NAME` says more"
        elif "unreachable_tries" in error.hint:
            error.hint = "given up by --unreachable-tries, or that of the TOML file"
        raise CommandError(str(error), Status.UNREACHABLE) from None
    except LeaseLostError as error:
        if ended is None:  # before it was kept
            ended = Ended(Status.LOST, f"{error}; the command got SIGKILL")
        elif not ended.reason:
            ended = Ended(
                Status.LOST,
                f"{printable(name)}: lost before the command ended by itself, with "
                f"status {ended.status}: it expired, or was broken or deleted",
            )
    finally:
        waiting.end()
    if ended.reason:
        _print(ended.reason)
    return ended


def _taken(locks: FastRedlock, asked: argparse.Namespace, error: AcquireError) -> str:
    waited = f"not taken in {error.elapsed:.1f} s"
    try:
        return f"{waited}: {seen(locks, asked.name, asked.permits)}"
    except FastRedlockError:
        return f"{waited}: {error}"


def _kill_after(asked: argparse.Namespace, options: dict[str, Any]) -> float:
    ttl: float = options["ttl"]
    if asked.kill_after is None:
        return min(KILL_AFTER, ttl / SHARE)
    kill_after: float = asked.kill_after
    if kill_after > ttl / SHARE:
        raise CommandError(
            f"--kill-after {kill_after:g}: allowed is up to a third of the ttl "
            f"({ttl:g} s), for a lock that is renewed must not look lost",
            Status.USAGE,
        )
    return kill_after


def _parser() -> Parser:
    parser = Parser("run", _DESCRIPTION, _END)
    parser.usage = "fastredlock run [options] NAME [--] COMMAND [ARGUMENT ...]"
    parser.add_name()
    # argparse.PARSER: a word and all that follow, options too.
    parser.add_argument(
        "command", nargs="A...", metavar="COMMAND", help="what to run, its arguments"
    )
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        *("-n", "--no-wait"),
        dest="timeout",
        action="store_const",
        const=0.0,
        help="try once, and do not wait; in a crontab on many hosts without --at-least "
        "each host runs a short command whose clock is later than it is long",
    )
    waiting.add_argument(
        *("-w", "--wait"),
        dest="timeout",
        **number("S", float, 0),
        help="wait for so many seconds at most, also where masters cannot be reached "
        "(default: as long as it takes)",
    )
    parser.add_argument(
        "--unreachable-tries",
        **number("N", int, 1),
        help="end after so many tries in a row that fewer than a quorum answered, some "
        "0.15 s apart (default: wait on)",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print what it waits for, after 2 s and each 30 s; always at a terminal",
    )
    parser.add_argument(
        *("-E", "--taken-status"),
        **number("CODE", int, 0, 255),
        default=int(Status.TAKEN),
        help=f"the exit status where others hold the lock (default: {Status.TAKEN:d})",
    )
    _add_options_of_lock(parser)
    parser.add_masters()
    return parser


def _add_options_of_lock(parser: Parser) -> None:
    parser.add_argument(
        "--ttl",
        **number("S", float, 1),
        help="after so long the lock is free where this host has died (default: "
        f"{TTL:g})",
    )
    parser.add_argument(
        "--at-least",
        **number("S", float, 0.001),
        help="keep the lock for so long from its grant on, also where the command ends "
        "earlier: others then run nothing (at most the ttl)",
    )
    parser.add_argument(
        "--kill-after",
        **number("S", float, 0),
        help="time between SIGTERM and SIGKILL where the lock is lost (default: "
        f"{KILL_AFTER:g}, at most a third of the ttl)",
    )
    parser.add_argument(
        "--max-ttl",
        **number("S", float, 1),
        help="the restart guard: the same as all other clients of these masters have",
    )
    parser.add_argument(
        "--owner",
        metavar="TEXT",
        help="who holds the lock, for `fastredlock who` (default: host:pid)",
    )
    parser.add_permits(
        "let at most K run at a time: NAME is a semaphore (default: a lock)"
    )
    parser.add_argument(
        *("-s", "--shared"),
        action="store_true",
        help="read: beside others with --shared, not beside one without",
    )
    parser.add_argument(
        "--fencing",
        action="store_true",
        default=None,
        help="give the command FASTREDLOCK_FENCE: a number that grows with each grant",
    )


FIRST, AGAIN = 2.0, 30.0  # s; a lock that is merely contended is not worth a line
REFUSED = "NOPERM", "WRONGPASS", "NOAUTH", "DENIED"


class Patience(Retry):
    """Wait through outages, which are printed once, and not for what no wait cures."""

    _began = 0.0
    _is_printed = False
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # of one acquire

    def _gives_up(self, tries: int, engine: Engine, round: Round) -> bool:
        votes, now = votes_of(engine, round), time.monotonic()
        if tries == 1:
            self._began = now
        waited = now - self._began
        if waited >= FIRST and not self._is_printed:
            self._is_printed = True
            if not signal.getitimer(signal.ITIMER_REAL)[0]:  # else Waiting prints it
                _print(f"waiting for {waited:.0f} s: {'; '.join(map(str, votes))}")
        return super()._gives_up(tries, engine, round) or is_refused(votes)


def is_refused(votes: Sequence[MasterVote]) -> bool:
    """Return whether logins or rights refuse so many votes that no quorum is left."""
    return not is_quorum(
        votes, lambda vote: all(word not in (vote.text or "") for word in REFUSED)
    )


def _print(text: str) -> None:
    with suppress(OSError):  # nobody reads it
        print(f"fastredlock run: {text}", file=sys.stderr)


class Waiting:
    """Print what is waited for, from now on until `end`."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._began = time.monotonic()
        self._reader: FastRedlock | None = None
        is_at_terminal = sys.stderr is not None and sys.stderr.isatty()
        # A timer that runs already is our caller's, who exec'ed us under it.
        has_timer = signal.getitimer(signal.ITIMER_REAL)[0] > 0
        self._is_on = (asked.verbose or is_at_terminal) and not has_timer
        if self._is_on:
            self._handler = signal.signal(signal.SIGALRM, self._print)
            signal.setitimer(signal.ITIMER_REAL, FIRST, AGAIN)

    def _print(self, number: int, frame: object) -> None:
        waited = time.monotonic() - self._began
        if self._reader is None:
            self._reader = new_reader(self._asked)
        holding = seen(self._reader, self._asked.name, self._asked.permits)
        reasons = "" if holding.is_known else f": {'; '.join(map(str, holding.votes))}"
        _print(f"waiting for {waited:.0f} s: {holding}{reasons}")

    def end(self) -> None:
        """Print no more; may be called again."""
        if self._is_on:
            self._is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler)
        if self._reader is not None:
            self._reader.close()
