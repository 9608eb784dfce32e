"""Choose the cores of the servers and of the contestants.

Left alone, the scheduler moves servers about, and where they are at a time changes a
pair by a factor of up to four: more than any client does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = {
    "servers": "servers on one core, the client left to the scheduler",
    "free": "all left to the scheduler",
    "together": "servers and client on one core",
    "apart": "servers on one core, client on another",
}


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
