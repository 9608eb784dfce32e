"""Say on what a figure was measured: one line for the machine, one for the versions."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from bench._peers import FLOOR, distribution_version, version_of


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


def versions_line(contestants: Sequence[str]) -> str:
    """Return the version of every contestant's library, and of what parses for them."""
    found = {name: version_of(name) for name in contestants if name != FLOOR}
    return _versions(found)


def distributions_line(distributions: Sequence[str]) -> str:
    """Return the version of every distribution, and of what parses for them."""
    return _versions({name: distribution_version(name) for name in distributions})


def _versions(found: dict[str, str]) -> str:
    found["hiredis"] = distribution_version("hiredis")
    return ", ".join(f"{name} {version}" for name, version in found.items())


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
