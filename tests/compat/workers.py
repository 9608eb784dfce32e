"""A lock of either library, in this process or another one, behind three commands.

`python -m compat.workers KIND MODULE KEY URL...` reads lines: `take` (one try; answers
True or False), `release`, and `count PATH TIMES`: read, pause and write a number so
often under the lock.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

TTL = 20  # s; more than any test takes


class Held(Protocol):
    """One lock on one key, whatever the library."""

    def take(self) -> bool: ...

    def release(self) -> None: ...


class RedlockPy:
    """redlock-py: a manager, and a Lock for each grant."""

    def __init__(self, module: ModuleType, key: str, urls: list[str]) -> None:
        self._manager = module.Redlock(urls, retry_count=1, retry_delay=0.001)
        self._key = key
        self._lock: Any = None

    def take(self) -> bool:
        lock = self._manager.lock(self._key, TTL * 1000)
        self._lock = lock or self._lock
        return bool(lock)

    def release(self) -> None:
        self._manager.unlock(self._lock)


class Pottery:
    """pottery: one Redlock, with a redis-py client for each master."""

    def __init__(self, module: ModuleType, key: str, urls: list[str]) -> None:
        from redis import Redis

        self._lock = module.Redlock(
            key=key, masters=set(map(Redis.from_url, urls)), auto_release_time=TTL
        )

    def take(self) -> bool:
        return bool(self._lock.acquire(blocking=False))

    def release(self) -> None:
        self._lock.release()


KINDS: dict[str, Any] = {"redlock-py": RedlockPy, "pottery": Pottery}


def count(lock: Held, path: Path, times: int) -> None:
    """Read, pause, write: loses updates as soon as two processes overlap."""
    for _ in range(times):
        while not lock.take():
            time.sleep(0.002)
        value = int(path.read_text())
        time.sleep(0.001)
        path.write_text(str(value + 1))
        lock.release()


def main() -> None:
    kind, module, key, *urls = sys.argv[1:]
    lock: Held = KINDS[kind](importlib.import_module(module), key, urls)
    for line in sys.stdin:
        match line.split():
            case ["take"]:
                print(lock.take(), flush=True)
            case ["release"]:
                print(lock.release(), flush=True)
            case ["count", path, times]:
                print(count(lock, Path(path), int(times)), flush=True)


if __name__ == "__main__":
    main()
