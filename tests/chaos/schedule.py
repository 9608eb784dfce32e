"""What happens to the servers, and when: drawn from a seed before anything starts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple

import redis

from fastredlock.testing import LocalMasters

from .clients import TTL

RESTARTED_AFTER = TTL + 0.2  # s; the "delayed restart" of the Redlock page
GUARDED_FOR = TTL + 2.2  # s; until a guard lets a restarted master vote for sure


class Fault(NamedTuple):
    """Do `kind` to a master `at` s after the start, and undo it after `length` s."""

    at: float
    kind: str
    master: int
    length: float


class Options(NamedTuple):
    """What the run does beyond pauses, kills with a delayed restart, and cuts.

    `restarts_at_once`: killed masters are back, empty, before the leases of before have
    ended, and every 6 s three are restarted one after the other. `flushes`: masters
    lose their keys. Both break what Redlock assumes; the first is what fastredlock's
    `max_ttl` is for.
    """

    restarts_at_once: bool = False
    flushes: bool = False


def draw_schedule(seed: int, seconds: float, options: Options) -> list[Fault]:
    """Return the faults of a run in order; at most two masters are away at a time."""
    drawn = random.Random(seed)
    free_at = [0.0] * 5
    faults = _rolling_restarts(drawn, seconds) if options.restarts_at_once else []
    at = 0.3
    while at < seconds - 0.3:
        fault = _draw_fault(drawn, at, options)
        away = sum(until > at for until in free_at)
        is_brief = fault.kind in ("cut", "flush")
        if free_at[fault.master] <= at and (is_brief or away < 2):
            faults.append(fault)
            busy = GUARDED_FOR if fault.kind == "kill" else fault.length + 0.1
            free_at[fault.master] = at + (0.0 if is_brief else busy)
        at += drawn.uniform(0.02, 0.4)
    return sorted(faults)


def _rolling_restarts(drawn: random.Random, seconds: float) -> list[Fault]:
    """Restart three masters as a hasty operator does: each as soon as one is back."""
    starts = [1.0 + 6 * i for i in range(int((seconds + 3) // 6))]
    return [
        Fault(start + 0.05 * step, "kill", master, 0.01)
        for start in starts
        for step, master in enumerate(drawn.sample(range(5), 3))
    ]


def _draw_fault(drawn: random.Random, at: float, options: Options) -> Fault:
    kinds = ["pause", "pause", "kill", "cut", *(["flush"] if options.flushes else [])]
    kind, master = drawn.choice(kinds), drawn.randrange(5)
    if kind == "pause":
        return Fault(at, kind, master, drawn.choice([0.03, 0.2, 0.7, 1.5]))
    if kind == "kill":
        after = 0.0 if options.restarts_at_once else RESTARTED_AFTER
        return Fault(at, kind, master, after)
    return Fault(at, kind, master, 0.0)


def carry_out(masters: LocalMasters, faults: list[Fault]) -> None:
    """Block until the last fault is undone."""
    undo = {"pause": masters.resume, "kill": masters.start}
    steps: list[tuple[float, int, Callable[[], object]]] = []
    with ExitStack() as opened:
        servers = [
            opened.enter_context(redis.Redis.from_url(url, protocol=2))
            for url in masters.urls
        ]
        do = {
            "pause": masters.pause,
            "kill": masters.stop,
            "cut": lambda i: servers[i].client_kill_filter(_type="normal", skipme=True),
            "flush": lambda i: servers[i].flushall(),
        }
        for number, (at, kind, i, length) in enumerate(faults):
            steps.append((at, 2 * number, lambda k=kind, i=i: do[k](i)))
            if kind in undo:
                steps.append(
                    (at + length, 2 * number + 1, lambda k=kind, i=i: undo[k](i))
                )
        began = time.monotonic()
        for at, _, step in sorted(steps, key=lambda each: each[:2]):
            time.sleep(max(0.0, began + at - time.monotonic()))
            with suppress(redis.ConnectionError):
                step()
