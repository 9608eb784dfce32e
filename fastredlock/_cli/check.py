"""`fastredlock check`: would a client of these settings get locks, and keep them?

A client is made that writes no marker and begins no quarantine, for a monitor must not
prolong an outage. What it reports of each master is shown as it is. Beside it each
server is asked, by redis-py, for what a client does not ask: its disk, memory, clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from .._core import Electorate, Lists, ServerInfo, failover_of, has_quorum
from .._options.masters import Endpoint, lists_told
from .._options.settings import TAKES_NO_LOCKS, OnlyLooks, of_even_numbers
from .._reports.health import ping_of
from .._reports.votes import votes_of
from ..errors import QuorumUnreachableError
from . import CommandError, Status
from .connection import (
    MARKERS,
    QUARANTINE,
    Server,
    ServerError,
    need_redis_py,
    shards_of,
)
from .masters import misfits, seen_on
from .parser import MASTERS_END, Parser, duration, given_options, new_locks, number

if TYPE_CHECKING:
    from .. import FastRedlock

DEFAULT_TTL = 10.0  # s; the library's default
PINGS = 5
PING_TIMEOUT = 2.0  # s
OFFSET = 1.0  # s: clocks that are synchronised differ by far less
FULL = 0.9  # of maxmemory
# What is tested: docs/support.md.
OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}
SAME_SERVER = "is the same server as"
# How warnings of a client begin that are about locks which can be lost.
UNSAFE = (
    *("evicts keys", "is a cluster node", "its clock jumped", SAME_SERVER, "has "),
    *("does not tell min-replicas", "does not tell cluster-node-timeout"),
)
_DESCRIPTION = """\
Ask every master, as a client would, whether it can vote, and for what would lose locks:
what it is, what it keeps over a restart, whether it evicts keys, its clock, its delay,
its version. No lock, marker or quarantine is written.
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
    max_ttl = options.get("max_ttl")
    options.setdefault("ttl", min(DEFAULT_TTL, max_ttl or DEFAULT_TTL))
    options["max_ttl"] = TAKES_NO_LOCKS if max_ttl is None else OnlyLooks(max_ttl)
    with new_locks(options) as locks:
        reports = _reports_of(locks, asked.key)
    settings = locks._driver.settings
    endpoints, electorate = settings.endpoints, settings.electorate
    with ThreadPoolExecutor(len(endpoints)) as pool:
        [*pool.map(_look, endpoints, reports, [max_ttl] * len(endpoints))]
    found = _of_number(reports, electorate)
    answering = [
        each
        for each, report in zip(endpoints, reports, strict=True)
        if report.may_vote or report.version
    ]
    own = lists_told(endpoints, electorate, settings.key_prefix, 0, False)
    found += _of_lists(answering, own)
    status = status_of(reports, found, electorate)
    if asked.json:
        masters, findings = ([*map(asdict, each)] for each in (reports, found))
        told = {"status": status, "findings": findings, "masters": masters}
        print(json.dumps(told, indent=2))
    else:
        _print(status, reports, found)
    return Status[status.upper()]


def _print(status: str, reports: list[Report], found: list[Finding]) -> None:
    voting = sum(report.may_vote for report in reports)
    print(f"{status.upper()}: {voting} of {len(reports)} masters can vote")
    for report in reports:
        print(f"  {report}")
    for finding in found:
        print(f"{finding.level}: {finding.text}")
    masters_of: dict[Finding, list[str]] = {}  # many have the same
    for report in reports:
        for finding in report.findings:
            masters_of.setdefault(finding, []).append(report.master)
    for level in Level:  # the worst first
        for finding, names in masters_of.items():
            if finding.level is level:
                is_of_all = len(names) == len(reports) > 1
                which = "all masters" if is_of_all else ", ".join(names)
                print(f"{level}: {which}: {finding.text}")


