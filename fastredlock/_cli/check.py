"""`fastredlock check`: what would lose locks, asked of every master.

Each command and script of the library is tried on a key of its own. The key and all
that belongs to it live for 10 s at most, and are deleted at the end. A refusal is
reported with its purpose and the rights that are missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

import hiredis

from .._core import Rights, ServerInfo, failover_of
from .._options import scripts
from .._options.settings import TAKES_NO_LOCKS
from . import Status
from .connection import Connection, ServerError, shards_of
from .parser import MASTERS_END, Parser, given_options, new_locks, number

KEY = "fastredlock:check:"
DEFAULT_TTL = 10.0  # s; the library's default
SHARE = 20  # of the ttl: the default round_timeout, docs/options.md
LEAST_TIMEOUT, MOST_TIMEOUT = 0.005, 1.0  # s
PINGS = 5
OFFSET = 1.0  # s: clocks that are synchronised differ by far less
STEP = 0.1  # s, between two looks at its clock
FULL = 0.9  # of maxmemory
# What is tested: docs/support.md.
OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}
MARKERS = "fastredlock:voter", "fastredlock:lineage", "fastredlock:lineage:replid"
QUARANTINE = "fastredlock:quarantine"
TTL_MS = 10_000
TOKEN = "fastredlock-check"  # of a key that nobody else has
_DESCRIPTION = """\
Ask every master for what would lose locks: whether it is a master of its own, what it
keeps over a restart, whether it evicts keys, its clock, its delay, its version, and the
rights of its user. Each command and script is tried on a key of its own, which lives
for 10 s at most; no lock is touched.
"""
_END = f"""\
exit status, as of monitoring plugins:
  {Status.OK:<4} nothing was found (notes do not count)
  {Status.WARNING:<4} warning: locks are safe as long as nothing else happens
  {Status.CRITICAL:<4} critical: locks can be lost, or fewer than a quorum can vote
  {Status.USAGE:<4} wrong arguments
  {Status.SYSTEM:<4} an error of the system, as a full disk

