"""Say on what a figure was measured: one line for the machine, one for the versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from bench._peers import FLOOR, version_of

# What decides a contestant's speed without being one.
_UNDERNEATH = ("redis", "hiredis")


def machine_line(server: str) -> str:
    """Return CPU, cores, kernel, Python, server and date, in one line."""
    return ", ".join(
        (
            _cpu_model(),
            f"{os.cpu_count()} cores",
            f"{platform.system()} {platform.release()}",
            f"{platform.python_implementation()} {platform.python_version()}",
            server,
            datetime.date.today().isoformat(),
        )
    )


def versions_line(contestants: Sequence[str]) -> str:
    """Return the version of every contestant's library, and of what is below them."""
    found = {
        "redis-py" if name == "redis" else name: version_of(name) for name in _UNDERNEATH
    }
    found |= {name: version_of(name) for name in contestants if name != FLOOR}
    return ", ".join(f"{name} {version or '?'}" for name, version in found.items())


def is_installed(distribution: str) -> bool:
    """Tell whether a distribution is installed here."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
