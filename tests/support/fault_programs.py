"""Programs that fault tests run in a process of their own.

python -m tests.support.fault_programs NAME URL...
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import resource
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from urllib.parse import urlsplit

import redis

from fastredlock import (
    FastRedlock,
    Lease,
    MasterVote,
    QuorumUnreachableError,
    ReleaseStatus,
    Vote,
)
from tests.support.keys import KEY
from tests.support.proxy import Proxy


class Finalizer:
    """In a cycle, so that only the garbage collector ends it; another one follows."""

    is_wanted = False
    runs = 0

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.me = self

    def __del__(self) -> None:
        if Finalizer.is_wanted:
            Finalizer.is_wanted = False  # not within itself
            self.work()
            Finalizer.runs += 1
            Finalizer(self.work)
            Finalizer.is_wanted = True


def take_in_finalizers(*urls: str) -> None:
    """Take other locks while a garbage collector works in the rounds of one."""
    locks = FastRedlock(urls, round_timeout=0.5)

    def take_another() -> None:
        other = locks.acquire("other", timeout=0)
        assert other is not None
        other.release()

    collect(locks, urls, lambda: None, take_another)


def release_in_finalizers(*urls: str) -> None:
    """Release leases while a garbage collector works in the rounds of another one."""
    locks = FastRedlock(urls, round_timeout=0.5)
    leases: list[Lease] = []
    numbers = count()

    def take_some() -> None:
        while len(leases) < 3:
            lease = locks.acquire(f"other {next(numbers)}", timeout=0)
            assert lease is not None
            leases.append(lease)

    def release_one() -> None:
        if leases:
            assert leases.pop().release() is ReleaseStatus.RELEASED

    collect(locks, urls, take_some, release_one)
    assert next(numbers) > 60  # leases in all, of 3 in each of 30 acquires


def collect(
    locks: FastRedlock,
    urls: tuple[str, ...],
    prepare: Callable[[], object],
    work: Callable[[], object],
) -> None:
    """Work in a finalizer at every second allocation of taking a lock.

    What fails in there is written to standard error, which the test reads.
    """
    servers = [redis.Redis.from_url(url) for url in urls[1:]]  # the first is away
    thresholds = gc.get_threshold()
    prepare()
    work()
    for _ in range(30):
        prepare()
        Finalizer(work)
        Finalizer.is_wanted = True
        gc.set_threshold(1, 1, 1)
        lease = locks.acquire(KEY, timeout=0)
        Finalizer.is_wanted = False
        gc.set_threshold(*thresholds)
        assert lease is not None
        assert sum(server.get(KEY) == lease.token for server in servers) >= 3
        assert lease.release() is ReleaseStatus.RELEASED
    assert Finalizer.runs > 50
    locks.close()


def leave_open(*urls: str) -> None:
    """End the interpreter with engines, leases and threads in use."""
    locks = FastRedlock(urls)
    globals()["kept"] = locks, locks.acquire(KEY), FastRedlock(urls).acquire("other")
    waiting = threading.Thread(target=locks.acquire, args=(KEY,), daemon=True)
    waiting.start()


def run_out_of_descriptors(*urls: str) -> None:
    """Take locks with no descriptor left, then with some again."""
    locks, connected = FastRedlock(urls), FastRedlock(urls)
    connected.connect()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    taken = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    votes: tuple[MasterVote, ...] = ()
    try:
        locks.acquire(KEY, timeout=0)
    except QuorumUnreachableError as error:
        votes = error.votes
    failed = {vote.text for vote in votes if vote.vote is Vote.FAILED}
    assert failed == {"too many open files"}, votes
    with connected.lock(KEY, timeout=0):
        pass  # it needs no other one
    for fd in taken:
        os.close(fd)
    lease = locks.acquire(KEY, timeout=1)
    assert lease is not None
    lease.release()
    locks.close()


class Calls:
    """The counters and settings of interposer.c, its variables by their names."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def point_to(self, address: bytes) -> None:
        """Let moving.test have this address from now on."""
        (ctypes.c_char * 64).in_dll(self._library, "moving_to").value = address

    def delay_look_ups(self, milliseconds: int) -> None:
        """Let each look-up of <anything>.slow.test take so long from now on."""
        ctypes.c_int.in_dll(self._library, "slow_ms").value = milliseconds

    def made(self) -> dict[str, int]:
        """Tell how many there were so far."""
        return {
            name: ctypes.c_int.in_dll(self._library, name).value
            for name in ("look_ups", "sockets", "connects", "sends")
        }


