"""Contend for one lock while the k-th call that may run Python raises; see raising.

python -m tests.fuzz.raised CLIENT MASTERS KIND SECONDS SEED
"""

from __future__ import annotations

import asyncio
import ctypes
import random
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis

import fastredlock.asyncio
from fastredlock import FastRedlock, _core
from fastredlock.testing import LocalMasters
from tests.support.certificates import Certificates, tls_master
from tests.support.waiting import turn, wait_until

KINDS = {"signals": 3, "memory": 12, "nested": 7}  # raising_class
KEY = "contended"
STAY = 0.0005  # s; so there are hand-overs by rounds, too, in each millisecond
TIMEOUT = 1.0
LATE = 2.0  # a busy machine; a caller that is forgotten waits for ever
FIRST, MOST = 10, 80  # mostly one of the first of these calls, else of as many as this
CONNECTING_MOST = 120


class Interrupted(BaseException):
    """Do what KeyboardInterrupt does."""


class Hook:
    """The hook of the build, as raising.h describes it."""

    def __init__(
        self, kind: str, locks: FastRedlock | None, nested_timeout: float = 0
    ) -> None:
        library = ctypes.CDLL(_core.__file__)
        self._left = ctypes.c_long.in_dll(library, "raising_left")
        self._class = ctypes.c_int.in_dll(library, "raising_class")
        self._function = ctypes.c_char_p.in_dll(library, "raising_function")
        self.in_a_pass = ctypes.c_char_p.in_dll(library, "raising_in_a_pass")
        self._kind = KINDS[kind]
        self.locks = locks if kind == "nested" else None
        self._nested_timeout = nested_timeout
        self._called = self._call  # held: the build has a bare pointer
        ctypes.c_void_p.in_dll(library, "raising_hook").value = id(self._called)
        thread = ctypes.c_ulong.in_dll(library, "raising_thread")
        thread.value = threading.get_ident()
        self.places: Counter[str] = Counter()
        self.last = ""

    def arm(self, k: int) -> None:
        self._left.value = k
        self._class.value = self._kind

    def is_spent(self) -> bool:
        return self._class.value == 0

    def disarm(self) -> None:
        self._class.value = 0

    def _call(self) -> None:
        self.disarm()
        self.last = (self._function.value or b"").decode().rpartition("_core_")[2]
        self.places[self.last] += 1
        if self.locks is None:
            raise Interrupted
        # As a finalizer would: of our resource, too, which is mostly taken.
        for name in (f"nested {self.places.total()}", KEY):
            with suppress(fastredlock.AcquireError):
                lease = self.locks.acquire(name, timeout=self._nested_timeout)
                if lease:
                    lease.release()


class Witness:
    """The holders, since when each caller waits, and the number of grants."""

    def __init__(self) -> None:
        self.holders = self.grants = 0
        self.waiting: dict[int, float] = {}

    def enter(self) -> None:
        self.holders += 1
        assert self.holders == 1, "two hold it"

    def leave(self) -> None:
        self.holders -= 1
        self.grants += 1

    def check(self, hook: Hook) -> None:
        now = time.monotonic()
        late = [now - began for began in list(self.waiting.values())]
        late = [each for each in late if each > TIMEOUT + LATE]
        assert not late, f"waits for {late} s, after {hook.last} {hook.places}"


def next_k(rng: random.Random) -> int:
    return rng.randrange(1, FIRST if rng.random() < 0.5 else MOST)


def run_threads(
    urls: list[str], options: dict[str, Any], kind: str, seconds: float, seed: int
) -> Hook:
    """Three threads take the lock in turn; the main one's acquires are interrupted."""
    rng = random.Random(seed)
    locks = FastRedlock(urls, ttl=600, cohort=STAY, **options)
    locks.connect()
    hook, witness, ended = Hook(kind, locks), Witness(), time.monotonic() + seconds

    def work(i: int) -> None:
        while time.monotonic() < ended:
            witness.waiting[i] = time.monotonic()
            try:
                with locks.lock(KEY, timeout=TIMEOUT):
                    witness.enter()
                    witness.leave()
            except fastredlock.AcquireError:  # of TLS, whose connection was interrupted
                pass
            del witness.waiting[i]

    failures: list[str] = []
    threading.excepthook = lambda args: failures.append(repr(args.exc_value))
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(3)]
    for thread in threads:
        thread.start()
    while time.monotonic() < ended and not failures:
        if hook.is_spent():  # a whole acquire may make no such call, or one
            hook.arm(next_k(rng))
        # A plain timeout queues in C, and another is the policy's, in Python.
        timeout = rng.choice((TIMEOUT, Fraction(TIMEOUT)))
        try:
            with locks.lock(KEY, timeout=timeout):  # type: ignore[arg-type]
                witness.enter()
                witness.leave()
        except (Interrupted, fastredlock.AcquireError):
            pass
        witness.check(hook)
    hook.disarm()
    for thread in threads:
        thread.join(TIMEOUT + LATE)
        assert not thread.is_alive(), f"a thread waits for ever, after {hook.last}"
    assert not failures, (failures, hook.last)
    assert witness.grants > 2 * seconds, (witness.grants, hook.places)
    locks.close()
    return hook


