"""What happens to servers and clients, and when: drawn from a seed before it starts."""

from __future__ import annotations

import random
from typing import NamedTuple

from .clients import TTL

MASTERS = 5
RESTARTED_AFTER = TTL + 0.2  # s; the "delayed restart" of the Redlock page
GUARDED_FOR = TTL + 2.2  # s; until a guard lets a restarted master vote for sure
FROZEN = (0.03, 0.2, 0.7, 1.5, 3.5 * TTL)  # s; up to several ttls
ALL_FROZEN = (0.3, 1.5 * TTL, 2.5 * TTL)
CALM = 2.5  # s; at the end nothing goes wrong any more
BRIEF = ("cut", "flush", "forget")


class Fault(NamedTuple):
    """Do `kind` to a target at `at` s after the start, and undo it after `length` s."""

    at: float
    kind: str
    target: int  # a master, or a client process
    length: float


class Options(NamedTuple):
    """What the run does beyond what Redlock assumes.

    `restarts_at_once`: killed masters are back, empty, before the leases of before have
    ended, and every 6 s three are restarted one after the other. `flushes`: all masters
    lose their keys. The first is what fastredlock's `max_ttl` is for.
    """

    restarts_at_once: bool = False
    flushes: bool = False


def draw_schedule(
    seed: int, seconds: float, options: Options, clients: int = 0
) -> list[Fault]:
    """Return the faults of a run in order; a quorum of the masters is always there."""
    drawn = random.Random(seed)
    free_at = [0.0] * MASTERS
    faults = _rolling_restarts(drawn, seconds) if options.restarts_at_once else []
    all_at = drawn.uniform(4, 8)  # when all are frozen together, again and again
    most = (MASTERS - 1) // 2  # that may be away at a time, but where all are frozen
    at, until = 0.3, seconds - min(CALM, seconds / 5)
    while at < until:
        if at > all_at:
            length = min(drawn.choice(ALL_FROZEN), until - at)
            if max(free_at) <= at:
                faults += [Fault(at, "pause", i, length) for i in range(MASTERS)]
                free_at = [at + length + 1.0] * MASTERS
                all_at = at + drawn.uniform(10, 30)
            else:
                free_at = [max(free_at)] * MASTERS  # wait until all are there
        fault = _draw_fault(drawn, at, options)
        if fault.kind == "pause":
            fault = fault._replace(length=min(fault.length, until - at))
        away = sum(free > at for free in free_at)
        is_brief = fault.kind in BRIEF
        # A kill is left out rather than cut short: back within a ttl, the master would
        # have forgotten leases that are held.
        ends_in_time = at + fault.length <= until
        if free_at[fault.target] <= at and ends_in_time and (is_brief or away < most):
            faults.append(fault)
            busy = GUARDED_FOR if fault.kind == "kill" else fault.length + 0.1
            free_at[fault.target] = at + (0.0 if is_brief else busy)
        at += drawn.uniform(0.02, 0.4)
    return sorted(faults + _of_clients(drawn, until, clients))


def _rolling_restarts(drawn: random.Random, seconds: float) -> list[Fault]:
    """Restart three masters as a hasty operator does: each as soon as one is back."""
    starts = [1.0 + 6 * i for i in range(int((seconds + 3) // 6))]
    return [
        Fault(start + 0.05 * step, "kill", master, 0.01)
        for start in starts
        for step, master in enumerate(drawn.sample(range(MASTERS), 3))
    ]


def _draw_fault(drawn: random.Random, at: float, options: Options) -> Fault:
    kinds = ["pause", "pause", "kill", "cut", "forget"]
    kinds += ["flush", "flush"] if options.flushes else []
    kind, master = drawn.choice(kinds), drawn.randrange(MASTERS)
    if kind == "pause":
        return Fault(at, kind, master, drawn.choice(FROZEN))
    if kind == "kill":
        after = 0.0 if options.restarts_at_once else RESTARTED_AFTER
        return Fault(at, kind, master, after)
    return Fault(at, kind, master, 0.0)


def _of_clients(drawn: random.Random, until: float, clients: int) -> list[Fault]:
    """Kill, stop and end client processes, one every second or so."""
    faults, at = [], 1.0
    while clients and at < until:
        kind = drawn.choice(
            ("client-kill", "client-stop", "client-close", "client-end")
        )
        length = drawn.choice((0.05, 0.5, 1.5, 3.0 * TTL))
        length = min(length, until - at) if kind == "client-stop" else 0.0
        faults.append(Fault(at, kind, drawn.randrange(clients), length))
        at += drawn.uniform(0.5, 3.0)
    return faults
