"""`fastredlock check`: what would lose locks, asked of every master."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .examination import Wanted, examine
from .findings import Finding, Report, as_json, by_finding, compare, status_of
from .setup import MASTERS_END, Parser, given_options, new_locks, number
from .status import Status

KEY = "fastredlock:check:"
STATUSES = {"ok": Status.OK, "warning": Status.WARNING, "critical": Status.CRITICAL}
TTL = 10.0  # s; the library's default
SHARE = 20  # of the ttl: the default round_timeout, docs/options.md
LEAST_TIMEOUT, MOST_TIMEOUT = 0.005, 1.0  # s

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
    """Run `fastredlock check` with these arguments; return the exit status."""
    parser = _parser()
    asked = parser.parse_args(words)
    options = given_options(asked)
    if asked.ttl is not None:
        options["ttl"] = asked.ttl
    options.setdefault("ttl", min(TTL, options.get("max_ttl", TTL)))
    new_locks(options).close()  # wrong options are refused before any I/O
    reports = _reports(options, asked.key)
    found = compare(reports)
    status = status_of(reports, found)
    if asked.json:
        _print_json(status, reports, found)
    else:
        _print(status, reports, found)
    return STATUSES[status]


def _reports(options: dict[str, Any], key: str) -> list[Report]:
    from .._options.masters import parse_masters

    ttl = options["ttl"]
    share = min(max(ttl / SHARE, LEAST_TIMEOUT), MOST_TIMEOUT)
    timeout, has_max_ttl = options.get("round_timeout") or share, "max_ttl" in options
    key_prefix = str(options.get("key_prefix", ""))
    wanted = Wanted(ttl, timeout, has_max_ttl, key, key_prefix)
    endpoints = parse_masters(options["masters"])
    with ThreadPoolExecutor(len(endpoints)) as pool:
        return [*pool.map(lambda endpoint: examine(endpoint, wanted), endpoints)]


def _print(status: str, reports: list[Report], found: list[Finding]) -> None:
    voting = sum(report.may_vote for report in reports)
    print(f"{status.upper()}: {voting} of {len(reports)} masters can vote")
    for report in reports:
        print(f"  {report}")
    for finding in found:
        print(f"{finding.level.value}: {finding.text}")
    for finding, names in by_finding(reports).items():
        which = "all masters" if len(names) == len(reports) > 1 else ", ".join(names)
        print(f"{finding.level.value}: {which}: {finding.text}")


def _print_json(status: str, reports: list[Report], found: list[Finding]) -> None:
    import json

    document = {
        "status": status,
        "findings": [as_json(finding) for finding in found],
        "masters": [report.as_json() for report in reports],
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
        type=number(float, 0.003),
        metavar="S",
        help="of the locks that are used here: masters have to answer within 5 %% of "
        "it (default: 10)",
    )
    parser.add_json()
    parser.add_masters()
    return parser
