"""How does a contended lock change hands?

Processes, threads and tasks that all want one lock: who gets it, how long the others
wait, how long it lies free in between, and what that costs the masters; beside one
caller of a free lock in the same run, and beside other libraries. Exit status 1 if two
callers ever held it at once, or an update under the lock was lost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from bench.contending import crowds, waiters
from bench.contending.clients import LIBRARIES
from bench.contending.findings import Finding, table_of
from bench.contending.libraries import libraries
from bench.contending.scene import Scene
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import (
    add_blocks,
    count_of,
    end_with,
    names_of,
    new_parser,
    report_with,
)
from bench.harness.servers import local_masters, server_version
from bench.report import Failure, Report, Table

_LIBRARIES = "libraries"
_UNCONTENDED = "uncontended"
Scenario = Callable[[Scene], list[Finding]]
# by title, by name, in words; the uncontended caller is measured beside each of them
_GROUPS: dict[str, dict[str, tuple[str, Scenario]]] = {
    "Processes that take it again at once.": {
        "processes": ("8 processes, 5 ms hold", crowds.processes),
        "processes-50": ("50 processes, 5 ms hold", crowds.many_processes),
        "processes-free": ("8 processes, no hold", crowds.free_processes),
        "tasks-4x50": (
            "4 processes x 50 tasks, no hold",
            crowds.free_tasks_of_processes,
        ),
    },
    "Threads and tasks of one process.": {
        "threads-4": ("4 threads, 2 ms hold", crowds.few_threads),
        "threads-64": ("64 threads, 2 ms hold", crowds.many_threads),
        "tasks-100": ("100 tasks, no hold", crowds.free_tasks),
        "herd": ("100 tasks, 5 ms hold once each", waiters.herd),
    },
    "Callers that wait.": {
        "standby": ("one standby, 1 s hold", waiters.standby),
        "killed": ("holder killed", waiters.killed),
        "waiting": ("100 tasks wait for a held lock", waiters.waiting),
    },
    "One caller of a free lock.": {
        _UNCONTENDED: ("uncontended", crowds.uncontended),
    },
}
_TRIES = 3  # of a scenario: on a busy machine a process may be late
_NAMES = [_LIBRARIES, *(name for group in _GROUPS.values() for name in group)]


def main() -> int:
    """Run the bench; return 1 if exclusion was broken, else 0."""
    parser = new_parser("contend", __doc__)
    add_blocks(parser, blocks=3, seconds=2.0)
    add = parser.add_argument
    add("--repeats", type=count_of, default=5, help="of a standby's wait")
    add("--n", type=count_of, default=5, help="masters")
    text = f"some of {', '.join(_NAMES)}; None: all"
    add("--only", type=names_of(_NAMES), metavar="NAME,NAME", help=text)
    measured: list[Report] = []

    def measure(options: argparse.Namespace) -> Report:
        measured.append(_measure(options))
        return measured[-1]

    status = report_with(parser, measure, has_plot=True)
    return 1 if any(map(is_broken, measured)) else status


def is_broken(report: Report) -> bool:
    """Return whether two callers held the lock at once, or an update was lost."""
    never = ("overlapping holders", "overlaps", "lost updates")
    records = [record for table in report.tables for record in table.records()]
    return any(
        record["value"] for record in records if record.get("figure") in never
    ) or any(record.get(heading) for record in records for heading in never)


def _measure(options: argparse.Namespace) -> Report:
    names = options.only or _NAMES
    tables: list[Table] = []
    with local_masters(options.n) as urls:
        machine = machine_line(server_version(urls[0]))
        scene = Scene(
            urls,
            seconds=options.seconds,
            blocks=options.blocks,
            repeats=options.repeats,
        )
        with closing(scene):
            if _LIBRARIES in names:
                tables += _libraries(scene)
            for title, group in _GROUPS.items():
                found = [
                    (words, _run(name, scenario, scene))
                    for name, (words, scenario) in group.items()
                    if name in names
                ]
                if found:
                    tables.append(table_of(title, found))
    return Report(
        name="contend",
        tables=tables,
        machine=machine,
        versions=versions_line(sorted(_distributions())),
        method=_method(options),
        notes=scene.notes,
        caption="the gap between two holders, and the grants of each process",
    )


def _libraries(scene: Scene) -> Sequence[Table]:
    table: list[Table] = []

    def scenario(scene: Scene) -> list[Finding]:
        rows, findings = libraries(scene)
        table.append(rows)
        return findings

    findings = _run(_LIBRARIES, scenario, scene)
    beside = table_of("", [("8 processes, 5 ms hold", findings)])
    return [*table, beside] if table else []


def _run(name: str, scenario: Scenario, scene: Scene) -> list[Finding]:
    """Run a scenario, again if it fails; then the others go on."""
    for _ in range(_TRIES):
        known = len(scene.notes)
        findings = _run_once(name, scenario, scene)
        if len(scene.notes) == known:
            return findings
    if name != _LIBRARIES:  # of others: one may fail
        scene.notes[-1] = Failure(scene.notes[-1])
    return findings


def _run_once(name: str, scenario: Scenario, scene: Scene) -> list[Finding]:
    print(f"{name} ...", file=sys.stderr, flush=True)
    known = len(scene.notes)
    findings: list[Finding] = []
    try:
        findings = scenario(scene)
    except (RuntimeError, OSError) as error:
        scene.notes.append(f"it did not run: {error}")
    scene.notes[known:] = [f"{name}: {note}." for note in scene.notes[known:]]
    return findings


def _distributions() -> set[str]:
    return {each.distribution for each in LIBRARIES.values() if each.missing() is None}


def _method(options: argparse.Namespace) -> list[str]:
    return [
        f"N = {options.n}; {options.blocks} windows of {options.seconds:g} s "
        "each (longer where there are many callers), after a common start and a part "
        "that does not count; ratios to U, fewest / most and speeds are those of the "
        "middle window, gaps and waits of all windows together.",
        "Commands are those that clients sent, as MONITOR shows them, in a window of "
        "their own; commands that a script runs do not count.",
    ]


if __name__ == "__main__":
    end_with(main, "contend")
