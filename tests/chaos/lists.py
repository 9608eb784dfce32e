"""The list of masters changes under load: by way of both lists, and in wrong ways.

    python -m tests.chaos.lists                     # each way, while masters freeze
    python -m tests.chaos.lists --changes 100       # the right one, and what it costs

Programs contend for a few resources by asyncio. A program changes its list as a restart
does: it makes a new FastRedlock, and closes the old one when its leases are released.
In the ways that are compared one master at a time is frozen, now the second of the old
list and now the first: that is a rolling restart beside a rolling deployment.

    joint    all have both lists, then for a ttl nothing, then the new one
    swap     one program after the other goes from the old list to the new one
    early    half of them have both lists when the first goes to the new one
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from statistics import quantiles
from typing import Any, NamedTuple

from fastredlock import (
    QuorumUnreachableError,
    ReleaseStatus,
    Retry,
    ValidityExhaustedError,
)
from fastredlock.asyncio import FastRedlock, Lease
from fastredlock.testing import LocalMasters

from .ledger import Window, now_ns, violations

TTL = 1.0  # s
FROZEN = 0.15  # s
MASTERS = 5
RESOURCES = 4  # that all contend for
OLD, NEW, ALL_NEW = (0, 1, 2), (0, 1, 3), (2, 3, 4)
SAFE = ("--appendonly", "yes", "--appendfsync", "always")
WAYS = ("joint", "swap", "early")


class Found(NamedTuple):
    """What the programs wrote down."""

    grants: int
    overlaps: int
    lost: int
    before: list[float]  # s, of free locks while the list stood
    during: list[float]  # ...and while it changed
    warned: int  # programs that saw another list


# ---- a program


class Program:
    """One process: its current client, and the tasks that use it."""

    def __init__(self, number: int, tasks: int, hold: float) -> None:
        self.number, self.hold = number, hold
        self.is_changing = self.is_ended = False
        self.locks: FastRedlock | None = None
        self.users: Counter[FastRedlock] = Counter()
        self.windows: list[tuple[int, int, int]] = []
        self.free: dict[bool, list[float]] = {False: [], True: []}
        self.lost = 0
        self.tasks = tasks

    async def change(self, lists: dict[str, Any]) -> None:
        before, locks = self.locks, FastRedlock(
            lists["old"], changing_to=lists["new"], ttl=TTL,
            client_name=f"program-{self.number}", retry=Retry(unreachable_tries=1),
        )  # fmt: skip
        while True:
            with suppress(QuorumUnreachableError):
                await locks.connect()
                break
        self.locks = locks
        while before is not None and self.users[before]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if before is not None:
            await before.close()

    async def use(self, resource: int, work: Callable[..., Any]) -> None:
        while not self.is_ended:
            locks = self.locks
            if locks is None:
                await asyncio.sleep(0.005)
                continue
            self.users[locks] += 1
            try:
                await work(locks, resource)
            except (QuorumUnreachableError, ValidityExhaustedError):
                await asyncio.sleep(0.01)
            finally:
                self.users[locks] -= 1

    async def contend(self, locks: FastRedlock, resource: int) -> None:
        lease = await locks.acquire(f"shared:{resource}", timeout=0.3)
        if lease is None:
            return
        began = now_ns()
        end = began + int(lease.remaining() * 1e9)
        await asyncio.sleep(random.uniform(0, self.hold))
        self.windows.append((resource, began, min(now_ns(), end)))
        await self.release(lease)

    async def measure(self, locks: FastRedlock, resource: int) -> None:
        is_changing, began = self.is_changing, time.perf_counter()
        lease = await locks.acquire(f"free:{self.number}:{resource}", timeout=0)
        if lease is not None:
            self.free[is_changing].append(time.perf_counter() - began)
            await self.release(lease)
        await asyncio.sleep(0.01)

    async def release(self, lease: Lease) -> None:
        is_valid = lease.is_valid
        self.lost += await lease.release() is ReleaseStatus.GONE and is_valid

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        working = [
            asyncio.create_task(self.use(i % RESOURCES, self.contend))
            for i in range(self.tasks)
        ]
        working.append(asyncio.create_task(self.use(0, self.measure)))
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            told = json.loads(line)
            self.is_changing = told.get("is_changing", self.is_changing)
            if "old" in told:
                await self.change(told)
            print(json.dumps("done"), flush=True)
        self.is_ended = True
        await asyncio.gather(*working)
        has_warned = False
        if self.locks is not None:
            has_warned = any(each.warnings for each in self.locks.health())
            await self.locks.close()
        found = self.windows, self.lost, self.free[False], self.free[True], has_warned
        print(json.dumps(found), flush=True)


# ---- all of them


class Fleet:
    """The programs, which are told what to do one by one, or all at once."""

    def __init__(self, count: int, tasks: int, hold: float, urls: list[str]) -> None:
        self._urls = urls
        words = [sys.executable, "-m", __spec__.name, "--program"]
        self.programs = [
            subprocess.Popen(
                [*words, str(i), str(tasks), str(hold)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for i in range(count)
        ]  # fmt: skip

    def tell(self, which: slice = slice(None), **what: Any) -> None:
        for program in self.programs[which]:
            assert program.stdin is not None
            print(json.dumps(what), file=program.stdin, flush=True)
        for program in self.programs[which]:
            assert program.stdout is not None
            assert json.loads(program.stdout.readline()) == "done"

    def give(
        self, old: tuple[int, ...], new: tuple[int, ...] | None = None,
        which: slice = slice(None),
    ) -> None:  # fmt: skip
        lists = ([self._urls[i] for i in each] for each in (old, new or ()))
        first, second = lists
        self.tell(which, old=first, new=second or None)

    def each_gets(self, old: tuple[int, ...], pause: float) -> None:
        for i in range(len(self.programs)):
            self.give(old, which=slice(i, i + 1))
            time.sleep(pause)

    def end(self) -> Found:
        found: list[Any] = []
        for program in self.programs:
            assert program.stdin is not None
            program.stdin.close()
        for program in self.programs:
            assert program.stdout is not None
            found.append(json.loads(program.stdout.readline()))
            program.wait(20)
        all_windows = [
            Window(resource, begin, end, 0)
            for windows, *_ in found
            for resource, begin, end in windows
        ]
        all_windows.sort(key=lambda each: each.begin_ns)
        return Found(
            len(all_windows), len([*violations(all_windows)]),
            sum(its[1] for its in found),
            [each for its in found for each in its[2]],
            [each for its in found for each in its[3]],
            sum(its[4] for its in found),
        )  # fmt: skip

    def kill(self) -> None:
        for program in self.programs:
            with program:  # which closes its pipes
                program.kill()


def go(way: str, masters: LocalMasters, programs: int = 8) -> Found:
    """Change from OLD to NEW in this way, while one master after the other freezes."""
    ended = threading.Event()

    def freeze() -> None:
        while not ended.is_set():
            for i in (1, 0):
                masters.pause(i)
                time.sleep(FROZEN)
                masters.resume(i)
                time.sleep(FROZEN / 5)

    fleet = Fleet(programs, RESOURCES, 2 * FROZEN, list(masters.urls))
    freezing = threading.Thread(target=freeze)
    try:
        fleet.give(OLD)
        freezing.start()
        time.sleep(TTL / 2)
        if way == "joint":
            fleet.give(OLD, NEW)
            time.sleep(TTL)
        elif way == "early":
            fleet.give(OLD, NEW, slice(0, programs // 2))
        fleet.each_gets(NEW, 0.3)
        time.sleep(TTL / 2)
        return fleet.end()
    finally:
        ended.set()
        if freezing.is_alive():
            freezing.join()
        fleet.kill()


def change(count: int, masters: LocalMasters, programs: int) -> Found:
    """Change the list so often under load, there and back, in the right way."""
    fleet = Fleet(programs, 2 * RESOURCES, 0.01, list(masters.urls))
    lists = [OLD, NEW, ALL_NEW, (0, 1, 2, 3, 4)]
    try:
        fleet.give(OLD)
        time.sleep(min(count, 20) * TTL)
        fleet.tell(is_changing=True)
        for i in range(count):
            old, new = lists[i % len(lists)], lists[(i + 1) % len(lists)]
            fleet.give(old, new)
            time.sleep(TTL)
            fleet.give(new)
        return fleet.end()
    finally:
        fleet.kill()


def p99_ms(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[-1] * 1e3 if len(seconds) > 1 else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=0)
    parser.add_argument("--programs", type=int, default=8)
    parser.add_argument("--program", nargs=3, metavar=("NUMBER", "TASKS", "HOLD"))
    asked = parser.parse_args()
    if asked.program:
        number, tasks, hold = asked.program
        asyncio.run(Program(int(number), int(tasks), float(hold)).run())
        return 0
    is_wrong = False
    for way in ("joint",) if asked.changes else WAYS:
        with LocalMasters(MASTERS, options=SAFE) as masters:
            if asked.changes:
                found = change(asked.changes, masters, asked.programs)
            else:
                found = go(way, masters, asked.programs)
        is_wrong |= (found.overlaps > 0) is (way == "joint")
        is_wrong |= (found.warned > 0) is (way == "joint") or found.lost > 0
        print(
            f"{way:6} {found.grants:7} grants, {found.overlaps} overlaps, "
            f"{found.lost} lost, {found.warned} warned; p99 of a free lock "
            f"{p99_ms(found.before):.2f} ms, {p99_ms(found.during):.2f} ms in changes"
        )
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
