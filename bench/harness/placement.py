"""Choose the cores of the servers and of the contestants, or a share of a core.

Left alone, the scheduler moves servers about, and where they are at a time changes a
pair by a factor of up to four: more than any client does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = {
    "servers": "servers on one core, the client left to the scheduler",
    "free": "all left to the scheduler",
    "together": "servers and client on one core",
    "apart": "servers on one core, client on another",
}

CGROUPS = Path("/sys/fs/cgroup/cpu")  # of version 1
_PERIOD_US = 20_000  # short: a server that has had its share goes on soon


@contextmanager
def held_to(share: float, pids: Iterable[int]) -> Iterator[None]:
    """Let each process have no more than a share of a core inside; 1: as it is."""
    groups = []
    try:
        for pid in pids if share < 1 else ():
            group = CGROUPS / f"bench-{pid}"
            group.mkdir()
            groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(round(_PERIOD_US * share)))
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            (CGROUPS / "cgroup.procs").write_text(group.name.partition("-")[2])
            group.rmdir()


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Place the servers that run already, and the processes that are started inside."""
    cores = sorted(os.sched_getaffinity(0))
    if place != "free":
        for child in _children():
            os.sched_setaffinity(child, cores[-1:])
    if place in ("together", "apart"):
        os.sched_setaffinity(0, cores[-1:] if place == "together" else cores[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _children() -> list[int]:
    pid = os.getpid()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in children.split()]