def move(*urls: str) -> None:
    """Meet another server at another address behind the same name."""
    calls = Calls()
    calls.point_to(b"127.0.0.1")
    with Proxy(urls[0]) as first:
        port = urlsplit(first.url).port or 0
        locks = FastRedlock([("moving.test", port)])
        with locks.lock(KEY):
            assert first.connections == 1
    calls.point_to(b"127.0.0.2")
    with Proxy(urls[1], address=("127.0.0.2", port)) as second:
        with locks.lock(KEY, timeout=2) as lease:
            assert redis.Redis.from_url(urls[1]).get(KEY) == lease.token
        assert second.connections == 1
        locks.close()


def back_off(*urls: str) -> None:
    """Count what pairs cost while one of five masters, by name, is backed off."""
    calls = Calls()
    calls.point_to(b"127.0.0.1")
    locks = FastRedlock([("moving.test", urlsplit(url).port) for url in urls])

    def pairs(times: int) -> None:
        for _ in range(times):
            with locks.lock(KEY, timeout=0):
                pass

    while locks.stats().losses < 6:  # the pause is 0.4 s at the least then
        pairs(1)
        time.sleep(0.002)
    before = calls.made()
    pairs(20)
    cost = {name: made - before[name] for name, made in calls.made().items()}
    sends = 20 * 2 * 4  # a round writes once to each of the others
    assert cost == {"look_ups": 0, "sockets": 0, "connects": 0, "sends": sends}, cost
    locks.close()


def slow_masters(urls: tuple[str, ...]) -> list[tuple[str, int]]:
    """Name the masters so that their look-ups are slow."""
    return [(f"m{i}.slow.test", urlsplit(url).port or 0) for i, url in enumerate(urls)]


def is_locked(locks: FastRedlock, seconds: float) -> bool:
    """Try for so long to take and release a lock."""
    ended = time.monotonic() + seconds
    while time.monotonic() < ended:
        with suppress(QuorumUnreachableError):
            lease = locks.acquire(KEY, timeout=0.1)
            assert lease is not None
            return lease.release() is ReleaseStatus.RELEASED
    return False


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def look_up_slowly(*urls: str) -> None:
    """Try on and on while each name takes longer than a connection may take."""
    calls = Calls()
    calls.delay_look_ups(1500)
    masters, before = slow_masters(urls), threads()
    for locks in (FastRedlock(masters, connect_timeout=0.1) for _ in range(3)):
        assert not is_locked(locks, 0.3)
        assert threads() - before <= len(urls)
    assert calls.made()["look_ups"] == len(urls)  # of three engines, many attempts
    calls.delay_look_ups(0)
    assert is_locked(locks, 2)  # by answers that came when nobody waited any more
    assert calls.made()["look_ups"] == len(urls)
    ended = time.monotonic() + 2
    while threads() > before and time.monotonic() < ended:
        time.sleep(0.01)
    assert threads() == before
    for url in urls:
        redis.Redis.from_url(url).client_kill_filter(_type="normal", skipme=True)
    looked_up = calls.made()["look_ups"]  # redis-py has looked up, too
    assert is_locked(locks, 2)
    ended = time.monotonic() + 2
    while locks.stats().connects < 2 * len(urls) and time.monotonic() < ended:
        locks.connect()  # a loaded machine may need more than connect_timeout
    assert calls.made()["look_ups"] - looked_up >= len(urls)  # at every reconnect


def look_up_late(*urls: str) -> None:
    """Use no answer that came long before the attempt."""
    calls = Calls()
    calls.delay_look_ups(300)
    locks = FastRedlock(slow_masters(urls), connect_timeout=0.1)
    assert not is_locked(locks, 0.1)
    time.sleep(0.3 + 2.1)
    calls.delay_look_ups(0)
    assert is_locked(locks, 2)
    assert calls.made()["look_ups"] == 2 * len(urls)


