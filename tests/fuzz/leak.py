"""Count what a process keeps after many rounds: memory and descriptors.

    python -m tests.fuzz.leak [--rounds 1000000]

A pair is an acquire and a release: two rounds. Every 16th resource is taken already
(roll-back), every 1,000 pairs a connection is cut (reconnect). Exit code 1 if memory
grew by more than 2 MiB after the first tenth, or a descriptor was kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import NamedTuple

import redis

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters

ALLOWED_GROWTH = 2 << 20  # bytes; malloc's own unrest


class Kept(NamedTuple):
    """What the process holds: resident bytes and open descriptors."""

    resident: int
    descriptors: int


def kept() -> Kept:
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    descriptors = len(os.listdir("/proc/self/fd"))
    return Kept(pages * os.sysconf("SC_PAGE_SIZE"), descriptors)


def run_rounds(locks: FastRedlock, server: redis.Redis, rounds: int) -> None:
    for pair in range(rounds // 2):
        if pair % 16 == 0:
            assert locks.acquire("taken", timeout=0) is None
            continue
        lease = locks.acquire(f"r{pair % 100}", timeout=1)
        assert lease is not None
        lease.release()
        if pair % 1000 == 999:
            server.client_kill_filter(_type="normal", skipme=True)


def growth(rounds: int) -> tuple[Kept, Kept]:
    """Return what was kept after a tenth of the rounds, and after all of them."""
    with LocalMasters(3) as masters, FastRedlock(masters.urls) as locks:
        servers = [redis.Redis.from_url(url, protocol=2) for url in masters.urls]
        for server in servers:
            server.set("taken", "somebody")
        run_rounds(locks, servers[0], rounds // 10)
        locks.connect()
        before = kept()
        run_rounds(locks, servers[0], rounds - rounds // 10)
        locks.connect()
        after = kept()
        for server in servers:
            server.close()
    return before, after


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz.leak")
    parser.add_argument("--rounds", type=int, default=1_000_000)
    rounds = parser.parse_args().rounds
    began = time.monotonic()
    before, after = growth(rounds)
    grown = after.resident - before.resident
    print(
        f"{rounds} rounds in {time.monotonic() - began:.0f} s: resident "
        f"{before.resident / 2**20:.2f} -> {after.resident / 2**20:.2f} MiB, "
        f"descriptors {before.descriptors} -> {after.descriptors}"
    )
    return int(grown > ALLOWED_GROWTH or after.descriptors != before.descriptors)


if __name__ == "__main__":
    sys.exit(main())
