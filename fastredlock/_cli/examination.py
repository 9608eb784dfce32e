"""What `fastredlock check` asks one master: INFO, settings, its clock, its delay."""

from __future__ import annotations

import time
from statistics import median
from typing import Any, NamedTuple

import hiredis

from .._core import ServerInfo
from .findings import Level, Report
from .rights import try_rights, try_waiting
from .server import Server, ServerError

PINGS = 5
OFFSET = 1.0  # s: clocks that are synchronised differ by far less
STEP = 0.1  # s, between two looks at its clock
FULL = 0.9  # of maxmemory
# What is tested: docs/support.md.
OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}
MARKER, QUARANTINE = "fastredlock:voter", "fastredlock:quarantine"


class Wanted(NamedTuple):
    """What it is looked at for."""

    ttl: float  # s
    round_timeout: float  # s
    has_max_ttl: bool
    key: str  # how those begin that are tried
    key_prefix: str


def examine(endpoint: Any, wanted: Wanted) -> Report:
    """Ask one master everything; blocks, 2 s for each reply at most."""
    report = Report(endpoint.name)
    try:
        with Server(endpoint) as server:
            clock = _Clock(server, report)
            _look_at_info(server, report, wanted)
            _measure_delay(server, report, wanted)
            if report.may_vote:
                try_rights(server, report, wanted.key, wanted.key_prefix)
            clock.look_again(server)
            if report.may_vote:
                try_waiting(server, report, wanted.key_prefix)
    except ServerError as error:
        report.add(Level.NO_VOTE, str(error))
    return report


# ---- INFO


def _look_at_info(server: Server, report: Report, wanted: Wanted) -> None:
    reply = server.ask("INFO")
    if isinstance(reply, hiredis.ReplyError):
        report.add(
            Level.ADVICE,
            f"does not tell what it is ({reply}): role, run id, persistence and "
            "eviction are not known; grant its user +info",
        )
        return
    known = ServerInfo(reply)
    report.run_id, report.uptime = known.run_id, known.uptime_s
    report.role = known.role or known.mode
    _look_at_version(known, report)
    refusal = known.refusal()
    if refusal is not None:
        report.add(Level.NO_VOTE, refusal)
        return
    for text in known.warnings():
        report.add(Level.UNSAFE, text)
    replicas = known.fields.get("connected_slaves", "0")
    if replicas != "0" and known.mode != "cluster":
        report.add(
            Level.ADVICE,
            f"has {replicas} replicas: a failover to one of them forgets the last "
            "locks; let nothing promote them, or set max_ttl in all clients",
        )
    _look_at_memory(known.fields, report)
    _look_at_persistence(server, known.fields, report, wanted)


def _look_at_version(known: ServerInfo, report: Report) -> None:
    if known.version is None:
        return
    name = "Valkey" if "valkey_version" in known.fields else "Redis"
    report.version = f"{name} {known.version}"
    parts = known.version.split(".")[:2]
    if tuple(int(part) for part in parts if part.isdecimal()) < OLDEST[name]:
        oldest = ".".join(map(str, OLDEST[name]))
        report.add(Level.ADVICE, f"is older than what is tested ({name} {oldest})")


def _look_at_memory(info: dict[str, str], report: Report) -> None:
    limit, used = (int(info.get(name, 0)) for name in ("maxmemory", "used_memory"))
    if used > FULL * limit > 0:
        report.add(
            Level.ADVICE,
            f"has used {used / limit:.0%} of its memory: when it is full, it refuses "
            "locks (OOM)",
        )


def _look_at_persistence(
    server: Server, info: dict[str, str], report: Report, wanted: Wanted
) -> None:
    for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if info.get(name, "ok") != "ok":
            report.add(
                Level.ADVICE,
                f"could not write to its disk ({name}: {info[name]}): it may refuse "
                "locks (MISCONF)",
            )
    left_ms = server.ask("PTTL", QUARANTINE)
    if isinstance(left_ms, int) and left_ms > 0:
        report.add(
            Level.ADVICE,
            f"was restarted or emptied: clients with a max_ttl ask it for no lock for "
            f"{left_ms / 1e3:.0f} s more",
        )
    if wanted.has_max_ttl or server.ask("EXISTS", MARKER) == 1:
        return  # the restart guard replaces the disk
    remedy = "set appendfsync always, or max_ttl in all clients"
    if info.get("aof_enabled") != "1":
        report.add(
            Level.ADVICE,
            "does not write each lock to a disk (appendonly no), and no client of it "
            f"has a max_ttl: a restart forgets locks that are held; {remedy}",
        )
        return
    setting = server.ask("CONFIG", "GET", "appendfsync")
    if not isinstance(setting, list) or len(setting) != 2:
        report.add(Level.NOTE, f"does not tell its appendfsync; {remedy}")
    elif setting[1] != b"always":
        report.add(
            Level.ADVICE,
            f"writes to its disk later (appendfsync {setting[1].decode()}), and no "
            "client of it has a max_ttl: a crash forgets the last locks; " + remedy,
        )


# ---- time


class _Clock:
    """Its wall clock, at the beginning and at the end of the examination."""

    def __init__(self, server: Server, report: Report) -> None:
        self._report = report
        self._first = self._ahead(server)
        if self._first is None:
            return
        offset = report.clock_offset = self._first - (time.time() - time.monotonic())
        if abs(offset) > OFFSET:
            report.add(
                Level.ADVICE,
                f"its clock differs from this machine's by {offset:+.1f} s: it is not "
                "synchronised, and a step that sets it forward frees locks early",
            )

    def _ahead(self, server: Server) -> float | None:
        """Return its wall clock less our monotonic one, which nobody sets."""
        began = time.monotonic()
        reply = server.ask("TIME")
        if not isinstance(reply, list):
            return None
        return int(reply[0]) + int(reply[1]) / 1e6 - (began + time.monotonic()) / 2

    def look_again(self, server: Server) -> None:
        """Note a jump since the first look."""
        second = self._ahead(server)
        if self._first is None or second is None:
            return
        if abs(second - self._first) > STEP:
            self._report.add(
                Level.UNSAFE,
                f"its clock jumped by {second - self._first:+.2f} s in this moment: a "
                "step forward frees locks early",
            )


def _measure_delay(server: Server, report: Report, wanted: Wanted) -> None:
    delays = []
    for _ in range(PINGS):
        began = time.monotonic()
        server.ask("PING")
        delays.append(time.monotonic() - began)
    report.latency = median(delays)
    if report.latency > wanted.round_timeout:
        report.add(
            Level.NO_VOTE,
            f"answers in {report.latency * 1e3:.0f} ms, and a round of a lock with a "
            f"ttl of {wanted.ttl:g} s waits {wanted.round_timeout * 1e3:.0f} ms: give "
            "a larger round_timeout or ttl",
        )
