"""Readers beside clients that know nothing of them: does anybody write meanwhile?

    python -m tests.chaos.fleet [--seconds N] [--older FOLDER]

Each member is a process of two threads that want one lock again and again: readers and
a writer of this version, redlock-py, on one master redis-py's Lock, and a version from
before shared locks, which `pip install --target FOLDER` has installed. Nothing fails.
Exit code 1 if two held it at once, but for two readers, or a member never had it.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import uniform
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from .clients import PEERS, TTL, Held, Try
from .ledger import READS, Hold, Ledger, violations, windows_in

ROOT = Path(__file__).parents[2]
RESOURCE = "fleet"
THREADS = 2
LONGEST = 60.0  # s; for which those that never had it are waited for


class Figures(NamedTuple):
    """What a run came to."""

    overlaps: int
    together: int  # readers that began beside another
    holds: dict[str, int]  # by member
    errors: list[str]


def ours(urls: list[str], shared: bool) -> Try:
    """Return one try of this version, or of an older one."""
    from fastredlock import FastRedlock

    locks = FastRedlock(urls, ttl=TTL)
    options: Any = {"shared": True} if shared else {}

    def try_once(resource: str) -> Held | None:
        lease = locks.acquire(resource, timeout=2, **options)
        return None if lease is None else Held(lease.remaining(), lease.release)

    return try_once


def live(kind: str, folder: Path, generation: int, urls: list[str]) -> None:
    """Take it and give it back until the process is killed."""
    logging.disable()  # redlock-py's, whose release after a lost try is refused
    makes: dict[str, Callable[[list[str]], Try]] = {
        **PEERS,
        "reader": partial(ours, shared=True),
    }
    ledger = Ledger(folder, generation)
    try_once = makes.get(kind, partial(ours, shared=False))(urls)

    def go_on() -> None:
        while True:
            held = None
            try:
                held = try_once(RESOURCE)
            except Exception as error:
                with (folder / "errors").open("a") as file:
                    file.write(f"{kind}: {type(error).__name__}: {error}\n")
            if held is None:
                time.sleep(uniform(0.001, 0.01))
                continue
            told = partial(float, held.validity)
            hold = Hold(ledger, (0,), told, reads=kind == "reader")
            time.sleep(uniform(0.001, 0.006))
            hold.end()
            with suppress(Exception):  # redis-py complains of a lock that has gone
                held.release()
            time.sleep(0 if kind == "reader" else uniform(0, 0.02))

    threads = [threading.Thread(target=go_on) for _ in range(THREADS)]
    for thread in threads:
        thread.start()


def run(urls: list[str], seconds: float, older: str = "") -> Figures:
    """Let all of them want it for so long, and until each has had it."""
    kinds = ["reader", "reader", "writer", "redlock-py"]
    kinds += ["redis-py"] * (len(urls) == 1) + ["older"] * bool(older)
    with TemporaryDirectory(prefix="fleet-") as name:
        folder = Path(name)
        members = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", __spec__.name, "--member", kind),
                    *("--folder", name, "--generation", str(generation)),
                    *("--older", older if kind == "older" else "", *urls),
                ],
                cwd=ROOT,
            )
            for generation, kind in enumerate(kinds)
        ]
        try:
            began = time.monotonic()
            time.sleep(seconds)
            while time.monotonic() < began + seconds + LONGEST:
                if len({each.generation for each in windows_in(folder)}) == len(kinds):
                    break
                time.sleep(0.2)
        finally:
            for member in members:
                member.kill()
                member.wait()
        windows = list(windows_in(folder))
        had = Counter(window.generation for window in windows)
        errors = folder / "errors"
        return Figures(
            len(list(violations(windows))),
            beside_readers(windows),
            {f"{kind} {i}": had[i] for i, kind in enumerate(kinds)},
            errors.read_text().splitlines() if errors.exists() else [],
        )


def beside_readers(windows: list[Any]) -> int:
    """Count the readers that began beside another one."""
    reads = [window for window in windows if window.flags & READS]
    plain = (window._replace(flags=0) for window in reads)
    return sum(1 for _ in violations(plain))


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.chaos.fleet")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--older", default="", help="a folder with an older version")
    for option in ("--member", "--folder", "--generation"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    parser.add_argument("urls", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.member:
        if given.older:
            sys.path.insert(0, given.older)
        live(given.member, Path(given.folder), int(given.generation), given.urls)
        return 0
    from fastredlock.testing import LocalMasters

    failed = False
    for count in (1, 3):
        with LocalMasters(count) as masters:
            figures = run(list(masters.urls), given.seconds, given.older)
        print(
            f"{count} masters: {figures.overlaps} overlaps, {figures.together} readers"
        )
        print(
            f"  beside others; {figures.holds}; {Counter(figures.errors)}", flush=True
        )
        failed |= figures.overlaps > 0 or not all(figures.holds.values())
    return failed


if __name__ == "__main__":
    sys.exit(main())
