"""What one failover costs an endpoint, part by part.

    python -m tests.chaos.switch [--max-ttl S] [--max-lag S] [--down-after S]

A service of Sentinel with one and with two replicas, and a cluster, whose primary is
switched by an operator, or killed and left dead. A client locks every 50 ms meanwhile.
Prints, in s: from the failover on until another primary is named; from then on until it
takes writes, for which it needs its replicas; and from then on until the next lock,
which is the quarantine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.testing import LocalCluster, LocalSentinels

MOST = 120.0  # s for a part


def until(is_true: Callable[[], bool]) -> float:
    """Return how long it took (s)."""
    began = time.monotonic()
    while not is_true():
        if time.monotonic() > began + MOST:
            raise RuntimeError(f"not within {MOST:g} s")
        time.sleep(0.05)
    return time.monotonic() - began


def parts(
    setup: LocalSentinels | LocalCluster, locks: FastRedlock, is_killed: bool
) -> list[float]:
    """Fail over once; return the three parts."""

    def primary() -> int:
        with suppress(RuntimeError, OSError):
            if isinstance(setup, LocalSentinels):
                return setup.primary()
            return setup.primary_of(setup.slot_of("switch"))
        return -1

    def is_locked() -> bool:
        with suppress(QuorumUnreachableError):
            lease = locks.acquire("switch", timeout=0)
            return lease is not None and lease.release() is not None
        return False

    def is_new() -> bool:
        is_locked()  # a client that locks all the time
        return primary() not in (old, -1)

    def takes_writes() -> bool:
        is_locked()
        return "+OK" in setup.command(primary(), "SET", "{switch}:probe", "1")

    until(is_locked)
    old = primary()
    if is_killed:
        setup.servers.stop(old)
    elif isinstance(setup, LocalSentinels):
        setup.fail_over()
    else:
        setup.fail_over(setup.slot_of("switch"))
    return [until(is_new), until(takes_writes), until(is_locked)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--max-ttl", type=float, default=10)
    parser.add_argument("--max-lag", type=int, default=2)
    parser.add_argument("--down-after", type=float, default=5)
    given = parser.parse_args()
    lag, after = given.max_lag, given.down_after
    setups: dict[str, Callable[[], LocalSentinels | LocalCluster]] = {
        "1 replica": lambda: LocalSentinels(replicas=1, max_lag=lag, down_after=after),
        "2 replicas": lambda: LocalSentinels(replicas=2, max_lag=lag, down_after=after),
        "a cluster": lambda: LocalCluster(replicas=1, node_timeout=after),
    }
    print("                        named  writes  locked     all")
    for name, make in setups.items():
        for how in ("switched", "killed"):
            if (name, how) == ("1 replica", "killed"):
                continue  # it needs its only replica: nobody locks until it is back
            with (
                make() as setup,
                FastRedlock(
                    [setup.url], max_ttl=given.max_ttl, ttl=given.max_ttl
                ) as locks,
            ):
                took = parts(setup, locks, how == "killed")
            shown = "".join(f"{part:8.1f}" for part in (*took, sum(took)))
            print(f"{name + ', ' + how:21}{shown}", flush=True)


if __name__ == "__main__":
    main()
