"""Nodes of a LocalCluster that lose their memory, and join again by another id."""

from __future__ import annotations

from pathlib import Path

from fastredlock.testing import LocalCluster


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
