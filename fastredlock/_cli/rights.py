"""Each command and script of the library, tried on a key of its own.

The key and all that belongs to it live for 10 s at most, and are deleted at the end.
A refusal is reported with its purpose and the rights that are missing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import hiredis

from .._core import Rights
from .._options import fence_scripts, scripts
from .findings import Level, Report
from .server import Server

TTL_MS = 10_000
TOKEN = "fastredlock-check"  # of a key that nobody else has
WAITING = (
    "+subscribe +publish +time +exists +pttl +pexpire +@sortedset ~fastredlock:* "
    "&fastredlock:*"
)
POLLING = "callers cannot wait in turn, and poll instead"


class Need(NamedTuple):
    """What a refusal means, and what is to be granted."""

    level: Level
    without: str
    grant: str


LOCKS = Need(Level.NO_VOTE, "so it gets no vote", "+set +get +del +eval +evalsha")
EXTENDED = Need(Level.ADVICE, "leases cannot be extended", "+pexpire")
SEVERAL = Need(Level.ADVICE, "acquire_all cannot be used", "+exists")
SLOTS = Need(
    Level.ADVICE,
    "timeout=0 may not find a free slot of a semaphore",
    "+exists, and the names of its slots",
)
FENCED = Need(
    Level.ADVICE,
    "fencing=True cannot be used",
    "+zadd +zscore +pexpire +exists ~fastredlock:fence:*",
)
SHOWN = Need(Level.ADVICE, "holders() and `fastredlock who` cannot be used", "+pttl")
TURNS = Need(Level.ADVICE, POLLING, WAITING)
GUARD = Need(Level.ADVICE, "max_ttl cannot be used", "+pttl ~fastredlock:*")
KILL = Need(
    Level.NOTE,
    "commands that a frozen server executes late live for their ttl",
    "+client|kill",
)
NEIGHBOURS = Need(
    Level.NOTE, "processes that died leave a queue at their turn alone", "+pubsub"
)
LOAD = Need(Level.NOTE, "scripts are sent by their source at first", "+script|load")
NAME = Need(Level.NOTE, "it has no name in CLIENT LIST", "+client|setname")
HELLO = Need(Level.NOTE, "it is spoken to by RESP2", "+hello")
NATIVE = Need(
    Level.NOTE, "a release costs the server a script", "+command|info +delifeq +delex"
)
NATIVE_NAMES = ("DELIFEQ", "DELEX")
NATIVE_ALONE = (
    "fencing, several resources at once, holders() and waiting in turn cannot be used "
    "here"
)


class Trial(NamedTuple):
    """One command to try, and how it is called in the report."""

    need: Need
    name: str
    words: Sequence[object]


def try_rights(server: Server, report: Report, begin: str, prefix: str) -> None:
    """Try all; note each need that is not met, once."""
    key = f"{prefix}{begin}{os.urandom(8).hex()}"
    reply = server.ask("SET", key, TOKEN, "NX", "PX", TTL_MS)
    if isinstance(reply, hiredis.ReplyError) and _is_of_keys(str(reply)):
        report.add(
            Level.ADVICE,
            f"its user may not use {key!r} ({reply}): its rights were not tried; "
            "give --key, and how the names of its locks begin",
        )
        return
    if isinstance(reply, hiredis.ReplyError):
        report.add(LOCKS.level, _text(Trial(LOCKS, "SET", ()), str(reply)))
        return
    native = _native_trials(server, key)
    if not _may_release(server, report, native):
        return
    reported: set[Need] = set()
    for trial in [*_trials(key, prefix), *native]:
        reply = server.ask(*trial.words)
        if not isinstance(reply, hiredis.ReplyError):
            continue
        if trial.need not in reported:
            reported.add(trial.need)
            report.add(trial.need.level, _text(trial, str(reply)))
        if trial.need is LOCKS:
            break  # nothing else matters
    for name in (key, f"{key}:2", f"{key}:3"):
        server.ask("EVAL", scripts.RELEASE, 1, name, TOKEN)
    server.ask("DEL", f"{prefix}fastredlock:fence:{key}:3")


def _may_release(server: Server, report: Report, native: list[Trial]) -> bool:
    """Ask as each connection does; return whether scripts are to be tried."""
    rights = Rights()
    for name, word in (("EVAL", scripts.PROBE), ("EVALSHA", scripts.PROBE_SHA1)):
        rights.on_reply(name, server.ask(name, word, 0))
    rights.on_reply("SCRIPT LOAD", server.ask("SCRIPT", "LOAD", scripts.RELEASE))
    is_native = any(trial.name in NATIVE_NAMES for trial in native)
    error, refusal = rights.script_error(), rights.refusal()
    if error is not None and is_native:
        replies = [server.ask(*trial.words) for trial in native]
        if not any(isinstance(reply, hiredis.ReplyError) for reply in replies):
            report.add(Level.ADVICE, f"runs no scripts ({error}): {NATIVE_ALONE}")
            return False
    if refusal is not None:
        report.add(Level.NO_VOTE, refusal)
        return False
    for text in rights.warnings(is_native):
        report.add(Level.ADVICE, text)
    return "EVAL" not in rights.refused


def try_waiting(server: Server, report: Report, prefix: str) -> None:
    """Try to subscribe; from then on the connection is good for nothing else."""
    words = ("SUBSCRIBE", f"{prefix}fastredlock:waiter:{os.urandom(8).hex()}")
    reply = server.ask(*words)
    is_reported = any(POLLING in finding.text for finding in report.findings)
    if isinstance(reply, hiredis.ReplyError) and not is_reported:
        text = _text(Trial(TURNS, "SUBSCRIBE", words), str(reply))
        report.add(TURNS.level, text)


def _text(trial: Trial, error: str) -> str:
    if trial.need is LOCKS and _is_of_keys(error):
        return (
            f"its user may not run {trial.name} with the key of a lock ({error}): "
            "locks stay until their ttl; grant it the key to read, too (~ without %W)"
        )
    if not _is_of_rights(error):
        return f"refuses {trial.name} ({error}): {trial.need.without}"
    return (
        f"its user may not run {trial.name} ({error}): {trial.need.without}; "
        f"grant {trial.need.grant}"
    )


# In errors of Redis 6.0 and later, and of Valkey; the last two inside of a script.
OF_RIGHTS = ("NOPERM", "ACL failure in script", "user executing the script can't")


def _is_of_rights(error: str) -> bool:
    return any(text in error for text in OF_RIGHTS)


def _is_of_keys(error: str) -> bool:
    return _is_of_rights(error) and " key" in error


def _trials(key: str, prefix: str) -> list[Trial]:
    second, third, process = f"{key}:2", f"{key}:3", os.urandom(8).hex()
    channel = f"{prefix}fastredlock:waiter:{process}"
    load = "SCRIPT", "LOAD", scripts.EXTEND
    numbering = scripts.with_prefix(fence_scripts.ACQUIRE_AGAIN, prefix.encode())
    numbered = "EVAL", numbering, 1, third, TOKEN, TTL_MS, 1, TTL_MS

    def script(need: Need, name: str, keys: Sequence[str], *values: object) -> Trial:
        source = scripts.with_prefix(getattr(scripts, name), prefix.encode())
        words = ("EVAL", source, len(keys), *keys, *values)
        return Trial(need, f"the script {name}", words)

    return [
        Trial(LOCKS, "SET", ("SET", third, TOKEN, "NX", "PX", TTL_MS)),
        Trial(LOAD, "SCRIPT LOAD", load),
        script(EXTENDED, "EXTEND", (key,), TOKEN, TTL_MS),
        script(SHOWN, "INSPECT", (key,), "-"),
        script(EXTENDED, "ACQUIRE_AGAIN", (key,), TOKEN, TTL_MS),
        script(LOCKS, "RELEASE", (key,), TOKEN),
        script(SEVERAL, "ACQUIRE_ALL", (key, second), TOKEN, TTL_MS),
        script(SEVERAL, "EXTEND_ALL", (key, second), TOKEN, TTL_MS),
        script(SEVERAL, "RELEASE_ALL", (key, second), TOKEN),
        script(SLOTS, "LOOK", (f"{key}#",), 2),
        script(TURNS, "ASK_TURN", (key,), process, 0, 2),
        script(TURNS, "TAKE_TURN", (key,), TOKEN, TTL_MS, process, 0, -1),
        script(TURNS, "RELEASE_AND_NOTIFY", (key,), TOKEN, process),
        script(TURNS, "LEAVE_QUEUE", (key,), process),
        Trial(FENCED, "the script ACQUIRE_AGAIN with fencing", numbered),
        # The marker is there, so that it writes nothing.
        script(GUARD, "MARKER", (third, f"{key}:4"), TOKEN, 1000, "any"),
        Trial(GUARD, "GET", ("GET", "fastredlock:voter")),
        Trial(GUARD, "PTTL", ("PTTL", "fastredlock:quarantine")),
        Trial(NEIGHBOURS, "PUBSUB NUMSUB", ("PUBSUB", "NUMSUB", channel)),
        Trial(KILL, "CLIENT KILL", ("CLIENT", "KILL", "ID", 2**62)),
        Trial(NAME, "CLIENT SETNAME", ("CLIENT", "SETNAME", "fastredlock-check")),
        Trial(HELLO, "HELLO", ("HELLO", 2)),
    ]


def _native_trials(server: Server, key: str) -> list[Trial]:
    """Return those of the commands that this server has."""
    asked = Trial(NATIVE, "COMMAND INFO", ("COMMAND", "INFO", *NATIVE_NAMES))
    known = server.ask(*asked.words)
    if not isinstance(known, list):
        return [asked]
    has_delifeq, has_delex = (bool(each) for each in known)
    found = []
    if has_delifeq:
        found.append(Trial(NATIVE, "DELIFEQ", ("DELIFEQ", key, TOKEN)))
    if has_delex:
        found.append(Trial(NATIVE, "DELEX", ("DELEX", key, "IFEQ", TOKEN)))
    return found
