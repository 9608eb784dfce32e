"""A storage that compares numbers, under holders that stand still before they write.

    python -m tests.chaos.storage [--client NAME|all] [--seconds N] [--seed S]

Six processes take one of three resources in turn, on three masters (ttl 1 s) of which
one is paused or comes back empty now and then. Each asks its client whether the lease
still stands, and writes then. Between the question and the write a third of them are
stopped, for up to 2.5 ttls. The storage is SQLite. It notes each write that came after
one of a later holder: that one was overwritten.

With fencing it takes a write only if its number is larger than all it has seen:
`UPDATE ... WHERE fence < ?`, as in docs/fencing.md. Exit code 1 if one got through,
or if nothing was written.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fastredlock import FastRedlock, FastRedlockError
from fastredlock.testing import LocalMasters

from .clients import PEERS, TTL, Held
from .ledger import now_ns

PROCESSES, RESOURCES = 6, 3
STOPPED = 0.33  # the share of holders that stand still before they write
FENCED = "fencing"
CLIENTS = (FENCED, "fastredlock", *PEERS)
SCHEMA = """
create table storage (resource text primary key, fence integer, taken_ns integer);
create table writes (is_taken integer, is_stale integer);
"""
Grant = tuple[int | None, Held]  # its number, if it has one
TryOnce = Callable[[str], "Grant | None"]


class Figures(NamedTuple):
    client: str
    writes: int  # that the storage took
    stale: int  # ...and that overwrote one of a later holder
    refused: int  # by the number
    stale_refused: int  # ...of those, which would have overwritten a later holder's


# --- a process ------------------------------------------------------------------------


def work(client: str, path: str, seed: str, *urls: str) -> None:
    """Take, ask, stand still perhaps, write; until it is killed."""
    draw = random.Random(seed)
    try_once = tries_of(client, list(urls))
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as storage:
        while True:
            resource = f"chaos:{draw.randrange(RESOURCES)}"
            grant = None
            with suppress(FastRedlockError if client not in PEERS else Exception):
                grant = try_once(resource)
            if grant is None:
                time.sleep(draw.uniform(0.001, 0.01))  # before the next try
                continue
            taken_ns, (fence, held) = now_ns(), grant
            time.sleep(draw.uniform(0, TTL / 20))  # the work
            if now_ns() < taken_ns + held.validity * 1e9:
                if draw.random() < STOPPED:
                    os.kill(os.getpid(), signal.SIGSTOP)  # the test lets it go on
                write(storage, resource, fence, taken_ns)
            with suppress(Exception):
                held.release()


def tries_of(client: str, urls: list[str]) -> TryOnce:
    """Return what tries once, by our client or by a peer."""
    if client in PEERS:
        peer = PEERS[client](urls)
        return lambda resource: (held := peer(resource)) and (None, held)
    locks = FastRedlock(urls, ttl=TTL, fencing=client == FENCED)

    def try_once(resource: str) -> Grant | None:
        lease = locks.acquire(resource, timeout=1)
        if lease is None:
            return None
        fence = lease.fence if client == FENCED else None
        return fence, Held(lease.remaining(), lease.release)

    return try_once


def write(
    storage: sqlite3.Connection, resource: str, fence: int | None, taken_ns: int
) -> None:
    """Write as a holder does; note whether a later one had written before."""
    storage.execute("begin immediate")
    storage.execute("insert or ignore into storage values (?, 0, 0)", (resource,))
    (last_ns,) = storage.execute(
        "select taken_ns from storage where resource = ?", (resource,)
    ).fetchone()
    changed = storage.execute(
        "update storage set fence = ?, taken_ns = ? where resource = ? and fence < ?",
        (fence or 0, taken_ns, resource, 1 << 62 if fence is None else fence),
    )
    noted = changed.rowcount, taken_ns < last_ns
    storage.execute("insert into writes values (?, ?)", noted)
    storage.execute("commit")


# --- the run --------------------------------------------------------------------------


def run(client: str, seconds: float, seed: int, enough: int = 0) -> Figures:
    """Let the processes work for so long; return what the storage has seen.

    `enough`: or until so many writes were refused.
    """
    draw, ends = random.Random(seed), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, LocalMasters(3) as masters:
        path = str(Path(folder) / "storage")
        with closing(sqlite3.connect(path)) as storage:
            storage.executescript(SCHEMA)
        workers = [
            started(client, path, f"{seed}/{i}", masters.urls) for i in range(PROCESSES)
        ]
        continued: dict[int, float] = {}
        trouble = Trouble(masters, draw)
        try:
            while time.monotonic() < ends:
                let_go_on(workers, continued, draw)
                trouble.go_on()
                if enough and figures_of(client, path).refused >= enough:
                    break
                time.sleep(0.005)  # between two looks
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        return figures_of(client, path)


def started(
    client: str, path: str, seed: str, urls: list[str]
) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "tests.chaos.storage", "--work", client, path, seed]
    return subprocess.Popen([*argv, *urls], stderr=subprocess.DEVNULL)  # a peer's log


def let_go_on(
    workers: list[subprocess.Popen[bytes]], due: dict[int, float], draw: random.Random
) -> None:
    """Let go on those that have stood still for as long as was drawn."""
    for worker in workers:
        stat = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        if stat[0] != "T":
            continue
        if worker.pid not in due:
            due[worker.pid] = time.monotonic() + draw.uniform(0.2, 2.5) * TTL
        elif time.monotonic() > due[worker.pid]:
            del due[worker.pid]
            worker.send_signal(signal.SIGCONT)


class Trouble:
    """What goes wrong with the masters, one at a time."""

    def __init__(self, masters: LocalMasters, draw: random.Random) -> None:
        self._masters, self._draw = masters, draw
        self._due = time.monotonic() + TTL
        self._heal: Callable[[], None] | None = None

    def go_on(self) -> None:
        """Pause a master, or let it come back empty after a ttl; or heal it."""
        if time.monotonic() < self._due:
            return
        if self._heal is not None:
            self._heal()
            self._heal = None
            self._due = time.monotonic() + self._draw.uniform(0.2, 1)
            return
        index, is_paused = self._draw.randrange(3), self._draw.random() < 0.5
        (self._masters.pause if is_paused else self._masters.stop)(index)
        heal = self._masters.resume if is_paused else self._masters.start
        self._heal = partial(heal, index)
        away = self._draw.uniform(0.05, 0.5) * TTL if is_paused else TTL + 0.2
        self._due = time.monotonic() + away


def figures_of(client: str, path: str) -> Figures:
    with closing(sqlite3.connect(path)) as storage:
        counts = {
            kind: storage.execute(
                "select count(*) from writes where is_taken = ? and is_stale >= ?", kind
            ).fetchone()[0]
            for kind in ((1, 0), (1, 1), (0, 0), (0, 1))
        }
    return Figures(client, *counts.values())


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    parser = argparse.ArgumentParser("python -m tests.chaos.storage")
    parser.add_argument("--client", choices=[*CLIENTS, "all"], default=FENCED)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.seconds:g} s")
    print(
        f"{'client':12} {'writes':>8} {'stale':>6} {'refused':>8} {'of them stale':>14}"
    )
    is_broken = False
    for client in CLIENTS if given.client == "all" else [given.client]:
        told = run(client, given.seconds, given.seed)
        print(
            f"{client:12} {told.writes:8} {told.stale:6} {told.refused:8} "
            f"{told.stale_refused:14}",
            flush=True,
        )
        is_broken |= client == FENCED and (told.stale > 0 or not told.writes)
    return 1 if is_broken else 0


if __name__ == "__main__":
    sys.exit(main())
