"""Does a Redis Cluster do more with more shards, and what does an endpoint cost?

Two processes of many tasks take and release free locks of all slots, over clusters of
1, 2 and 3 primaries in alternation. The clients share the machine and are the limit;
the CPU of the busiest primary per pair is what bounds a cluster with more of them (and
falls where that is busy all the time). Where cgroups (version 1) may be made, each
primary is held to a share of a core as well, and is the limit. Then one caller, over an
endpoint and over the plain URL of the same server, in alternation.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any

from bench.harness.jobs import run_job
from bench.harness.machine import machine_line, versions_line
from bench.harness.options import count_of, end_with, new_parser, report_with
from bench.harness.placement import CGROUPS, held_to
from bench.harness.servers import cpu_used, server_version
from bench.report import RATIO, Report, Table, target
from fastredlock import FastRedlock, Retry
from fastredlock.testing import LocalCluster, LocalSentinels

_SHARDS = (1, 2, 3)
_PROCESSES = 2
_LIMITS: dict[str, Any] = {"ttl": 5.0, "max_ttl": 5.0}  # s; new servers vote after that


def main() -> int:
    """Run the bench; return 0."""
    return report_with(_parser(), _measure)


def _measure(options: argparse.Namespace) -> Report:
    with ExitStack() as opened:
        clusters = [opened.enter_context(LocalCluster(primaries=n)) for n in _SHARDS]
        service = opened.enter_context(LocalSentinels())
        for url in (*(each.url for each in clusters), service.url):
            retry = Retry(unreachable_tries=None)
            with FastRedlock([url], retry=retry, **_LIMITS) as locks:
                _pairs(locks, 100)  # of all shards
        tables = [_shards(clusters, options), _lone(clusters[0], service, options)]
        server = server_version(clusters[0].servers.urls[0])
    versions = versions_line(["fastredlock"])
    return Report("shards", tables, machine_line(server), versions)


def _shards(clusters: Sequence[LocalCluster], options: argparse.Namespace) -> Table:
    shares = [1.0, options.share] if os.access(CGROUPS, os.W_OK) else [1.0]
    cases = [(share, cluster) for share in shares for cluster in clusters]
    blocks = []
    for block in range(options.blocks):
        print(f"block {block + 1} of {options.blocks} ...", file=sys.stderr)
        blocks.append([_crowd(cluster, share, options) for share, cluster in cases])
    rows: list[list[float]] = []
    for i, (share, _) in enumerate(cases):
        one = i - i % len(_SHARDS)  # the cluster of one shard, held alike
        figures = [median(run[i][j] for run in blocks) for j in range(4)]
        rate = median(run[i][0] / run[one][0] for run in blocks)
        most = median(run[one][3] / run[i][3] for run in blocks)
        rows.append([share, _SHARDS[i % len(_SHARDS)], *figures, rate, most])
    columns = (
        ("share of a core", ".2f"), ("shards", ""), ("pairs/s", ",.0f"),
        ("clients' CPU µs", ",.1f"), ("servers' CPU µs", ",.1f"),
        ("busiest server's CPU µs", ",.1f"), ("pairs/s / one shard", RATIO),
        ("one shard's CPU / busiest's", RATIO),
    )  # fmt: skip
    goals = [
        target("pairs/s of three shards / one", rows[-1][6], ">=", 2.5),
        target("one shard's CPU / busiest's of three", rows[-1][7], ">=", 2.5),
    ]
    title = f"{_PROCESSES} processes of {options.tasks} tasks over a cluster."
    return Table(columns, rows, title, goals)


def _crowd(
    cluster: LocalCluster, share: float, options: argparse.Namespace
) -> list[float]:
    """Return pairs/s, and the CPU us of clients, servers and the busiest per pair."""
    urls = cluster.servers.urls
    given = {"count": options.tasks, "seconds": options.seconds, **_LIMITS}
    pids = map(cluster.servers.pid, range(len(urls)))
    with held_to(share, pids), ThreadPoolExecutor(_PROCESSES) as pool:
        before = [cpu_used([url]) for url in urls]
        crowds = [[cluster.url]] * _PROCESSES
        runs = [*pool.map(lambda urls: run_job("crowd", urls, **given), crowds)]
        used = [cpu_used([url]) - s for url, s in zip(urls, before, strict=True)]
    each_us = [s * 1e6 / sum(run["pairs"] for run in runs) for s in used]
    rate = sum(run["pairs_per_s"] for run in runs)
    clients_us = sum(run["cpu_us"] for run in runs) / _PROCESSES
    return [rate, clients_us, sum(each_us), max(each_us)]


def _lone(
    cluster: LocalCluster, service: LocalSentinels, options: argparse.Namespace
) -> Table:
    plain = f"redis://:{service.password}@127.0.0.1:{service.servers.ports[0]}"
    rows: list[list[Any]] = []
    goals = []
    for name, url, bare_url in (
        ("redis+sentinel://", service.url, plain),
        ("redis+cluster://, one primary", cluster.url, cluster.servers.urls[0]),
    ):
        with FastRedlock([url], **_LIMITS) as ours, FastRedlock([bare_url]) as bare:
            blocks = [
                [_pairs(locks, options.pairs) for locks in (ours, bare)]
                for _ in range(1 + 4 * options.blocks)
            ][1:]
        for i, what in enumerate((name, "its server's redis://")):
            figures = [median(block[i][j] for block in blocks) for j in (0, 1)]
            ratios = [
                median(each[i][j] / each[1][j] for each in blocks) for j in (0, 1)
            ]
            rows.append([what, *figures, *ratios])
        goals.append(target(f"time over {name} / plain", rows[-2][3], "<=", 1.05))
    columns = (
        ("one caller over", ""), ("µs", ",.1f"), ("CPU µs", ",.1f"),
        ("time / plain", RATIO), ("CPU / plain", RATIO),
    )  # fmt: skip
    return Table(columns, rows, "One caller: a pair over an endpoint.", goals)


def _pairs(locks: FastRedlock, count: int) -> tuple[float, float]:
    """Return the us of a pair, and those of CPU."""
    began_ns, cpu_ns = perf_counter_ns(), process_time_ns()
    for i in range(count):
        locks.acquire(f"shards:{i}", timeout=60).release()  # type: ignore[union-attr]
    took_ns, cpu_ns = perf_counter_ns() - began_ns, process_time_ns() - cpu_ns
    return took_ns / count / 1e3, cpu_ns / count / 1e3


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("shards", __doc__)
    add = parser.add_argument
    add("--blocks", type=count_of, default=5, help="of runs")
    add("--seconds", type=float, default=2.0, help="of each run")
    add("--tasks", type=count_of, default=500, help="of each process")
    add("--pairs", type=count_of, default=2000, help="of one caller in a block")
    add("--share", type=float, default=0.05, help="of a core, for each primary")
    return parser


if __name__ == "__main__":
    end_with(main, "shards")
