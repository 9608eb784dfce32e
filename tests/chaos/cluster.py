"""A Redis Cluster whose slots move and whose primaries fail over, under load.

    python -m tests.chaos.cluster [--moves N] [--failovers N] [--pauses N] [--ttl S]
                                  [--late S] [--seed S]

Four processes lock, half of the resources with numbers (ttl is max_ttl), and now and
then begin anew without a memory. Meanwhile hash slots are moved, some in steps with
pauses, and primaries switched, killed and frozen, some of them cut off from their
replicas before. A pause is that of a server, too short for a failover, or of a client,
longer than its ttl. Exit code 1 if two holders had one
resource, if a number did not grow, if a call took longer than its timeout, if a key is
left, or if none was granted within --late s of the end of a quarantine.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fastredlock import AcquireError, FastRedlock, FastRedlockError
from fastredlock.testing import LocalCluster

from .ledger import Window, violations

NODE_TIMEOUT = 1  # s
RESOURCES, PROCESSES = 6, 4
TIMEOUT, PATIENCE = 0.5, 1.5  # s; of an acquire, and of the machine
RENEWED = 0.03  # the share of attempts before which a new client comes
resumed = [0.0]  # when this process went on after a pause


def name_of(resource: int) -> str:
    return f"chaos:{resource}"


def work(url: str, ttl: float, seed: int) -> None:
    """Lock until the end of the input; write a line for each lease, and each delay."""
    draw = random.Random(seed)
    signal.signal(signal.SIGCONT, lambda *_: resumed.append(time.monotonic()))
    while True:
        with (
            FastRedlock([url], ttl=ttl, max_ttl=ttl) as plain,
            FastRedlock([url], ttl=ttl, max_ttl=ttl, fencing=True) as numbered,
        ):
            while draw.random() > RENEWED:
                resource = draw.randrange(RESOURCES)
                hold(numbered if resource % 2 else plain, resource, ttl, draw)


def hold(locks: FastRedlock, resource: int, ttl: float, draw: random.Random) -> None:
    began = time.monotonic()
    lease = None
    with suppress(AcquireError):
        lease = locks.acquire(name_of(resource), timeout=TIMEOUT)
    took = time.monotonic() - began
    if took > TIMEOUT + PATIENCE and resumed[-1] < began:
        print("late", took, flush=True)
    if lease is None:
        time.sleep(0.01)
        return
    begin = time.monotonic_ns()
    until = begin + int(lease.remaining() * 1e9)
    time.sleep(draw.uniform(0, ttl / 3))
    if draw.random() < 0.5:
        now = time.monotonic_ns()
        with suppress(FastRedlockError):
            lease.extend()
            until = now + int(lease.remaining() * 1e9)
        time.sleep(draw.uniform(0, ttl / 3))
    end = min(time.monotonic_ns(), until)
    fence = lease.fence if resource % 2 else 0
    print("held", resource, begin, end, fence, flush=True)
    with suppress(FastRedlockError):
        lease.release()


def move(cluster: LocalCluster, draw: random.Random, clients: list[int]) -> float:
    slot = cluster.slot_of(name_of(draw.randrange(RESOURCES)))
    primaries = {cluster.primary_of(each) for each in range(0, 16384, 500)} - {-1}
    at = cluster.primary_of(slot)
    others = [each for each in primaries if each != at]
    if at >= 0 and others:
        to = draw.choice(others)
        cluster.begin_move(slot, to)
        time.sleep(draw.choice((0, 0.2)))
        cluster.move_keys(slot, at, to)
        time.sleep(draw.choice((0, 0.2)))
        cluster.move_keys(slot, at, to)
        cluster.end_move(slot, at, to)
    return time.monotonic()


def fail_over(cluster: LocalCluster, draw: random.Random, clients: list[int]) -> float:
    slot = cluster.slot_of(name_of(draw.randrange(RESOURCES)))
    old = cluster.primary_of(slot)
    kind = draw.choice(("switch", "kill", "freeze"))
    is_cut_off = kind != "switch" and draw.random() < 0.5
    if is_cut_off:  # what it grants from now on is lost
        cluster.command(old, "ACL", "SETUSER", "default", "-psync", "-sync")
        cluster.command(old, "CLIENT", "KILL", "TYPE", "replica")
        time.sleep(0.2)
    if kind == "switch":
        cluster.fail_over(slot)
    elif kind == "kill":
        cluster.servers.stop(old)
    else:
        cluster.servers.pause(old)
    deadline = time.monotonic() + 60
    while cluster.primary_of(slot) in (old, -1):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no failover ({kind})")
        time.sleep(0.01)
    promoted = time.monotonic()
    time.sleep(draw.uniform(0, 1))
    if kind == "kill":
        cluster.servers.start(old)
    elif kind == "freeze":
        cluster.servers.resume(old)
        cluster.command(old, "ACL", "SETUSER", "default", "+psync", "+sync")
    cluster.await_ready()
    return promoted


def pause(cluster: LocalCluster, draw: random.Random, clients: list[int]) -> float:
    pid, longest = draw.choice(clients), 4.0
    if draw.random() < 0.5:
        pid = cluster.servers.pid(draw.randrange(len(cluster.servers.ports)))
        longest = 0.9 * NODE_TIMEOUT
    os.kill(pid, signal.SIGSTOP)
    time.sleep(draw.uniform(0.2, longest))
    os.kill(pid, signal.SIGCONT)
    cluster.await_ready()
    return time.monotonic()


def read(folder: Path) -> tuple[list[Window], list[str]]:
    windows, late = [], []
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            kind, *words = line.split()
            if kind == "late":
                late.append(line)
            elif kind == "held" and len(words) == 4:
                resource, begin, end, fence = map(int, words)
                windows.append(Window(resource, begin, end, 0, fence))
    return sorted(windows, key=lambda each: each.begin_ns), late


def wait_for_lease(folder: Path, since: float, seconds: float) -> float:
    """Wait until each resource was granted again; return when (s)."""
    while True:
        windows = [each for each in read(folder)[0] if each.begin_ns > since * 1e9]
        if len({each.resource for each in windows}) == RESOURCES:
            return time.monotonic()
        if time.monotonic() > since + seconds:
            raise TimeoutError("not granted again")
        time.sleep(0.1)


def run(folder: Path, given: argparse.Namespace) -> list[float]:
    """Return how long after each failover all locks were to be had again (s)."""
    draw = random.Random(given.seed)
    quarantine = given.ttl + 1 + NODE_TIMEOUT + 2
    events = [move] * given.moves + [fail_over] * given.failovers
    events += [pause] * given.pauses
    draw.shuffle(events)
    backs = []
    with LocalCluster(replicas=1, node_timeout=NODE_TIMEOUT) as cluster:
        workers = []
        for i in range(PROCESSES):
            words = ("--url", cluster.url, "--ttl", given.ttl, "--seed", given.seed + i)
            with (folder / f"{i}").open("w") as file:
                argv = [sys.executable, "-m", __spec__.name, *map(str, words)]
                workers.append(subprocess.Popen(argv, stdout=file))
        try:
            wait_for_lease(folder, time.monotonic(), 60)
            for event in events:
                done = event(cluster, draw, [worker.pid for worker in workers])
                if event is fail_over:
                    wait = quarantine + given.late
                    backs.append(wait_for_lease(folder, done, wait) - done)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        time.sleep(given.ttl + 0.5)
        left = [
            cluster.command(cluster.primary_of(cluster.slot_of(name)), "EXISTS", name)
            for name in map(name_of, range(RESOURCES))
        ]
        assert left == [":0"] * RESOURCES, left
    return backs


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.chaos.cluster")
    parser.add_argument("--moves", type=int, default=10)
    parser.add_argument("--failovers", type=int, default=2)
    parser.add_argument("--pauses", type=int, default=5)
    parser.add_argument("--ttl", type=float, default=1.0)
    parser.add_argument("--late", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.url:
        work(given.url, given.ttl, given.seed)
    events = f"{given.moves} moves, {given.failovers} failovers, {given.pauses} pauses"
    print(f"seed {given.seed}: {events}")
    with TemporaryDirectory() as name:
        backs = run(Path(name), given)
        windows, late = read(Path(name))
    overlaps = len([*violations(windows)])
    fences = [[each.flags for each in windows if each.resource == resource]
              for resource in range(1, RESOURCES, 2)]  # fmt: skip
    stuck = sum(numbers != sorted(set(numbers)) for numbers in fences)
    print(f"{len(windows)} leases, {overlaps} overlaps, {stuck} numbers that fell")
    print(f"back in {max(backs, default=0):.1f} s at the most; {len(late)} late calls")
    return 1 if overlaps or stuck or late or not windows else 0


if __name__ == "__main__":
    sys.exit(main())
