"""A Redis Cluster whose slots move and whose primaries fail over, under load.

    python -m tests.chaos.cluster [--moves N] [--failovers N] [--pauses N]
                                  [--reuses N] [--amnesias N] [--absences N]
                                  [--ttl S] [--late S] [--seed S]

Four processes lock, half of the resources with numbers (ttl is max_ttl), and now and
then begin anew without a memory. Meanwhile hash slots are moved, some in steps with
pauses, and primaries switched, killed and frozen, some of them cut off from their
replicas before. A pause is that of a server, too short for a failover, or of a client,
longer than its ttl. In an amnesia a server starts anew without its nodes.conf; in a
reuse a primary dies, and its address belongs for a while to a node of another cluster;
in an absence a replica stops, follows another primary, or gets another id.

Exit code 1 if two holders had one resource, if a number did not grow, if a call took
longer than its timeout, if a key is left, or if none was granted within --late s of the
end of a quarantine.
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
SEEDS = 3  # that clients are given: who begins at another cluster can't know that
TIMEOUT, PATIENCE = 0.5, 1.5  # s; of an acquire, and of the machine
RENEWED = 0.03  # the share of attempts before which a new client comes
resumed = [0.0]  # when this process went on after a pause


def name_of(resource: int) -> str:
    return f"chaos:{resource}"


def primaries_of(cluster: LocalCluster) -> set[int]:
    return {cluster.primary_of(slot) for slot in range(0, 16384, 500)} - {-1}


def lose_memory(cluster: LocalCluster, i: int) -> str:
    """Let a server start anew without its nodes.conf; return the id that it had."""
    lost = cluster._ids[i]
    cluster.servers.stop(i)
    (Path(cluster.servers._server(i).folder) / "nodes.conf").unlink()
    cluster.servers.start(i)
    cluster._ids[i] = cluster._text(i, "CLUSTER", "MYID")
    return lost


def join_again(cluster: LocalCluster, i: int, lost: str) -> None:
    """Let a server without slots follow the primary that has the fewest replicas.

    The others forget the id that it had; none of them may still follow that.
    """
    every = range(len(cluster._ids))
    for each in every:
        cluster.command(each, "CLUSTER", "FORGET", lost)
    cluster._meet(i, next(each for each in every if each != i))
    cluster._await(lambda: cluster._know_each_other(len(every)))
    followed = [cluster._line(each, each).split()[3] for each in every]
    names = [cluster._ids[each] for each in sorted(primaries_of(cluster))]
    cluster.command(i, "CLUSTER", "REPLICATE", min(names, key=followed.count))
    cluster.await_ready()


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
    at = cluster.primary_of(slot)
    others = [each for each in primaries_of(cluster) if each != at]
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
    promoted = await_promotion(cluster, slot, old)
    time.sleep(draw.uniform(0, 1))
    if kind == "kill":
        cluster.servers.start(old)
    elif kind == "freeze":
        cluster.servers.resume(old)
        cluster.command(old, "ACL", "SETUSER", "default", "+psync", "+sync")
    cluster.await_ready()
    return promoted


def await_promotion(cluster: LocalCluster, slot: int, old: int) -> float:
    """Wait for another primary of a hash slot; return when it was there."""
    deadline = time.monotonic() + 60
    while cluster.primary_of(slot) in (old, -1):
        if time.monotonic() > deadline:
            raise TimeoutError("no failover")
        time.sleep(0.01)
    return time.monotonic()


def forget(cluster: LocalCluster, draw: random.Random, clients: list[int]) -> float:
    return replace(cluster, draw, draw.randrange(len(cluster.servers.ports)))


def reuse(cluster: LocalCluster, draw: random.Random, clients: list[int]) -> float:
    i = draw.randrange(SEEDS, len(cluster.servers.ports))
    cluster._await(lambda: cluster._has_taken_over(i))
    cluster.await_ready()
    with LocalCluster(primaries=1, node_timeout=NODE_TIMEOUT) as other:
        with FastRedlock([other.url], ttl=1, max_ttl=1) as locks:
            while not has_granted(locks, name_of(0)):  # so that it has a marker
                pass
        return replace(cluster, draw, i, other)


def replace(
    cluster: LocalCluster, draw: random.Random, i: int,
    other: LocalCluster | None = None,
) -> float:  # fmt: skip
    """Put a server of no cluster, or of another one, in the place of one for a while.

    A primary that is back before it was missed is replaced by nobody (its address does
    not count any more, so it does not fail): an operator has to.
    """
    its = [each for each in range(0, 16384, 500) if cluster.primary_of(each) == i]
    promoted = time.monotonic()
    cluster.servers.stop(i)
    if its and draw.random() < 0.5:
        promoted = await_promotion(cluster, its[0], i)
    lost = lose_memory(cluster, i)
    if other is not None:
        port = other.servers.ports[0]
        cluster.command(i, "CLUSTER", "MEET", "127.0.0.1", port)
    time.sleep(draw.uniform(0.5, 6))
    if its and cluster.primary_of(its[0]) < 0:
        every = range(len(cluster._ids))
        heir = next(each for each in every if lost in cluster._line(each, each))
        cluster.command(heir, "CLUSTER", "FAILOVER", "TAKEOVER")
        promoted = await_promotion(cluster, its[0], i)
    time.sleep(draw.uniform(0, 2))
    if other is not None:
        other.command(0, "CLUSTER", "FORGET", cluster._ids[i])
        lose_memory(cluster, i)
    join_again(cluster, i, lost)
    return promoted


def has_granted(locks: FastRedlock, name: str) -> bool:
    with suppress(AcquireError), locks.lock(name, timeout=1):
        return True
    return False


def leave(cluster: LocalCluster, draw: random.Random, clients: list[int]) -> float:
    primaries = primaries_of(cluster)
    i = draw.choice([i for i in range(len(cluster._ids)) if i not in primaries])
    kind = draw.choice(("stops", "follows another", "has another id"))
    followed = cluster._line(i, i).split()[3]
    if kind == "stops":
        cluster.servers.stop(i)
        time.sleep(draw.uniform(1, 3))
        cluster.servers.start(i)
    elif kind == "follows another":
        other = cluster._ids[draw.choice(sorted(primaries))]
        cluster.command(i, "CLUSTER", "REPLICATE", other)
        time.sleep(draw.uniform(1, 3))
        cluster.command(i, "CLUSTER", "REPLICATE", followed)
    else:
        join_again(cluster, i, lose_memory(cluster, i))
    cluster.await_ready()
    return time.monotonic()


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
    events += [pause] * given.pauses + [reuse] * given.reuses
    events += [forget] * given.amnesias + [leave] * given.absences
    draw.shuffle(events)
    backs = []
    own = ["--cluster-migration-barrier", "9"]  # no replica changes by itself
    # One that is cut off may become a primary, however late a busy machine is.
    own += ["--cluster-replica-validity-factor", "0"]
    with LocalCluster(replicas=1, node_timeout=NODE_TIMEOUT, options=own) as cluster:
        workers = []
        url = ",".join(cluster.url.split(",")[:SEEDS])
        for i in range(PROCESSES):
            words = ("--url", url, "--ttl", given.ttl, "--seed", given.seed + i)
            with (folder / f"{i}").open("w") as file:
                argv = [sys.executable, "-m", __spec__.name, *map(str, words)]
                workers.append(subprocess.Popen(argv, stdout=file))
        try:
            wait_for_lease(folder, time.monotonic(), 60)
            for event in events:
                done = event(cluster, draw, [worker.pid for worker in workers])
                if event in (fail_over, reuse, forget):
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
    parser.add_argument("--reuses", type=int, default=1)
    parser.add_argument("--amnesias", type=int, default=1)
    parser.add_argument("--absences", type=int, default=2)
    parser.add_argument("--ttl", type=float, default=1.0)
    parser.add_argument("--late", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.url:
        work(given.url, given.ttl, given.seed)
    names = ("moves", "failovers", "pauses", "reuses", "amnesias", "absences")
    events = ", ".join(f"{getattr(given, name)} {name}" for name in names)
    print(f"seed {given.seed}: {events}", flush=True)
    with TemporaryDirectory() as name:
        backs = run(Path(name), given)
        windows, late = read(Path(name))
    overlaps = len([*violations(each._replace(flags=0) for each in windows)])
    fences = [[each.flags for each in windows if each.resource == resource]
              for resource in range(1, RESOURCES, 2)]  # fmt: skip
    stuck = sum(numbers != sorted(set(numbers)) for numbers in fences)
    print(f"{len(windows)} leases, {overlaps} overlaps, {stuck} numbers that fell")
    print(f"back in {max(backs, default=0):.1f} s at the most; {len(late)} late calls")
    return 1 if overlaps or stuck or late or not windows else 0


if __name__ == "__main__":
    sys.exit(main())
