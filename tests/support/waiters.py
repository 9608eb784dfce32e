"""Callers that wait for one lock, one behind the other, and what its gate knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast

import redis

from fastredlock import FastRedlock
from tests.support.keys import KEY, settled_values
from tests.support.waiting import PATIENCE, settled, wait_until

FALL_BACK = 0.25  # s; the first of a queue asks its gate so often
PROMPT = 0.8 * FALL_BACK  # s; sooner than any question to the gate: by a message


# --- what a gate knows ----------------------------------------------------------------


def as_bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def queue_key(key: str | bytes = KEY) -> bytes:
    return b"fastredlock:queue:" + as_bytes(key)


def gate_of(count: int, key: str | bytes = KEY) -> int:
    """Return the index of the gate among so many masters, all of them connected.

    They are listed in the order of their addresses, as those of LocalMasters are.
    """
    hashed = 0xCBF29CE484222325
    for byte in as_bytes(key):
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return int((hashed ^ hashed >> 32) % count)


def queued(servers: Sequence[redis.Redis], key: str | bytes = KEY) -> int:
    return sum(server.zcard(queue_key(key)) for server in servers)


def queued_at(server: redis.Redis, key: str | bytes = KEY) -> list[bytes]:
    """List the processes in the queue of a gate, the longest waiting first."""
    return cast("list[bytes]", server.zrange(queue_key(key), 0, -1))


def commands_of(server: redis.Redis) -> int:
    """Return how many commands a server has executed, those of scripts included."""
    told = cast("dict[str, int]", server.info("stats"))
    return told["total_commands_processed"]


def is_over(servers: Sequence[redis.Redis], key: str | bytes = KEY) -> bool:
    """Whether no key and no entry is left, a moment after all that was sent."""
    nobody = [None] * len(servers)
    found = settled_values(servers, nobody, key)
    return found == nobody and settled(lambda: queued(servers, key), 0) == 0


# --- what a client counts -------------------------------------------------------------


def counter(locks: FastRedlock, name: str) -> int:
    """Return one of the counters: waits, turns_told, turns_missed, handed_over."""
    return cast("int", getattr(locks.stats(), name))


@contextmanager
def begins_to_wait(locks: FastRedlock, times: int = 1) -> Iterator[None]:
    """Let the block start callers; wait until so many are in the queue of a client."""
    before = counter(locks, "waits")
    yield
    assert wait_until(lambda: counter(locks, "waits") >= before + times)


def is_prompt(trial: Callable[[], float], times: int = 4) -> bool:
    """Whether a trial took less than any question; a loaded machine has more of them.

    What needs the fall-back needs it each time, or nearly so.
    """
    return any(trial() < PROMPT for _ in range(times))


# --- the callers ----------------------------------------------------------------------


def hand_over(
    holder: FastRedlock,
    waiting: Sequence[FastRedlock],
    key: str | bytes = KEY,
    queues_at: Sequence[redis.Redis] = (),
) -> float:
    """Let others wait for what one holds; return how long (s) they took behind it.

    `queues_at`: the release waits for one entry of each of them on these servers.
    """
    with Waiters() as waiters:
        lease = holder.acquire(key, ttl=30)
        assert lease is not None
        for i, each in enumerate(waiting):
            waiters.come(f"{i}", each, key=key)
        if queues_at:
            assert wait_until(lambda: queued(queues_at, key) == len(waiting))
        began = time.monotonic()
        lease.release()
        waiters.end()
    assert len(waiters.served) == len(waiting)
    return max(waiters.at.values()) - began


class Section:
    """What the lock is for: sees two that are inside, and updates that are lost.

    Each is inside for `stay` s, behind its read of the value.
    """

    def __init__(self, stay: float = 0.0) -> None:
        self.value = self.entered = self.inside = self.most = 0
        self._stay = stay

    def __enter__(self) -> None:
        self.entered += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        self._read = self.value
        if self._stay:
            time.sleep(self._stay)

    def __exit__(self, *_: object) -> None:
        self.value = self._read + 1
        self.inside -= 1

    def assert_exclusive(self) -> None:
        assert self.most <= 1
        assert self.value == self.entered


class Waiters:
    """Callers in threads of their own; a context manager.

    `served` are the names of those that got the lock, in that order, and `at` says when
    (s, monotonic). At the end all have ended, and no two were inside.
    """

    def __init__(self) -> None:
        self.served: list[str] = []
        self.at: dict[str, float] = {}
        self.sections: dict[Any, Section] = {KEY: Section()}
        self._pool = ThreadPoolExecutor(256)
        self._futures: list[Future[Any]] = []

    def come(
        self,
        name: str,
        locks: FastRedlock,
        *,
        key: str | bytes | tuple[str, ...] = KEY,
        hold: float = 0.0,
        timeout: float = PATIENCE,
        ttl: float | None = None,
    ) -> Future[bool]:
        """Start a caller; return when it waits. It holds the lock for `hold` s."""
        options = {"key": key, "timeout": timeout, "ttl": ttl}
        with begins_to_wait(locks):
            return self.start(lambda: self.take(name, locks, hold, **options))

    def start(self, work: Callable[[], Any]) -> Future[Any]:
        future = self._pool.submit(work)
        self._futures.append(future)
        return future

    def take(
        self, name: str, locks: FastRedlock, hold: float = 0.0, **options: Any
    ) -> bool:
        """Take the lock, be inside, release it; say whether it was had."""
        key = options.pop("key", KEY)
        acquire: Any = locks.acquire_all if isinstance(key, tuple) else locks.acquire
        lease = acquire(key, **options)
        if lease is None:
            return False
        with self.sections.setdefault(key, Section()):
            self.at[name] = time.monotonic()
            self.served.append(name)
            time.sleep(hold)  # it is inside
        lease.release()
        return True

    @property
    def section(self) -> Section:
        """What KEY is for."""
        return self.sections[KEY]

    def end(self) -> None:
        for future in self._futures:
            future.result(3 * PATIENCE)

    def forget(self, futures: Sequence[Future[Any]]) -> None:
        """Leave out those that had to fail."""
        self._futures = [each for each in self._futures if each not in futures]

    def __enter__(self) -> Waiters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.end()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        if kind is None:
            for section in self.sections.values():
                section.assert_exclusive()