def look_up_in_a_child(*urls: str) -> None:
    """Fork while names are being looked up: the child has no such thread."""
    calls = Calls()
    calls.delay_look_ups(1000)
    locks = FastRedlock(slow_masters(urls), connect_timeout=0.1)
    assert not is_locked(locks, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        child = os.fork()
    if child == 0:
        calls.delay_look_ups(0)
        os._exit(not is_locked(locks, 0.8))
    assert os.waitpid(child, 0)[1] == 0
    assert is_locked(locks, 2)


def stand_still(*urls: str) -> None:
    """Stop and go on, several times and for over 1 s, while threads take locks."""
    clients = [FastRedlock(urls, ttl=60, round_timeout=3) for _ in range(6)]
    for locks in clients:
        locks.connect()
    stopper = os.fork()
    if stopper == 0:
        for number in range(4):
            time.sleep(0.1 + number * 0.013)
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(1.05)
            os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    is_over = threading.Event()

    def take(locks: FastRedlock, thread: int) -> None:
        for number in count():
            if is_over.is_set():
                return
            lease = locks.acquire(f"{id(locks)} {thread} {number}", timeout=5)
            assert lease is not None
            assert lease.release() is ReleaseStatus.RELEASED

    with ThreadPoolExecutor(24) as pool:
        pairs = [pool.submit(take, clients[i % 6], i) for i in range(24)]
        os.waitpid(stopper, 0)
        is_over.set()
    for pair in pairs:
        pair.result()
    for locks in clients:
        locks.close()


# --- interrupts, at random ------------------------------------------------------------


def interrupt_at_random(*urls: str) -> None:
    """Take locks under real SIGINTs at all times; no key may be left."""
    locks = FastRedlock(urls)
    locks.connect()
    ended = time.monotonic() + 2
    interrupts = 0
    is_armed = [False]  # not twice: outside of `try` it would be the test's end

    def on_signal(*_: object) -> None:
        if is_armed[0]:
            is_armed[0] = False
            raise KeyboardInterrupt

    def send() -> None:
        delay = 0.0001
        while time.monotonic() < ended:
            time.sleep(delay)
            delay = delay * 1.37 % 0.003
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send, daemon=True)
    number = 0
    signal.signal(signal.SIGINT, on_signal)
    sender.start()
    while True:
        # A lease that was returned is ours to release, also where Ctrl-C came between
        # the return and the name: so each gets a resource of its own.
        try:
            is_armed[0] = True
            while time.monotonic() < ended + 0.05:
                number += 1
                with locks.lock(f"r{number}", ttl=60):
                    pass
            break
        except KeyboardInterrupt:
            interrupts += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    locks.close()
    assert interrupts > 50, interrupts
    print(number, interrupts)
    assert left_on_a_quorum(urls) == []


def left_on_a_quorum(urls: tuple[str, ...]) -> list[bytes]:
    """List the keys that still stand on a quorum of the masters."""
    servers = [redis.Redis.from_url(url) for url in urls]
    found = Counter(key for server in servers for key in server.scan_iter(count=1000))
    return [key for key, times in found.items() if times > len(urls) // 2]


def lock_at_once(locks: FastRedlock, name: str) -> None:
    with locks.lock(name):
        pass


def acquire_at_once(locks: FastRedlock, name: str) -> None:
    lease = locks.acquire(name)
    with lease:  # type: ignore[union-attr]  # no timeout: never None
        pass


def acquire_and_release(locks: FastRedlock, name: str) -> None:
    lease = locks.acquire(name)
    try:
        pass
    finally:
        lease.release()  # type: ignore[union-attr]


def interrupt_around_with(*urls: str) -> None:
    """Raise KeyboardInterrupt at every time around a with block; no key may be left."""
    locks = FastRedlock(urls, ttl=600)
    locks.connect()
    began = time.perf_counter()
    for _ in range(100):
        lock_at_once(locks, KEY)
    longest = 1.3 * (time.perf_counter() - began) / 100
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    random.seed(9)
    interrupts = number = 0
    bodies = (lock_at_once, acquire_at_once, acquire_and_release)
    ended = time.monotonic() + 6
    while time.monotonic() < ended:
        number += 1
        try:
            try:
                delay = random.uniform(2e-6, longest)
                signal.setitimer(signal.ITIMER_REAL, delay)
                bodies[number % 3](locks, f"r{number}")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupts += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert interrupts > 500, (number, interrupts)
    assert locks.stats().losses == 0
    locks.close()
    print(number, interrupts)
    assert left_on_a_quorum(urls) == []


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
