"""Where a figure was measured: the machine, and the versions of the libraries."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path


def machine_line(server: str) -> str:
    """Return CPU, cores, kernel, Python, server and date, in one line."""
    return ", ".join(
        (
            _cpu_model(),
            _cores(),
            f"{platform.system()} {platform.release()}",
            f"{platform.python_implementation()} {platform.python_version()}",
            server,
            datetime.date.today().isoformat(),
        )
    )


def versions_line(distributions: Sequence[str]) -> str:
    """Return the version of every distribution, and of the parser that they use."""
    return ", ".join(f"{name} {_version(name)}" for name in (*distributions, "hiredis"))


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(source tree)"


def _cores() -> str:
    """Return the number of cores, and how many of them we may use when not all."""
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else total
    return f"{total} cores" if usable == total else f"{usable} of {total} cores"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