{MASTERS_END}"""


def main(words: Sequence[str]) -> int:
    parser = _parser()
    asked = parser.parse_args(words)
    options = given_options(asked)
    if asked.ttl is not None:
        options["ttl"] = asked.ttl
    options.setdefault("ttl", min(DEFAULT_TTL, options.get("max_ttl", DEFAULT_TTL)))
    # Wrong options are refused before any I/O.
    new_locks({"max_ttl": TAKES_NO_LOCKS, **options}).close()
    reports = _reports(options, asked.key)
    found = compare(reports)
    status = status_of(reports, found)
    if asked.json:
        _print_json(status, reports, found)
    else:
        _print(status, reports, found)
    return Status[status.upper()]


def _reports(options: dict[str, Any], key: str) -> list[Report]:
    from .._options.masters import parse_masters

    ttl = options["ttl"]
    share = min(max(ttl / SHARE, LEAST_TIMEOUT), MOST_TIMEOUT)
    timeout, has_max_ttl = options.get("round_timeout") or share, "max_ttl" in options
    key_prefix = str(options.get("key_prefix", ""))
    max_ttl = options.get("max_ttl", 0)
    wanted = Wanted(ttl, timeout, has_max_ttl, key, key_prefix, max_ttl)
    endpoints = parse_masters(options["masters"])
    with ThreadPoolExecutor(len(endpoints)) as pool:
        return [*pool.map(lambda endpoint: examine_all(endpoint, wanted), endpoints)]


def _print(status: str, reports: list[Report], found: list[Finding]) -> None:
    voting = sum(report.may_vote for report in reports)
    print(f"{status.upper()}: {voting} of {len(reports)} masters can vote")
    for report in reports:
        print(f"  {report}")
    for finding in found:
        print(f"{finding.level}: {finding.text}")
    for finding, names in by_finding(reports).items():
        which = "all masters" if len(names) == len(reports) > 1 else ", ".join(names)
        print(f"{finding.level}: {which}: {finding.text}")


def _print_json(status: str, reports: list[Report], found: list[Finding]) -> None:
    document = {
        "status": status,
        "findings": [asdict(finding) for finding in found],
        "masters": [asdict(report) for report in reports],
    }
    print(json.dumps(document, indent=2))


def _parser() -> Parser:
    parser = Parser("check", _DESCRIPTION, _END)
    parser.add_argument(
        "--key",
        default=KEY,
        metavar="TEXT",
        help="how the keys begin that are tried: where the user may not use all keys, "
        f"give one that its locks have (default: {KEY})",
    )
    parser.add_argument(
        "--ttl",
        **number("S", float, 0.003),
        help="of the locks that are used here: masters have to answer within 5 %% of "
        "it (default: 10)",
    )
    parser.add_max_ttl()
    parser.add_json()
    parser.add_masters()
    return parser


# ---- what was found


class Level(StrEnum):
    """How bad a finding is; the value is its word in the report."""

    UNSAFE = "critical"  # locks can be lost
    NO_VOTE = "no vote"  # it takes part in no lock: bad where too few are left
    ADVICE = "warning"
    NOTE = "note"  # without it something is slower; of no weight for the exit status


@dataclass(frozen=True, slots=True)
class Finding:
    """One of them: a text for people, with its remedy."""

    level: Level
    text: str


@dataclass(slots=True)
class Report:
    """All that is known of one master after it was asked; None: it did not reply."""

    master: str
    may_vote: bool = True  # whether a client can take locks on it
    version: str | None = None
    role: str | None = None
    run_id: str | None = None
    uptime: int | None = None  # s
    latency: float | None = None  # s
    clock_offset: float | None = None  # s; its wall clock less ours
    fails_over: bool = False  # to another server, by itself
    findings: list[Finding] = field(default_factory=list)

    def add(self, text: str, level: Level = Level.ADVICE) -> None:
        self.findings.append(Finding(level, text))
        self.may_vote &= level is not Level.NO_VOTE

    def __str__(self) -> str:
        return f"{self.master}  {', '.join(self._facts())}"

    def _facts(self) -> Iterator[str]:
        yield self.version or "version not known"
        if self.role is not None:
            yield self.role
        if self.uptime is not None:
            yield f"up {_duration(self.uptime)}"
        if self.latency is not None:
            yield f"{self.latency * 1e3:.2f} ms"
        if not self.findings:
            yield "nothing found"


def compare(reports: Sequence[Report]) -> list[Finding]:
    """Look at all masters together; report both names of one server."""
    first: dict[str, Report] = {}
    for report in reports:
        if report.run_id is None:
            continue
        other = first.setdefault(report.run_id, report)
        if other is not report:
            report.may_vote = False
            text = "is the same server as {}: one server has one vote"
            other.add(text.format(report.master), Level.UNSAFE)
            report.add(text.format(other.master), Level.UNSAFE)
    found: list[Finding] = []
    if len(reports) == 1 and not reports[0].fails_over:
        text = "there is one master: where it fails, nobody gets a lock; use 3 or 5"
        found.append(Finding(Level.ADVICE, text))
    if len(reports) % 2 == 0:
        survived = (len(reports) - 1) // 2
        text = (
            f"{len(reports)} masters survive the loss of {survived}, as "
            f"{len(reports) - 1} would: use an odd number"
        )
        found.append(Finding(Level.ADVICE, text))
    return found


def by_finding(reports: Sequence[Report]) -> dict[Finding, list[str]]:
    """Return the masters of each finding, the worst first: many have the same."""
    found: dict[Finding, list[str]] = {}
    for report in reports:
        for finding in report.findings:
            found.setdefault(finding, []).append(report.master)
    levels = [*Level]
    return dict(sorted(found.items(), key=lambda item: levels.index(item[0].level)))


def status_of(reports: Sequence[Report], found: Sequence[Finding]) -> str:
    """Return "critical", "warning" or "ok"."""
    voting = sum(report.may_vote for report in reports)
    each = (finding for report in reports for finding in report.findings)
    levels = {finding.level for finding in (*found, *each)}
    if Level.UNSAFE in levels or voting < len(reports) // 2 + 1:
        return "critical"
    return "warning" if levels - {Level.NOTE} else "ok"


def _duration(seconds: int) -> str:
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {name}"
    return f"{seconds} s"


# ---- one master


class Wanted(NamedTuple):
    ttl: float  # s
    round_timeout: float  # s
    has_max_ttl: bool
    key: str  # how those begin that are tried
    key_prefix: str
    max_ttl: float  # s; 0: not given
    tag: str = ""  # of its keys on this primary of a cluster


def examine_all(endpoint: Any, wanted: Wanted) -> Report:
    """Ask one master everything; of a cluster each primary, for one report."""
    if not endpoint.seeds:
        return examine(endpoint, wanted)
    report = Report(endpoint.name, role="cluster", fails_over=True)
    found: list[Finding] = []
    try:
        shards = shards_of(endpoint)
    except ServerError as error:
        report.add(str(error), Level.NO_VOTE)
        return report
    for node, tag in shards:
        place = node.name.removeprefix("cluster:")
        each = examine(node, wanted._replace(tag=tag))
        report.may_vote &= each.may_vote
        report.version, report.uptime = each.version, each.uptime
        report.latency = max(each.latency or 0, report.latency or 0)
        found += [
            finding
            if finding.level is Level.NOTE
            else Finding(finding.level, f"{place}: {finding.text}")
            for finding in each.findings
        ]
    report.findings += dict.fromkeys(found)
    report.role = f"cluster of {len(shards)} primaries"
    return report


def examine(endpoint: Any, wanted: Wanted) -> Report:
    """Ask one master everything; blocks, 2 s for each reply at most."""
    is_endpoint, tag = endpoint.failover_ns != 0, wanted.tag
    keeps = is_endpoint or endpoint.lossless_failover  # its max_ttl is required
    report = Report(endpoint.name, fails_over=keeps)
    try:
        with Connection(endpoint) as connection:
            ahead = _ahead(connection)
            _look_at_clock(report, ahead)
            has_max_ttl = keeps or wanted.has_max_ttl
            _look_at_info(connection, report, wanted._replace(has_max_ttl=has_max_ttl))
            if report.may_vote and is_endpoint:
                _look_at_failover(connection, report, endpoint, wanted.max_ttl)
            _measure_delay(connection, report, wanted)
            if report.may_vote:
                begin, marker = wanted.key + tag, MARKERS[is_endpoint] + tag
                try_rights(connection, report, begin, wanted.key_prefix, marker, tag)
            _look_for_a_step(report, ahead, _ahead(connection))
            if report.may_vote:
                try_waiting(connection, report, wanted.key_prefix)
    except ServerError as error:
        report.add(str(error), Level.NO_VOTE)
    return report


# ---- INFO


def _look_at_info(connection: Connection, report: Report, wanted: Wanted) -> None:
    reply = connection.ask("INFO")
    if isinstance(reply, hiredis.ReplyError):
        report.add(
            f"does not tell what it is ({reply}): role, run id, persistence and "
            "eviction are not known; grant its user +info"
        )
        return
    known = ServerInfo(reply)
    report.run_id, report.uptime = known.run_id, known.uptime_s
    report.role = known.role or known.mode
    _look_at_version(known, report)
    refusal = known.refusal()
    if refusal is not None:
        report.add(refusal, Level.NO_VOTE)
        return
    for text in known.warnings():
        if not (wanted.has_max_ttl and text.startswith("is a cluster node")):
            report.add(text, Level.UNSAFE)
    replicas = known.fields.get("connected_slaves", "0")
    if replicas != "0" and known.mode != "cluster" and not wanted.has_max_ttl:
        report.add(
            f"has {replicas} replicas: a failover to one of them forgets the last "
            "locks; let nothing promote them, or set max_ttl in all clients"
        )
    _look_at_memory(known.fields, report)
    _look_at_persistence(connection, known.fields, report, wanted)


def _look_at_failover(
    connection: Connection, report: Report, endpoint: Any, max_ttl: float
) -> None:
    failover_ns = endpoint.failover_ns
    if failover_ns < 0:
        info = ServerInfo(connection.ask("INFO"))
        in_cluster = info.mode == "cluster"
        name = "cluster-node-timeout" if in_cluster else "min-replicas-*"
        replicas = endpoint.sentinels.replicas if endpoint.sentinels else 0
        failover_ns, warning = failover_of(
            connection.ask("CONFIG", "GET", name), info, replicas
        )
        if warning is not None:
            report.add(warning, Level.UNSAFE)
    window, shown = failover_ns / 1e9, f"{max_ttl:g} s" if max_ttl else "max_ttl"
    total = f"{max_ttl + 1 + window:g} s = " if max_ttl else ""
    report.add(
        "a failover loses all locks: from the first write of the new primary on "
        f"nobody gets one for {total}{shown} + 1 s + {window:g} s (failover window)",
        Level.NOTE,
    )


def _look_at_version(known: ServerInfo, report: Report) -> None:
    if known.version is None:
        return
    name = "Valkey" if "valkey_version" in known.fields else "Redis"
    report.version = f"{name} {known.version}"
    parts = known.version.split(".")[:2]
    if tuple(int(part) for part in parts if part.isdecimal()) < OLDEST[name]:
        oldest = ".".join(map(str, OLDEST[name]))
        report.add(f"is older than what is tested ({name} {oldest})")


def _look_at_memory(info: dict[str, str], report: Report) -> None:
    limit, used = (int(info.get(name, 0)) for name in ("maxmemory", "used_memory"))
    if used > FULL * limit > 0:
        report.add(
            f"has used {used / limit:.0%} of its memory: when it is full, it refuses "
            "locks (OOM)"
        )


def _look_at_persistence(
    connection: Connection, info: dict[str, str], report: Report, wanted: Wanted
) -> None:
    for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if info.get(name, "ok") != "ok":
            report.add(
                f"could not write to its disk ({name}: {info[name]}): it may refuse "
                "locks (MISCONF)"
            )
    left_ms = connection.ask("PTTL", QUARANTINE + wanted.tag)
    if isinstance(left_ms, int) and left_ms > 0:
        report.add(
            f"was restarted or emptied: clients with a max_ttl ask it for no lock for "
            f"{left_ms / 1e3:.0f} s more"
        )
    if wanted.has_max_ttl or connection.ask("EXISTS", *MARKERS) != 0:
        return  # the restart guard replaces the disk
    remedy = "set appendfsync always, or max_ttl in all clients"
    if info.get("aof_enabled") != "1":
        report.add(
            "does not write each lock to a disk (appendonly no), and no client of it "
            f"has a max_ttl: a restart forgets locks that are held; {remedy}"
        )
        return
    setting = connection.ask("CONFIG", "GET", "appendfsync")
    if not isinstance(setting, list) or len(setting) != 2:
        report.add(f"does not tell its appendfsync; {remedy}", Level.NOTE)
    elif setting[1] != b"always":
        report.add(
            f"writes to its disk later (appendfsync {setting[1].decode()}), and no "
            "client of it has a max_ttl: a crash forgets the last locks; " + remedy
        )


# ---- time


def _ahead(connection: Connection) -> float | None:
    """Return its wall clock less our monotonic one, which nobody sets."""
    began = time.monotonic()
    reply = connection.ask("TIME")
    if not isinstance(reply, list):
        return None
    return int(reply[0]) + int(reply[1]) / 1e6 - (began + time.monotonic()) / 2


def _look_at_clock(report: Report, ahead: float | None) -> None:
    if ahead is None:
        return
    report.clock_offset = offset = ahead - (time.time() - time.monotonic())
    if abs(offset) > OFFSET:
        report.add(
            f"its clock differs from this machine's by {offset:+.1f} s: it is not "
            "synchronised, and a step that sets it forward frees locks early"
        )


def _look_for_a_step(report: Report, first: float | None, last: float | None) -> None:
    if first is not None and last is not None and abs(last - first) > STEP:
        report.add(
            f"its clock jumped by {last - first:+.2f} s in this moment: a step forward "
            "frees locks early",
            Level.UNSAFE,
        )


def _measure_delay(connection: Connection, report: Report, wanted: Wanted) -> None:
    delays = []
    for _ in range(PINGS):
        began = time.monotonic()
        connection.ask("PING")
        delays.append(time.monotonic() - began)
    report.latency = median(delays)
    if report.latency > wanted.round_timeout:
        report.add(
            f"answers in {report.latency * 1e3:.0f} ms, and a round of a lock with a "
            f"ttl of {wanted.ttl:g} s waits {wanted.round_timeout * 1e3:.0f} ms: give "
            "a larger round_timeout or ttl",
            Level.NO_VOTE,
        )


# ---- rights

WAITING = (
    "+subscribe +publish +time +exists +pttl +pexpire +@sortedset ~fastredlock:* "
    "&fastredlock:*"
)
POLLING = "callers cannot wait in turn, and poll instead"


class Need(NamedTuple):
    """What a refusal means, and what is to be granted."""

    without: str
    grant: str
    level: Level = Level.ADVICE


LOCKS = Need("so it gets no vote", "+set +get +del +eval +evalsha", Level.NO_VOTE)
EXTENDED = Need("leases cannot be extended", "+pexpire")
SEVERAL = Need("acquire_all cannot be used", "+exists")
SLOTS = Need(
    "timeout=0 may not find a free slot of a semaphore",
    "+exists, and the names of its slots",
)
FENCED = Need(
    "fencing=True cannot be used", "+zadd +zscore +pexpire +exists ~fastredlock:fence:*"
)
SHOWN = Need("holders() and `fastredlock who` cannot be used", "+pttl")
TURNS = Need(POLLING, WAITING)
GUARD = Need("max_ttl cannot be used", "+pttl ~fastredlock:*")
KILL = Need(
    "commands that a frozen server executes late live for their ttl",
    "+client|kill",
    Level.NOTE,
)
NEIGHBOURS = Need(
    "processes that died leave a queue at their turn alone", "+pubsub", Level.NOTE
)
LOAD = Need("scripts are sent by their source at first", "+script|load", Level.NOTE)
NAME = Need("it has no name in CLIENT LIST", "+client|setname", Level.NOTE)
HELLO = Need("it is spoken to by RESP2", "+hello", Level.NOTE)
NATIVE = Need(
    "a release costs the server a script", "+command|info +delifeq +delex", Level.NOTE
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


def try_rights(
    connection: Connection,
    report: Report,
    begin: str,
    prefix: str,
    marker: str,
    tag: str,
) -> None:
    """Try all; note each need that is not met, once."""
    key = f"{prefix}{begin}{os.urandom(8).hex()}"
    reply = connection.ask("SET", key, TOKEN, "NX", "PX", TTL_MS)
    if isinstance(reply, hiredis.ReplyError) and _is_of_keys(str(reply)):
        report.add(
            f"its user may not use {key!r} ({reply}): its rights were not tried; "
            "give --key, and how the names of its locks begin"
        )
        return
    if isinstance(reply, hiredis.ReplyError):
        report.add(_text(LOCKS, "SET", str(reply)), LOCKS.level)
        return
    native = _native_trials(connection, key)
    if not _may_release(connection, report, native):
        return
    reported: set[Need] = set()
    for trial in [*_trials(key, prefix, marker, tag), *native]:
        reply = connection.ask(*trial.words)
        if not isinstance(reply, hiredis.ReplyError):
            continue
        if trial.need not in reported:
            reported.add(trial.need)
            report.add(_text(trial.need, trial.name, str(reply)), trial.need.level)
        if trial.need is LOCKS:
            break  # nothing else matters
    for name in (key, f"{key}:2", f"{key}:3"):
        connection.ask("EVAL", scripts.RELEASE, 1, name, TOKEN)
    connection.ask("DEL", f"{prefix}fastredlock:fence:{key}:3")


def _may_release(connection: Connection, report: Report, native: list[Trial]) -> bool:
    """Ask as each connection does; return whether scripts are to be tried."""
    rights = Rights()
    for name, word in (("EVAL", scripts.PROBE), ("EVALSHA", scripts.PROBE_SHA1)):
        rights.on_reply(name, connection.ask(name, word, 0))
    rights.on_reply("SCRIPT LOAD", connection.ask("SCRIPT", "LOAD", scripts.RELEASE))
    is_native = any(trial.name in NATIVE_NAMES for trial in native)
    error, refusal = rights.script_error(), rights.refusal()
    if error is not None and is_native:
        replies = [connection.ask(*trial.words) for trial in native]
        if not any(isinstance(reply, hiredis.ReplyError) for reply in replies):
            report.add(f"runs no scripts ({error}): {NATIVE_ALONE}")
            return False
    if refusal is not None:
        report.add(refusal, Level.NO_VOTE)
        return False
    for text in rights.warnings(is_native):
        report.add(text)
    return "EVAL" not in rights.refused


def try_waiting(connection: Connection, report: Report, prefix: str) -> None:
    """Try to subscribe; from then on the connection is good for nothing else."""
    channel = f"{prefix}fastredlock:waiter:{os.urandom(8).hex()}"
    reply = connection.ask("SUBSCRIBE", channel)
    is_reported = any(POLLING in finding.text for finding in report.findings)
    if isinstance(reply, hiredis.ReplyError) and not is_reported:
        report.add(_text(TURNS, "SUBSCRIBE", str(reply)), TURNS.level)


def _text(need: Need, name: str, error: str) -> str:
    if need is LOCKS and _is_of_keys(error):
        return (
            f"its user may not run {name} with the key of a lock ({error}): "
            "locks stay until their ttl; grant it the key to read, too (~ without %W)"
        )
    if not _is_of_rights(error):
        return f"refuses {name} ({error}): {need.without}"
    return f"its user may not run {name} ({error}): {need.without}; grant {need.grant}"


# In errors of Redis 6.0 and later, and of Valkey; the last two inside of a script.
OF_RIGHTS = ("NOPERM", "ACL failure in script", "user executing the script can't")


def _is_of_rights(error: str) -> bool:
    return any(text in error for text in OF_RIGHTS)


def _is_of_keys(error: str) -> bool:
    return _is_of_rights(error) and " key" in error


def _trials(key: str, prefix: str, marker: str, tag: str) -> list[Trial]:
    second, third, process = f"{key}:2", f"{key}:3", os.urandom(8).hex()
    channel = f"{prefix}fastredlock:waiter:{process}"
    load = "SCRIPT", "LOAD", scripts.EXTEND
    numbering = scripts.with_prefix(scripts.FENCED_ACQUIRE_AGAIN, prefix.encode())
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
        # This one's marker is there, so that it writes nothing.
        script(GUARD, "MARKER", (third, f"{key}:4"), TOKEN, 1000, "any"),
        Trial(GUARD, "GET", ("GET", marker)),
        Trial(GUARD, "PTTL", ("PTTL", f"fastredlock:quarantine{tag}")),
        Trial(NEIGHBOURS, "PUBSUB NUMSUB", ("PUBSUB", "NUMSUB", channel)),
        Trial(KILL, "CLIENT KILL", ("CLIENT", "KILL", "ID", 2**62)),
        Trial(NAME, "CLIENT SETNAME", ("CLIENT", "SETNAME", "fastredlock-check")),
        Trial(HELLO, "HELLO", ("HELLO", 2)),
    ]


def _native_trials(connection: Connection, key: str) -> list[Trial]:
    """Return those of the commands that this server has."""
    info = Trial(NATIVE, "COMMAND INFO", ("COMMAND", "INFO", *NATIVE_NAMES))
    known = connection.ask(*info.words)
    if not isinstance(known, list):
        return [info]
    has_delifeq, has_delex = (bool(each) for each in known)
    found = []
    if has_delifeq:
        found.append(Trial(NATIVE, "DELIFEQ", ("DELIFEQ", key, TOKEN)))
    if has_delex:
        found.append(Trial(NATIVE, "DELEX", ("DELEX", key, "IFEQ", TOKEN)))
    return found
