"""What many behaviour tests need: waiting, reading keys, threads, forks, alarms."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

import pytest
import redis

from fastredlock import FastRedlock, Lease, MasterVote, QuorumUnreachableError, Vote
from fastredlock.testing import LocalMasters

T = TypeVar("T")
Key = str | bytes
MakeLocks = Callable[..., FastRedlock]  # fixture make_locks
Raw = Callable[..., redis.Redis]  # fixture raw

# A mark for tests of what only the blocking driver does.
blocking = pytest.mark.parametrize("driver", ["blocking"], indirect=True)

KEY = "orders:42"
NOBODY: list[bytes | None] = [None] * 5  # the values of a key that no master has
# s; for what takes milliseconds, on a machine that is loaded. Less than the default
# ttl: what has expired by itself must not pass for what was undone.
PATIENCE = 8.0


def connected(locks: FastRedlock) -> FastRedlock:
    """Wait for all masters: without, a first acquire goes on once a quorum is ready."""
    locks.connect()
    return locks


def granted(taken: Lease | None) -> Lease:
    """Say that an acquire succeeded."""
    assert taken is not None
    return taken


def all_granted(leases: Sequence[Lease | None]) -> list[Lease]:
    """Say that each of many acquires succeeded."""
    return [granted(lease) for lease in leases]


def wait_until(claim: Callable[[], object], within: float = PATIENCE) -> bool:
    """Return whether the claim came true in time."""
    return bool(settled(lambda: bool(claim()), True, within))


def settled(read: Callable[[], T], wanted: T, within: float = PATIENCE) -> T:
    """Read until it is as wanted, or time is up; return what was read last."""
    deadline = time.monotonic() + within
    while (found := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.002)
    return found


def values(servers: Sequence[redis.Redis], key: Key = KEY) -> list[bytes | None]:
    """Return what each server stores under the key."""
    return [cast("bytes | None", server.get(key)) for server in servers]


def settled_values(
    servers: Sequence[redis.Redis],
    wanted: Sequence[bytes | None],
    key: Key = KEY,
) -> list[bytes | None]:
    """Wait for what was sent to the slowest masters as well; return all values."""
    return settled(lambda: values(servers, key), list(wanted))


def sizes(servers: Sequence[redis.Redis]) -> list[int]:
    """Count the keys of each server."""
    return [server.dbsize() for server in servers]


def is_empty(servers: Sequence[redis.Redis]) -> bool:
    """Whether no key is left anywhere, within a patience shorter than the ttl."""
    return settled(lambda: sizes(servers), [0] * len(servers)) == [0] * len(servers)


def set_all(servers: Sequence[redis.Redis], value: bytes, key: Key = KEY) -> None:
    """Let somebody else hold the key on these servers, without expiry."""
    for server in servers:
        server.set(key, value)


def open_files() -> int:
    """Count the descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def stop(masters: LocalMasters, count: int) -> None:
    """Kill the first `count` masters."""
    for i in range(count):
        masters.stop(i)


def start(masters: LocalMasters, count: int) -> None:
    """Start the first `count` masters, empty."""
    for i in range(count):
        masters.start(i)


def pause(masters: LocalMasters, count: int) -> None:
    """Freeze the first `count` masters."""
    for i in range(count):
        masters.pause(i)


def resume(masters: LocalMasters, count: int) -> None:
    """Let the first `count` masters go on."""
    for i in range(count):
        masters.resume(i)


def failed_votes(locks: FastRedlock) -> tuple[MasterVote, ...]:
    """Try once, without a quorum; return what the error says for each master."""
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    return raised.value.votes


def reason(locks: FastRedlock) -> str:
    """Try once; return why the only master voted FAILED."""
    (vote,) = failed_votes(locks)
    assert vote.vote is Vote.FAILED
    return vote.text or ""


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds since the start of the block."""
    began = time.monotonic()
    yield lambda: time.monotonic() - began


def in_threads(bodies: Sequence[Callable[[], T]]) -> list[T]:
    """Run all bodies at the same time; return their results, or raise."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return [future.result() for future in [pool.submit(body) for body in bodies]]


@contextmanager
def later(delay: float, work: Callable[[], object]) -> Iterator[None]:
    """Do the work in another thread while the block runs, after a delay in s."""

    def wait_and_work() -> None:
        time.sleep(delay)
        work()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(wait_and_work)
        yield
        future.result()


@contextmanager
def alarm(delay: float, on_alarm: Callable[[], object]) -> Iterator[None]:
    """Call on_alarm in a signal handler, `delay` s after the block was entered."""
    old = signal.signal(signal.SIGALRM, lambda *_: on_alarm())
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


class Interrupt(BaseException):
    """Do to acquire what KeyboardInterrupt does, but never to pytest."""


def interrupt() -> None:
    """Raise it: for an alarm, inside `pytest.raises(Interrupt)`."""
    raise Interrupt


class Fork:
    """Run work in a forked child of this process; `result()` is what it returned."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
            self._pid = os.fork()
        if self._pid == 0:
            try:
                told = {"result": work()}
            except BaseException:
                told = {"error": traceback.format_exc()}
            with suppress(OSError):
                os.write(writer, json.dumps(told, default=repr).encode())
            os._exit(0)
        os.close(writer)

    def result(self) -> Any:
        """Wait for the child; a child that hangs is killed."""
        try:
            if not select.select([self._reader], [], [], PATIENCE)[0]:
                os.kill(self._pid, signal.SIGKILL)
            told = json.loads(os.read(self._reader, 65536) or '{"error": "hung"}')
        finally:
            os.close(self._reader)
            os.waitpid(self._pid, 0)
        assert "error" not in told, told["error"]
        return told["result"]
