"""Memory and file descriptors of this process; Linux only."""

from __future__ import annotations

import gc
import os
from pathlib import Path


def resident_bytes() -> int:
    """Return the resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def settled_bytes() -> int:
    """Collect garbage, which is no growth, and return the resident memory."""
    gc.collect()
    return resident_bytes()


def open_fds() -> int:
    """Return the number of open file descriptors."""
    return len(os.listdir("/proc/self/fd"))