def _parser() -> Parser:
    parser = Parser("check", _DESCRIPTION, _END)
    parser.add_argument(
        "--key",
        metavar="TEXT",
        help="how a key begins by which each master is asked: give one that the locks "
        "have, to see whether the user may write them",
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
    NOTE = "note"  # of no weight for the exit status


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

    def __str__(self) -> str:
        facts = (
            self.version or "version not known",
            self.role,
            None if self.uptime is None else f"up {duration(self.uptime)}",
            None if self.latency is None else f"{self.latency * 1e3:.2f} ms",
            None if self.findings else "nothing found",
        )
        return f"{self.master}  {', '.join(filter(None, facts))}"


def status_of(
    reports: Sequence[Report], found: Sequence[Finding], electorate: Electorate
) -> str:
    """Return "critical", "warning" or "ok"."""
    each = (finding for report in reports for finding in report.findings)
    levels = {finding.level for finding in (*found, *each)}
    voting = [each.may_vote for each in reports]
    if Level.UNSAFE in levels or not has_quorum(voting, electorate):
        return "critical"
    return "warning" if levels - {Level.NOTE} else "ok"


def _of_number(reports: Sequence[Report], electorate: Electorate) -> list[Finding]:
    texts = [*of_even_numbers(electorate)]
    if len(reports) == 1 and not reports[0].fails_over:
        texts = ["there is one master: where it fails, nobody gets a lock; use 3 or 5"]
    return [Finding(Level.ADVICE, text) for text in texts]


def _of_lists(endpoints: Sequence[Endpoint], own: Lists) -> list[Finding]:
    """Compare the lists of masters that clients have."""
    try:
        need_redis_py()
    except CommandError:  # which is reported of each master
        return []
    clients, failures = seen_on(endpoints, own.keys)
    return [
        *(Finding(Level.ADVICE, text) for text in misfits(clients, own.names)),
        *(
            Finding(
                Level.NOTE, f"{name} does not say which masters clients have: {why}"
            )
            for name, why in failures.items()
        ),
    ]


# ---- as a client


def _reports_of(locks: FastRedlock, key: str | None) -> list[Report]:
    """Ask each master for its vote; blocks for some seconds where one is silent."""
    driver = locks._driver
    with suppress(QuorumUnreachableError):
        locks.connect()
    for _ in range(PINGS):
        round = locks._ping(PING_TIMEOUT, (key or "").encode())
        driver.run(round)
        health = ping_of(driver.engine, round)
        if not all(each.votes for each in health):
            break
    reports = []
    for each, vote in zip(health, votes_of(driver.engine, round), strict=True):
        report = Report(
            each.master, each.votes, each.version, each.role, each.run_id,
            each.uptime, vote.elapsed_ms and vote.elapsed_ms / 1e3,
        )  # fmt: skip
        reports.append(report)
        for text in each.warnings:
            is_unsafe = text.startswith(UNSAFE)
            report.add(text, Level.UNSAFE if is_unsafe else Level.ADVICE)
        error = vote.text if each.votes else each.last_error or "does not answer"
        if error is not None and each.votes and key is None:
            report.add(
                f"its user may not use the key that was tried ({error}): give --key, "
                "and how the names of its locks begin"
            )
        elif error is not None:
            report.may_vote = False
            is_unsafe = error.startswith(SAME_SERVER)
            report.add(error, Level.UNSAFE if is_unsafe else Level.NO_VOTE)
    return reports


# ---- as an operator


def _look(endpoint: Endpoint, report: Report, max_ttl: float | None) -> None:
    """Ask what a client does not, of a cluster each primary."""
    report.fails_over = endpoint.failover_ns != 0 or endpoint.lossless_failover
    if not (report.may_vote or report.version or endpoint.seeds):  # it is away
        return
    try:
        need_redis_py()
        shards = shards_of(endpoint)
        if endpoint.seeds:
            report.role = f"cluster of {len(shards)} primaries"
        for node, tag in shards:
            place = f"{node.name.removeprefix('cluster:')}: " if endpoint.seeds else ""
            with Server(node) as server:
                for level, text in _findings(server, node, tag, report, max_ttl):
                    shown = text if level is Level.NOTE else f"{place}{text}"
                    if Finding(level, shown) not in report.findings:
                        report.add(shown, level)
    except (CommandError, ServerError) as error:
        report.add(f"its disk, memory and clock are not known: {error}")


def _findings(
    server: Server, node: Endpoint, tag: str, report: Report, max_ttl: float | None
) -> Iterator[tuple[Level, str]]:
    info = ServerInfo(_told(server, "INFO"))
    if not info.fields:
        text = "does not tell what it is (INFO), nor what it keeps; grant its user "
        yield Level.ADVICE, f"{text}+info"
    if not info.fields or info.refusal() is not None:  # a client reports it
        return
    name = "Valkey" if "valkey_version" in info.fields else "Redis"
    report.version = f"{name} {info.version}"
    began, now = time.time(), _told(server, "TIME")
    if now is not None:
        ahead = int(now[0]) + int(now[1]) / 1e6 - (began + time.time()) / 2
        report.clock_offset = ahead
    has_max_ttl = bool(max_ttl) or report.fails_over
    for text in (
        *_of_state(info, OLDEST[name], report.clock_offset or 0),
        *_of_memory(server, info, tag, has_max_ttl),
    ):
        yield Level.ADVICE, text
    if tag and _told(server, "ASKING") is None:
        yield Level.ADVICE, "leases whose key has moved are lost: grant +asking"
    if node.failover_ns != 0:
        yield Level.NOTE, _cost_of_failover(server, info, node, max_ttl)


def _told(server: Server, *words: str) -> Any:
    """Return the reply; None where it is refused."""
    try:
        return server.ask(*words)
    except ServerError:
        return None


def _of_state(info: ServerInfo, oldest: Sequence[int], ahead: float) -> Iterator[str]:
    fields, parts = info.fields, (info.version or "").split(".")[:2]
    if [int(part) for part in parts if part.isdecimal()] < [*oldest]:
        yield f"is older than what is tested ({'.'.join(map(str, oldest))})"
    if abs(ahead) > OFFSET:
        yield (
            f"its clock differs from this machine's by {ahead:+.1f} s: it is not "
            "synchronised, and a step that sets it forward frees locks early"
        )
    limit, used = (int(fields.get(name, 0)) for name in ("maxmemory", "used_memory"))
    if used > FULL * limit > 0:
        yield (
            f"has used {used / limit:.0%} of its memory: when it is full, it refuses "
            "locks (OOM)"
        )
    for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if fields.get(name, "ok") != "ok":
            yield (
                f"could not write to its disk ({name}: {fields[name]}): it may refuse "
                "locks (MISCONF)"
            )


def _of_memory(
    server: Server, info: ServerInfo, tag: str, has_max_ttl: bool
) -> Iterator[str]:
    """Say which locks it forgets, and whether it has forgotten some."""
    left_ms = _told(server, "PTTL", QUARANTINE + tag) or 0
    if left_ms > 0:
        yield (
            "was restarted or emptied: clients with a max_ttl ask it for no lock for "
            f"{left_ms / 1e3:.0f} s more"
        )
    replicas = info.fields.get("connected_slaves", "0")
    if replicas != "0" and info.mode != "cluster" and not has_max_ttl:
        yield (
            f"has {replicas} replicas: a failover to one of them forgets the last "
            "locks; let nothing promote them, or set max_ttl in all clients"
        )
    if has_max_ttl or _told(server, "EXISTS", *(name + tag for name in MARKERS)):
        return  # the restart guard replaces the disk
    remedy = "set appendfsync always, or max_ttl in all clients"
    setting = _told(server, "CONFIG", "GET", "appendfsync")
    if info.fields.get("aof_enabled") != "1":
        yield (
            "does not write each lock to a disk (appendonly no), and no client of it "
            f"has a max_ttl: a restart forgets locks that are held; {remedy}"
        )
    elif not setting:
        yield f"does not tell its appendfsync (grant +config|get); {remedy}"
    elif setting[1] != b"always":
        yield (
            f"writes to its disk later (appendfsync {setting[1].decode()}), and no "
            f"client of it has a max_ttl: a crash forgets the last locks; {remedy}"
        )


def _cost_of_failover(
    server: Server, info: ServerInfo, node: Endpoint, max_ttl: float | None
) -> str:
    window_ns = node.failover_ns
    if window_ns < 0:
        in_cluster = info.mode == "cluster"
        name = "cluster-node-timeout" if in_cluster else "min-replicas-*"
        replicas = node.sentinels.replicas if node.sentinels else 0
        window_ns, _ = failover_of(_told(server, "CONFIG", "GET", name), info, replicas)
    window, shown = window_ns / 1e9, f"{max_ttl:g} s" if max_ttl else "max_ttl"
    total = f"{max_ttl + 1 + window:g} s = " if max_ttl else ""
    return (
        "a failover loses all locks: from the first write of the new primary on "
        f"nobody gets one for {total}{shown} + 1 s + {window:g} s (failover window)"
    )