def run_connecting(
    urls: list[str], options: dict[str, Any], kind: str, seconds: float, seed: int
) -> Hook:
    """Connect a new client again and again; another one holds the lock.

    What interrupts it waits for longer than a connection may take.
    """
    rng = random.Random(seed)
    holder = FastRedlock(urls, ttl=600)
    lease = holder.acquire(KEY)
    hook, grants = Hook(kind, None, 0.08), 0
    ended = time.monotonic() + seconds
    while time.monotonic() < ended:
        with FastRedlock(urls, ttl=600, connect_timeout=0.05, **options) as locks:
            hook.locks = locks if kind == "nested" else None
            hook.arm(rng.randrange(1, CONNECTING_MOST))
            try:
                own = locks.acquire("own", timeout=1)
                hook.disarm()
                grants += own is not None
                if own:
                    own.release()
            except (Interrupted, fastredlock.AcquireError):
                pass
            finally:
                hook.disarm()
    assert lease
    assert lease.release()
    holder.close()
    assert grants > seconds, (grants, hook.places)
    return hook


async def run_tasks(
    urls: list[str], options: dict[str, Any], kind: str, seconds: float, seed: int
) -> Hook:
    """Four tasks take the lock in turn, and any of them is interrupted, or the loop."""
    rng = random.Random(seed)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    locks = fastredlock.asyncio.FastRedlock(urls, ttl=600, cohort=STAY, **options)
    await locks.connect()
    hook, witness, ended = Hook(kind, None), Witness(), time.monotonic() + seconds

    async def work(i: int) -> None:
        while time.monotonic() < ended:
            witness.waiting[i] = time.monotonic()
            try:
                async with locks.lock(KEY, timeout=TIMEOUT):
                    witness.enter()
                    witness.leave()
            except (Interrupted, fastredlock.AcquireError):
                pass
            await turn()

    tasks = [loop.create_task(work(i)) for i in range(4)]
    while time.monotonic() < ended:
        hook.arm(next_k(rng))
        await asyncio.sleep(0.002)  # the calls of a while may raise
        hook.disarm()
        witness.check(hook)
    done, late = await asyncio.wait(tasks, timeout=TIMEOUT + LATE)
    assert not late, f"a task waits for ever, after {hook.last}"
    for task in done:
        task.result()
    assert witness.grants > 2 * seconds, (witness.grants, hook.places)
    await locks.close()
    return hook


def left_on(masters: LocalMasters) -> list[bytes]:
    found: set[bytes] = set()
    for url in masters.urls:
        with redis.Redis.from_url(url) as server:
            found.update(server.scan_iter(count=1000))
    return sorted(key for key in found if not key.startswith(b"fastredlock:"))


def main() -> None:
    client, setting, kind, seconds, seed = sys.argv[1:]
    with ExitStack() as opened:
        if setting == "tls":
            folder = Path(opened.enter_context(TemporaryDirectory()))
            certificates = Certificates(folder)
            masters, port = opened.enter_context(tls_master(certificates))
            authority = str(certificates.authority)
            addresses = [f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority}"]
        else:
            masters = opened.enter_context(LocalMasters(1 if setting == "one" else 3))
            addresses = masters.urls
        options = {"fencing": True} if setting == "fencing" else {}
        given = addresses, options, kind, float(seconds), int(seed)
        if client == "tasks":
            hook = asyncio.run(run_tasks(*given))
        else:
            hook = {"threads": run_threads, "connecting": run_connecting}[client](
                *given
            )
        assert wait_until(lambda: not left_on(masters), within=1), hook.places
        assert not hook.in_a_pass.value, hook.in_a_pass.value
    print(hook.places.total(), "raised in", *sorted(hook.places))


if __name__ == "__main__":
    main()
