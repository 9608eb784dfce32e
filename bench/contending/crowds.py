"""Scenarios of callers that take the lock again and again."""

from __future__ import annotations

from bench.contending import relay
from bench.contending.clients import ASYNCIO
from bench.contending.findings import (
    Finding,
    exclusion,
    fewest_most,
    gap,
    gaps_ms,
    longest_wait,
    middle_of,
    stalls,
)
from bench.contending.scene import Contention, Scene
from bench.contending.turns import percentile

_HOLD = 0.005  # s
_COUNTED_WITH = 8  # processes, with which fifty are compared


def uncontended(scene: Scene) -> list[Finding]:
    """Return the speed and the p50 of one caller, over all windows so far."""
    scene.uncontended()
    return [
        Finding("U, pairs/s", middle_of([each.rate for each in scene.solos]), ",.0f"),
        Finding(
            "p50 of a pair",
            middle_of([each.pair_ms for each in scene.solos]),
            ",.3f",
            " ms",
        ),
    ]


def processes(scene: Scene) -> list[Finding]:
    """Eight processes that hold it for 5 ms."""
    least = relay.gaps_ms(scene.urls, scene.seconds, _HOLD)
    found = scene.contend(processes=8, hold=_HOLD, counted=True)
    least += relay.gaps_ms(scene.urls, scene.seconds, _HOLD)
    return [
        fewest_most(found.runs, 0.9),
        longest_wait(found.runs, 3 * 8 * _HOLD * 1e3),
        gap(found.runs, 50, 2 * found.pair_ms),
        gap(found.runs, 99, 3.0),
        *_beside_the_floor(found, least),
        _commands(found, 2 * len(scene.urls) + 6),
        stalls(found.runs),
        *exclusion(found.runs),
    ]


def many_processes(scene: Scene) -> list[Finding]:
    """Fifty processes that hold it for 5 ms, and their commands beside eight's."""
    few = scene.contend(processes=_COUNTED_WITH, hold=_HOLD, counted=True)
    found = scene.contend(processes=50, hold=_HOLD, longer=3, counted=True)
    both = few.commands and found.commands and found.commands / few.commands
    text = f"commands per grant, over those of {_COUNTED_WITH} processes"
    return [
        fewest_most(found.runs, 0.9),
        longest_wait(found.runs, None),
        _commands(found, None),
        Finding(text, both, bound=1.1),
        stalls(found.runs),
        *exclusion(found.runs),
    ]


def free_processes(scene: Scene) -> list[Finding]:
    """Eight processes that give it back at once."""
    found = scene.contend(processes=8)
    return [
        *_rate(found, 0.4),
        *_rate_beside_the_floor(scene, found),
        fewest_most(found.runs, 0.9),
        longest_wait(found.runs, 20.0),
        stalls(found.runs),
        *exclusion(found.runs),
    ]


def free_tasks_of_processes(scene: Scene) -> list[Finding]:
    """Four processes of 50 tasks that give it back at once."""
    found = scene.contend(ASYNCIO, processes=4, callers=50, longer=2)
    rate = middle_of([run.rate() for run in found.runs]) or 1.0
    return [
        *_rate(found, 0.45),
        _inside(found),
        fewest_most(found.runs, 0.9),
        longest_wait(found.runs, 3 * 200 / rate * 1e3),
        stalls(found.runs),
        *exclusion(found.runs),
    ]


def free_tasks(scene: Scene) -> list[Finding]:
    """A hundred tasks of one loop that give it back at once."""
    found = scene.contend(ASYNCIO, callers=100)
    return [
        *_rate(found, 0.6),
        fewest_most(found.runs, 0.95),
        stalls(found.runs),
        *exclusion(found.runs),
    ]


def few_threads(scene: Scene) -> list[Finding]:
    """Four threads of one process that hold it for 2 ms."""
    return _threads(scene, 4, longer=1)


def many_threads(scene: Scene) -> list[Finding]:
    """Sixty-four threads of one process that hold it for 2 ms."""
    return _threads(scene, 64, longer=3)


def _threads(scene: Scene, count: int, *, longer: int) -> list[Finding]:
    found = scene.contend(callers=count, hold=0.002, longer=longer)
    return [
        fewest_most(found.runs, 0.9),
        stalls(found.runs),
        *exclusion(found.runs),
    ]


def _beside_the_floor(found: Contention, least_ms: list[float]) -> list[Finding]:
    """Return the gaps beside those of two processes with sockets alone."""
    findings = []
    for percent in (50, 99):
        floor = percentile(least_ms, percent)
        ours = percentile(gaps_ms(found.runs), percent)
        text = f"the floor of a gap (a message and a quorum of SETs), p{percent}"
        ratio = ours / floor if ours is not None and floor else None
        findings += [
            Finding(text, floor, ",.2f", " ms"),
            Finding(f"gap p{percent} / floor", ratio),
        ]
    return findings


def _rate_beside_the_floor(scene: Scene, found: Contention) -> list[Finding]:
    """Return how often plain sockets take a lock there and back, and our part of it."""
    floor = len(relay.gaps_ms(scene.urls, scene.seconds, 0.0)) / scene.seconds
    rate = middle_of([run.rate() for run in found.runs])
    return [
        Finding("the floor: a release, a message, a quorum of SETs, /s", floor, ",.0f"),
        Finding("grants/s / floor", rate / floor if rate and floor else None),
    ]


def _rate(found: Contention, bound: float) -> list[Finding]:
    rate = middle_of([run.rate() for run in found.runs])
    ratio = middle_of(found.ratios)
    return [
        Finding("grants/s", rate, ",.0f"),
        Finding("grants/s / U", ratio, sign=">=", bound=bound),
    ]


def _inside(found: Contention) -> Finding:
    """Return the part of the grants that came from the same process."""
    grants = sum(sum(run.grants()) for run in found.runs)
    between = len(gaps_ms(found.runs))
    part = 1 - between / grants if grants else None
    return Finding("handed over inside a process", part, ".0%")


def _commands(found: Contention, bound: float | None) -> Finding:
    return Finding("commands sent per grant", found.commands, ",.1f", bound=bound)
