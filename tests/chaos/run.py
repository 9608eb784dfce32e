"""One run: five real masters, a schedule, processes that contend, and the count."""

from __future__ import annotations

import ast
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fastredlock.testing import LocalMasters

from .clients import TTL
from .habits import SLOTS
from .ledger import (
    READS,
    RESOURCES,
    SPOILED,
    UPDATED,
    Ledger,
    Window,
    violations,
    windows_in,
)
from .population import Population
from .schedule import MASTERS, Fault, Options, draw_schedule
from .servers import Servers, Standing, is_overlong

START_TIME = 1.5  # s; what the processes get to import their client
BOUND = 1.0  # s; beside a ttl: from then on no key has an excuse
PLACES = 4
NOTED = ("stall", "late", "error", "left")


# What is counted. Keys that are left: of processes that had ended in good order, on
# healthy masters; orphans: a ttl and BOUND after the last client was gone; overlong:
# that stand for longer than a ttl. Blocked: tries of a resource of one's own that
# another key prevented. Losses are of leases that are kept; late of these, told after
# the end of the validity. Spoiled: resources whose number is not judged (see Hold.end).
# Handed on and lingered: without a round, in processes that ended in good order.
# Reads: windows of readers.
COLUMNS = (
    *("violations", "lost_updates", "left", "orphans", "overlong", "blocked"),
    *("stalls", "errors", "hung", "faults", "processes", "losses", "late", "spoiled"),
    *("handed_on", "lingered", "reads"),
)
BREAKING = ("violations", "lost_updates", "orphans", "overlong", "hung")


class Figures(NamedTuple):
    """What a run came to; `counts` by COLUMNS."""

    client: str
    leases_per_second: float
    counts: dict[str, int]
    notes: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """Whether a promise was broken."""
        return any(self.counts[name] for name in BREAKING)


class Run:
    """Carry the schedule out, and look at what is left behind meanwhile."""

    def __init__(self, servers: Servers, population: Population, folder: Path) -> None:
        self._servers = servers
        self._population = population
        self._folder = folder
        self.left: list[Standing] = []
        self.overlong = 0
        self._killed_at = [0.0] * MASTERS

    def carry_out(self, faults: list[Fault], seconds: float) -> None:
        """Block until the time is over."""
        steps: list[tuple[float, int, Callable[[], None]]] = []
        for number, fault in enumerate(faults):
            steps.append((fault.at, 2 * number, lambda f=fault: self._strike(f)))
            if fault.kind in ("pause", "kill", "client-stop"):
                end = fault.at + fault.length
                steps.append((end, 2 * number + 1, lambda f=fault: self._heal(f)))
        began = time.monotonic()
        for at, _, step in sorted(steps, key=lambda each: each[:2]):
            self._wait_until(began + at)
            step()
        self._wait_until(began + seconds)

    def finish(self) -> int:
        """End all clients in good order; return how many keys outlive their bound."""
        self._population.end_all()
        while self._population.is_leaving():
            self._wait_until(time.monotonic() + 0.1)
        self._wait_until(time.monotonic() + TTL + BOUND)
        return len(self._servers.keys(self._servers.undisturbed()))

    def _wait_until(self, when: float) -> None:
        while True:
            for generation in self._population.gone():
                self._look_after(generation)
            left = when - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.05))  # between two looks

    def _look_after(self, generation: int) -> None:
        # It has closed and exited: what it had is released, what it undid is gone.
        held = {text for kind, text in reports_of(self._folder, generation)
                if kind == "held"}  # fmt: skip
        standing = self._servers.keys(self._servers.undisturbed())
        self.overlong += sum(map(is_overlong, standing))
        self.left += [
            each
            for each in standing
            if each.token.endswith(b"@g%d" % generation)
            and each.token.decode() not in held
        ]

    def _strike(self, fault: Fault) -> None:
        if fault.kind == "client-kill":
            self._population.kill(fault.target)
        elif fault.kind == "client-stop":
            self._population.stop(fault.target)
        elif fault.kind.startswith("client-"):
            self._population.end(fault.target, fault.kind == "client-close")
        else:
            self._servers.strike(fault)
            if fault.kind == "kill":
                self._killed_at[fault.target] = time.monotonic()

    def _heal(self, fault: Fault) -> None:
        if fault.kind == "client-stop":
            self._population.go_on(fault.target)
            return
        if fault.kind == "kill":  # on a busy machine it was killed late
            self._wait_until(self._killed_at[fault.target] + fault.length)
        self._servers.heal(fault)


