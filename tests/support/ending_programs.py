"""Programs that end in the middle of something.

python -m tests.support.ending_programs NAME URL...
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import inspect
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from fastredlock import FastRedlock, Lease, Retry
from fastredlock import asyncio as awaitable
from tests.support.threads import in_threads
from tests.support.waiting import until

NAMES = [f"r{i}" for i in range(3_000)]
TTL = 60.0  # s; round timeout 1 s or more
kept: Any = None  # what outlives the calls


class Alarm(BaseException):
    """Interrupt a call, as KeyboardInterrupt does."""


def raise_alarm(*_: object) -> None:
    raise Alarm


def go_on(seconds: float) -> None:
    """Let the other threads work: nothing shows in the middle of what they are."""
    time.sleep(seconds)


def server_of(url: str) -> Any:
    from redis import Redis  # as long to load as all the rest, and few need it

    return Redis.from_url(url)


def rest(locks: FastRedlock, *names: str) -> None:
    for name in names * 3:
        with locks.lock(name):
            pass


def in_daemon(work: Callable[[], object]) -> threading.Thread:
    """Start a thread that the interpreter does not wait for."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def in_child(method: str, work: Callable[..., object], *arguments: object) -> None:
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=work, args=arguments)
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode


def interrupt(what: str, delay: str, *urls: str) -> None:
    """End right after a call was interrupted."""
    locks = FastRedlock(urls, retry=Retry(delay=0))
    locks.connect()
    leases: list[Lease | None] = []
    if what == "release_each":
        leases = locks.acquire_each(NAMES, ttl=TTL)
    signal.signal(signal.SIGALRM, raise_alarm)
    signal.setitimer(signal.ITIMER_REAL, float(delay))
    with suppress(Alarm):
        if what == "acquire":  # of what another holds on three
            locks.acquire(NAMES[0], ttl=TTL)
        elif what == "acquire_each":
            leases = locks.acquire_each(NAMES, ttl=TTL)
        else:
            locks.release_each(leases)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if what == "acquire_each":
        locks.release_each(leases)


def lose_each(how: str, *urls: str) -> None:
    """End right after an acquire_each that others won."""
    locks: FastRedlock | None = FastRedlock(urls, round_timeout=5)
    assert locks is not None
    assert set(locks.acquire_each(NAMES, ttl=TTL)) == {None}
    if how == "kept":
        globals()["kept"] = locks
    elif how == "dropped":
        locks = None
        go_on(0.5)  # the program goes on for a while


def let_rest(how: str, *urls: str) -> None:
    globals()["kept"] = locks = FastRedlock(urls, ttl=TTL, linger=TTL / 2)
    rest(locks, NAMES[0])
    assert locks.stats().lingered > 0


def end_in_child(method: str, name: str, *urls: str) -> None:
    """Do one of these in a child of multiprocessing."""
    in_child(method, globals()[name], "kept", *urls)


def end_in_forked_child_of_a_user(_: str, *urls: str) -> None:
    """Let the child use what its parent made and used."""
    locks = FastRedlock(urls, round_timeout=5)
    locks.connect()

    def lose() -> None:
        assert set(locks.acquire_each(NAMES, ttl=TTL)) == {None}

    in_child("fork", lose)


def cancel_each(delay: str, is_kept: str, *urls: str) -> None:
    """Cancel a task just before the loop ends; nothing is closed."""

    async def main(locks: Any) -> None:
        await locks.connect()
        task = asyncio.ensure_future(locks.acquire_each(NAMES, ttl=TTL))
        await asyncio.sleep(float(delay))  # somewhere in its rounds
        task.cancel()
        with suppress(asyncio.CancelledError):
            await locks.release_each(await task)  # done before

    if is_kept == "kept":
        globals()["kept"] = awaitable.FastRedlock(urls)
        asyncio.run(main(kept))
    else:
        asyncio.run(main(awaitable.FastRedlock(urls)))


