"""What `fastredlock check` has found of one master, and how bad each of it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple


class Level(Enum):
    """How bad a finding is; the value is its word in the report."""

    UNSAFE = "critical"  # locks can be lost
    NO_VOTE = "no vote"  # it takes part in no lock: bad where too few are left
    ADVICE = "warning"
    NOTE = "note"  # without it something is slower; of no weight for the exit status


class Finding(NamedTuple):
    """One of them: a text for people, with its remedy."""

    level: Level
    text: str


class Report:
    """All that is known of one master after it was asked; None: it did not reply."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.findings: list[Finding] = []
        self.version: str | None = None
        self.run_id: str | None = None
        self.role: str | None = None
        self.uptime: int | None = None  # s
        self.latency: float | None = None  # s
        self.clock_offset: float | None = None  # s; its wall clock less ours
        self.is_double = False  # of a master before it in the list

    def add(self, level: Level, text: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(level, text))

    def has(self, *levels: Level) -> bool:
        """Whether there is a finding of one of these levels."""
        return any(finding.level in levels for finding in self.findings)

    @property
    def may_vote(self) -> bool:
        """Whether a client can take locks on it."""
        return not (self.is_double or self.has(Level.NO_VOTE))

    def __str__(self) -> str:
        return f"{self.name}  {', '.join(self._facts())}"

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

    def as_json(self) -> dict[str, Any]:
        """Return it for programs; times in s."""
        return {
            "master": self.name,
            "may_vote": self.may_vote,
            "version": self.version,
            "role": self.role,
            "run_id": self.run_id,
            "uptime": self.uptime,
            "latency": self.latency,
            "clock_offset": self.clock_offset,
            "findings": [as_json(finding) for finding in self.findings],
        }


def as_json(finding: Finding) -> dict[str, str]:
    """Return a finding for programs."""
    return {"level": finding.level.value, "text": finding.text}


def compare(reports: Sequence[Report]) -> list[Finding]:
    """Look at all masters together; report both names of one server."""
    first: dict[str, Report] = {}
    for report in reports:
        if report.run_id is None:
            continue
        other = first.setdefault(report.run_id, report)
        if other is not report:
            report.is_double = True
            text = "is the same server as {}: one server has one vote"
            other.add(Level.UNSAFE, text.format(report.name))
            report.add(Level.UNSAFE, text.format(other.name))
    found: list[Finding] = []
    if len(reports) == 1:
        text = "there is one master: where it fails, nobody gets a lock; use 3 or 5"
        found.append(Finding(Level.ADVICE, text))
    elif len(reports) % 2 == 0:
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
            found.setdefault(finding, []).append(report.name)
    levels = [*Level]
    return dict(sorted(found.items(), key=lambda item: levels.index(item[0].level)))


def status_of(reports: Sequence[Report], found: Sequence[Finding]) -> str:
    """Return "critical", "warning" or "ok"."""
    voting = sum(report.may_vote for report in reports)
    unsafe = any(report.has(Level.UNSAFE) for report in reports)
    if unsafe or voting < len(reports) // 2 + 1:
        return "critical"
    if found or any(report.has(Level.NO_VOTE, Level.ADVICE) for report in reports):
        return "warning"
    return "ok"


def _duration(seconds: int) -> str:
    for name, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {name}"
    return f"{seconds} s"
