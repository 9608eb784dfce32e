"""Readers and writers: many processes read a price list, and few write a new one.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... python price_list.py \\
    read|write FOLDER LAST JOURNAL

The list is two files that belong together. Readers are inside at the same time; a
writer is alone, and those that come behind it wait, so it is never starved. Readers and
writers end when the version LAST is there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from fastredlock import FastRedlock

locks = FastRedlock.from_env(ttl=10)  # at the head of the module: for all functions
FILES = "prices", "stock"


@locks.lock("price-list", shared=True, keep_alive=True)
def read(folder: Path, journal: str) -> int:
    """Return the version; both files have the same one."""
    began_ns = time.monotonic_ns()
    versions = []
    for name in FILES:
        versions.append(int((folder / name).read_text()))
        time.sleep(0.02)
    note(journal, began_ns, "read", *versions)
    return versions[0]


@locks.lock("price-list", keep_alive=True)
def write(folder: Path, journal: str) -> int:
    """Write the next version; nobody sees one file without the other."""
    began_ns = time.monotonic_ns()
    version = int((folder / FILES[0]).read_text()) + 1
    for name in FILES:
        (folder / name).write_text(str(version))
        time.sleep(0.02)
    note(journal, began_ns, "write", version, version)
    return version


def note(journal: str, began_ns: int, what: str, first: int, second: int) -> None:
    with open(journal, "a") as lines:
        times = f"{began_ns} {time.monotonic_ns()}"
        lines.write(f"{times} {os.getpid()} {what} {first} {second}\n")


def main(what: str, folder: str, last: str, journal: str) -> int:
    step = {"read": read, "write": write}[what]
    while step(Path(folder), journal) < int(last):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