def run(
    client: str,
    seconds: float,
    seed: int,
    options: Options = Options(),  # noqa: B008 - frozen
    places: int = PLACES,
) -> Figures:
    """Let the processes contend for so long; return what the checker found."""
    faults = draw_schedule(seed, seconds, options, places)
    with TemporaryDirectory(prefix="chaos-") as name, LocalMasters(5) as masters:
        folder, servers = Path(name), Servers(masters)
        population = Population(
            client, masters.urls, folder, seed, options.restarts_at_once, places
        )
        try:
            time.sleep(START_TIME)  # they begin as they come
            going_on = Run(servers, population, folder)
            going_on.carry_out(faults, seconds)
            orphans = going_on.finish()
        finally:
            population.close()
            servers.close()
        return count(
            client, seconds, folder, len(faults), population, going_on, orphans
        )


def count(
    client: str, seconds: float, folder: Path, faults: int, population: Population,
    going_on: Run, orphans: int,
) -> Figures:  # fmt: skip
    updates: Counter[int] = Counter()
    spoiled: set[int] = set()
    leases = reads = 0
    # A peer has no clock to tell its caller.
    stops = {} if client == "fastredlock" else population.stopped

    def counted() -> Iterator[Window]:
        nonlocal leases, reads
        for window in windows_in(folder):
            leases += 1
            reads += bool(window.flags & READS)
            updates[window.resource] += bool(window.flags & UPDATED)
            if window.flags & SPOILED:
                spoiled.add(window.resource)
            stopped = stops.get(window.generation, ())
            if not is_stopped(window.begin_ns, window.end_ns, stopped):
                yield window

    overlaps = [f"{first}, then {second}" for first, second in violations(counted())]
    ledger = Ledger(folder, 0)
    said: defaultdict[str, list[str]] = defaultdict(list)
    for generation in range(1, population.generations + 1):
        for kind, text in reports_of(folder, generation):
            if kind in ("stall", "late"):
                began_ns, ended_ns = map(int, text.split()[:2])
                if is_stopped(began_ns, ended_ns, population.stopped[generation]):
                    continue
            said[kind].append(text)
    said["error"] += population.crashes
    said["left"] = [str(each) for each in going_on.left]
    told = [f"{kind}: {text}" for kind in NOTED for text in said[kind]]
    lost_updates = sum(
        max(0, updates[resource] - ledger.read(resource))
        for resource in range(RESOURCES + SLOTS)
        if resource not in spoiled
    )
    counts = (
        *(len(overlaps), lost_updates, len(going_on.left), orphans, going_on.overlong),
        *(len(said[kind]) for kind in ("blocked", "stall", "error")),
        *(population.hung, faults, population.generations),
        *(len(said["lost"]), len(said["late"]), len(spoiled)),
        *(sum(map(int, said[kind])) for kind in ("handed_on", "lingered")),
        reads,
    )
    notes = tuple([*overlaps, *told][:100])
    return Figures(
        client, leases / seconds, dict(zip(COLUMNS, counts, strict=True)), notes
    )


def is_stopped(
    began_ns: int, ended_ns: int, stopped: Iterable[tuple[int, int]]
) -> bool:
    """Whether we had stopped its process meanwhile."""
    return any(begin < ended_ns and began_ns < end for begin, end in stopped)


def reports_of(folder: Path, generation: int) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of all that a process said."""
    path = folder / f"report{generation}"
    if path.exists():
        for line in path.read_text().splitlines():
            kind, _, text = line.partition(" ")
            yield kind, ast.literal_eval(text)