class AtTheEnd:
    """Call something when the modules are taken apart."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def __del__(self) -> None:
        try:
            print(self.work(), flush=True)  # nobody flushes where the collector sleeps
        except Exception as error:
            print(type(error).__name__, flush=True)


class Sleeper:
    """In a cycle, so that only the garbage collector ends it; another one follows."""

    seconds = 0.0

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(Sleeper.seconds)  # a finalizer that takes long
        Sleeper()


def wait_for_answers(locks: FastRedlock) -> None:
    """Lead, in a poll: three of the servers answer nobody for a while."""
    locks.holders("busy")


def take_and_give(locks: FastRedlock) -> None:
    """Take locks on and on."""
    while True:
        with locks.lock("pair", ttl=TTL):
            pass


def stick_in_a_finalizer(locks: FastRedlock) -> None:
    """Lead, and sleep in the middle of anything: one server is away."""
    Sleeper()
    gc.set_threshold(1, 1, 1)
    while True:
        locks.acquire("pair", timeout=0, ttl=TTL)


def end_beside_daemons(kind: str, call: str, *urls: str) -> None:
    """Use the engine at the end, when the daemon thread that led has been stopped."""
    locks = FastRedlock(urls, round_timeout=10)
    lease = locks.acquire("held", ttl=TTL)
    assert lease is not None
    calls: dict[str, Callable[[], object]] = {
        "release": lease.release,
        "close": locks.close,
        "acquire": lambda: locks.acquire("another", timeout=0, ttl=TTL),
    }
    if kind == "wait_for_answers":
        for url in urls[:3]:
            server_of(url).execute_command("CLIENT PAUSE", 1500, "ALL")

    def work() -> None:
        with suppress(Exception):
            globals()[kind](locks)

    for _ in range(3):
        in_daemon(work)
    go_on(0.2)  # one of them leads by now
    if kind == "stick_in_a_finalizer":
        Sleeper.seconds = 100.0
        go_on(0.1)  # and is in the finalizer
    sys.modules["kept"] = AtTheEnd(calls[call])  # type: ignore[assignment]


def leave_a_waiting_task(how: str, *urls: str) -> None:
    """End with a task that waits in a dead loop, beside clients with keys at rest."""
    others = [FastRedlock(urls, ttl=TTL, linger=30.0) for _ in range(4)]
    for i, locks in enumerate(others):
        rest(locks, f"rest{i}")
    globals()["kept"] = held = others[0].acquire("held", ttl=TTL)
    waiting = awaitable.FastRedlock(urls, ttl=TTL)
    loop = asyncio.new_event_loop()
    globals()["task"] = loop.create_task(waiting.acquire("held"))
    loop.run_until_complete(until(lambda: waiting.stats().waits))
    if how == "closed":
        loop.close()
    else:
        loop.is_running = lambda: bool(1 / 0)  # type: ignore[method-assign]
    held.release()  # type: ignore[union-attr]


def stop_masters_and_leave(*urls: str) -> None:
    """End with releases that wait for masters that are away."""
    globals()["kept"] = locks = FastRedlock(
        urls, ttl=TTL, credentials=lambda *_: ("default", "x")
    )
    lease = locks.acquire("r")
    assert lease is not None
    for url in urls:
        with server_of(url) as server:
            server.shutdown(nosave=True)
    print(lease.release().name)


def stop_a_master_and_leave_clients(*urls: str) -> None:
    """End with several clients whose releases one master does not answer."""
    globals()["kept"] = clients = [FastRedlock(urls, ttl=TTL) for _ in range(4)]
    leases = [locks.acquire(f"rest{i}") for i, locks in enumerate(clients)]
    with server_of(urls[0]) as server:
        server.shutdown(nosave=True)
    assert all(lease is not None and lease.release() for lease in leases)
    print(time.monotonic())


def drop_clients_with_keys_at_rest(*urls: str) -> None:
    """End with clients that nobody has any more, in which keys rest."""
    for i in range(6):
        rest(FastRedlock(urls, ttl=TTL, linger=30.0), f"rest{i}")


def close_by_two_threads(*urls: str) -> None:
    """Close clients with leases, each by two threads; print what came out of that."""
    errors: list[BaseException] = []

    def close(locks: FastRedlock) -> None:
        try:
            locks.close(release=True)
        except BaseException as error:
            errors.append(error)

    for _ in range(200):
        locks = FastRedlock(urls, ttl=TTL)
        held = locks.acquire_each([f"each{i}" for i in range(4)])
        in_threads([partial(close, locks)] * 2)
        errors += [
            ValueError(repr(lease)) for lease in held if lease and lease.is_valid
        ]
    print(errors)


def begin_at_the_end(*urls: str) -> None:
    """Make the first client in an atexit function, and let keys rest in it."""

    def begin() -> None:
        for i in range(3):
            rest(FastRedlock(urls, ttl=TTL, linger=30.0), f"rest{i}")

    atexit.register(begin)


def wait_in_a_daemon_thread(*urls: str) -> None:
    """End while a daemon thread waits, with the client that has a key at rest."""
    globals()["kept"] = FastRedlock(urls, ttl=TTL).acquire("held")
    locks = FastRedlock(urls, ttl=TTL, linger=30.0)
    rest(locks, "rest0")
    in_daemon(lambda: locks.acquire("held"))
    while not locks.stats().waits:
        go_on(0.01)


def end_in_a_back_off(how: str, *urls: str) -> None:
    """End behind a release that no master could take; a line is read before both."""

    def tell(text: str) -> None:
        print(text, flush=True)
        os.read(0, 1)

    async def use(locks: Any) -> None:
        lease = await awaited(locks.acquire("r"))
        tell("held")
        tell((await awaited(lease.release())).name)
        if "close" in how:
            await awaited(locks.close())

    def use_blocking() -> None:
        locks = FastRedlock(urls, ttl=TTL)
        if how != "dropped":
            globals()["kept"] = locks
        with suppress(StopIteration):
            use(locks).send(None)  # nothing is awaited

    if how == "child":
        in_child("fork", use_blocking)
    elif how.startswith("awaited"):
        asyncio.run(use(awaitable.FastRedlock(urls, ttl=TTL)))
    else:
        use_blocking()


async def awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
