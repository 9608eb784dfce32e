"""Callers that fail: interrupted, collected, forked, signalled, in any place."""

from __future__ import annotations

import asyncio
import ctypes
import dis
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

import fastredlock
from fastredlock import FastRedlock, Lease, ReleaseStatus
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.awaited import run_on
from tests.support.calls import granted
from tests.support.fixtures import Servers, blocking
from tests.support.keys import KEY, NOBODY, delete, values
from tests.support.threads import beside
from tests.support.waiting import PATIENCE, settled, until

PACKAGE = fastredlock.__path__[0]
RETURN_VALUE = dis.opmap["RETURN_VALUE"]
NOT_TAKEN = dis.opmap.get("NOT_TAKEN")  # from CPython 3.14 on

pytestmark = blocking  # interrupts; a task is cancelled: behaviour/test_cancellation


def soon(
    servers: Servers, wanted: list[bytes | None], key: str = KEY
) -> list[bytes | None]:
    """Wait for the slowest master, for far less than a ttl; return the values."""
    return settled(lambda: values(servers, key), wanted, within=1)


def interrupt() -> None:
    raise KeyboardInterrupt


class Injector:
    """Do something at the k-th traced event in this package (and ssl)."""

    def __init__(self, k: int, action: Callable[[], object]) -> None:
        self.left = k
        self.action = action
        self.where = ""

    def is_ours(self, name: str) -> bool:
        return name.startswith(PACKAGE) or name.endswith("/ssl.py")

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self.is_ours(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] == NOT_TAKEN:
            return self.trace  # no signal is looked at, and it is in no `try`
        # What is raised at a return is raised in the caller: past every handler here.
        if event in ("call", "line", "opcode"):
            self.left -= 1
            if self.left == 0:
                code: Any = frame.f_code  # co_qualname: of Python 3.11
                if code.co_code[frame.f_lasti] == RETURN_VALUE:
                    event = "return"
                self.where = f"{code.co_qualname}:{frame.f_lineno} {event}"
                self.action()
        return self.trace


def interrupted_at(
    k: int, work: Callable[[], object], action: Callable[[], object] = interrupt
) -> str:
    """Do the work, with the action at its k-th event; tell where ("": it had fewer)."""
    injector = Injector(k, action)
    before = sys.gettrace()  # coverage's
    sys.settrace(injector.trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return injector.where


def every_interrupt(
    begin: Callable[[], Callable[[], object]],
    action: Callable[[], object] = interrupt,
    step: int = 1,
    least: int = 10,
) -> Iterator[str]:
    """Do the work again and again, with the action one event later each time.

    `begin` makes it ready and returns it. Yield where the action came: "" the last
    time, when the work had ended before. `least`: of the events that it has to have.
    """
    k, where = 1, "somewhere"
    while where:
        where = interrupted_at(k, begin(), action)
        yield where
        k += step
    assert k > least, "too little was traced"


# What is interrupted, and what its caller does behind that.
Started = tuple[Callable[[], object], Callable[[], object]]


def nothing() -> None:
    pass


def release(locks: FastRedlock) -> Started:
    lease: Lease = granted(locks.acquire(KEY, ttl=60))

    def release_again() -> None:
        if lease.is_valid:  # it had not begun: the holder is as before
            assert lease.release() is ReleaseStatus.RELEASED

    return lease.release, release_again


def release_each(locks: FastRedlock) -> Started:
    """Seen: an interrupt before its batch was made left all of them for the ttl."""
    leases = locks.acquire_each([KEY, "b"], ttl=60)

    def release_those_that_were_not_begun() -> None:
        if all(granted(lease).is_valid for lease in leases):
            locks.release_each(leases)

    return partial(locks.release_each, leases), release_those_that_were_not_begun


def leave_lock(locks: FastRedlock) -> Started:
    lock = locks.lock(KEY, ttl=60)
    lock.__enter__()
    return lambda: lock.__exit__(None, None, None), nothing


def leave_lease(locks: FastRedlock) -> Started:
    lease = granted(locks.acquire(KEY, ttl=60))
    return lambda: lease.__exit__(None, None, None), nothing


def leave_extended(locks: FastRedlock) -> Started:
    lease = granted(locks.acquire(KEY, ttl=60))
    lease.extend()
    return lambda: lease.__exit__(None, None, None), nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    "start", [release, release_each, leave_lock, leave_lease, leave_extended]
)
def test_end_of_a_lease_when_interrupted_at_any_opcode_then_leaves_no_key(
    locks: FastRedlock, servers: Servers, start: Callable[[FastRedlock], Started]
) -> None:
    """A with block is left before every `try`; all but the last are made in C."""
    behind: Callable[[], object] = nothing

    def begin() -> Callable[[], object]:
        nonlocal behind
        work, behind = start(locks)
        return work

    least = 10 if start is leave_extended else 1
    for where in every_interrupt(begin, least=least):
        behind()
        found = soon(servers, NOBODY), soon(servers, NOBODY, "b")
        assert (where, *found) == (where, NOBODY, NOBODY)


@pytest.mark.slow
def test_acquire_when_interrupted_at_any_opcode_then_leaves_no_key(
    locks: FastRedlock, servers: Servers
) -> None:
    def pair() -> None:
        granted(locks.acquire(KEY, ttl=60)).release()

    for where in every_interrupt(lambda: pair):
        if where.startswith("FastRedlock.acquire:") and where.endswith("return"):
            break  # where no signal is looked at: what follows is the test before
        assert (where, soon(servers, NOBODY)) == (where, NOBODY)


@pytest.mark.slow
def test_with_when_entered_and_interrupted_at_any_opcode_then_leaves_no_key_or_entry(
    locks: FastRedlock, servers: Servers
) -> None:
    lock, returned = locks.lock(KEY, ttl=60), 0
    with lock:  # from now on its ttl is known, and each entry takes the same steps
        pass
    for where in every_interrupt(lambda: lock.__enter__, least=20):  # 45 on 3.13
        if lock._entries:
            lock.__exit__(None, None, None)
            returned += 1
        found = soon(servers, NOBODY)
        assert (where, found, lock._entries) == (where, NOBODY, [])
    assert returned == 1  # without an interrupt


@pytest.mark.slow
def test_with_when_left_and_interrupted_then_at_least_is_kept(
    locks: FastRedlock, servers: Servers
) -> None:
    """Seen: another host took the lock at once, and ran the job again."""

    def begin() -> Callable[[], object]:
        delete(servers)
        lock = locks.lock(KEY, ttl=60, at_least=30)
        lock.__enter__()
        return lambda: lock.__exit__(None, None, None)

    for where in every_interrupt(begin):
        found = settled(
            lambda: {20_000 < server.pttl(KEY) <= 30_000 for server in servers}, {True}
        )
        assert (where, found) == (where, {True})


class Soon:
    """What has Ctrl-C come where the interpreter looks for signals next."""

    now = property(
        ctypes.PYFUNCTYPE(None, ctypes.py_object)(
            ("PyErr_SetInterrupt", ctypes.pythonapi)  # at an attribute it does not look
        )
    )


class InterruptedObserver:
    def entered(self, resource: str) -> None:
        interrupt()


def test_with_when_a_signal_comes_at_its_entry_by_a_lease_then_leaves_no_key(
    locks: FastRedlock, servers: Servers
) -> None:
    """Seen: CPython 3.14 looks for signals behind `__enter__`, before the block."""
    lease = granted(locks.acquire(KEY, ttl=60))
    with pytest.raises(KeyboardInterrupt), (Soon().now, lease)[1]:
        pass
    assert soon(servers, NOBODY) == NOBODY
    assert not lease.is_valid


def test_lease_when_its_exit_is_only_looked_up_then_it_is_held(
    locks: FastRedlock,
) -> None:
    with granted(locks.acquire(KEY)) as lease:
        assert hasattr(lease, "__exit__")
        assert callable(lease.__exit__)
        assert lease.is_valid


@pytest.mark.parametrize("is_observed", [False, True])
def test_async_with_when_interrupted_at_its_entry_by_a_lease_then_leaves_no_key(
    driver: str, urls: list[str], servers: Servers, is_observed: bool
) -> None:
    async def enter() -> None:
        observer = InterruptedObserver() if is_observed else None
        async with AwaitableFastRedlock(urls, observer=observer) as locks:
            lease: Any = await locks.acquire(KEY, ttl=60)
            with pytest.raises(KeyboardInterrupt):
                async with (is_observed or Soon().now, lease)[1]:
                    pass
            await until(lambda: values(servers) == NOBODY, within=1)

    run_on("asyncio", enter())  # asyncio.run() handles signals itself


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:coroutine 'Lease.release' was never awaited")
@pytest.mark.parametrize("is_lease", [False, True])
def test_async_with_when_left_and_interrupted_at_any_opcode_then_leaves_no_key(
    driver: str, urls: list[str], servers: Servers, is_lease: bool
) -> None:
    """An exception of a signal handler in a coroutine leaves the loop."""

    async def leave(locks: AwaitableFastRedlock, k: int) -> str:
        lock: Any = locks.lock(KEY, ttl=60)
        taken = await lock.__aenter__()
        injector = Injector(k, interrupt)
        before = sys.gettrace()  # coverage's
        sys.settrace(injector.trace)
        try:
            await (taken if is_lease else lock).__aexit__(None, None, None)
        except KeyboardInterrupt:
            pass  # an interrupted send goes on in the next turn
        finally:
            sys.settrace(before)
        return injector.where

    async def leave_at_all() -> int:
        locks = AwaitableFastRedlock(urls)
        await locks.connect()
        k, where = 1, "somewhere"
        while where:
            where = await leave(locks, k)
            await until(lambda: values(servers) == NOBODY, within=1)
            k += 1
        await locks.close()
        return k

    assert asyncio.run(leave_at_all()) > 1  # most of it is C


@pytest.mark.parametrize("is_lease", [False, True])
def test_async_with_when_its_end_was_called_and_not_awaited_then_leaves_no_key(
    driver: str, urls: list[str], servers: Servers, is_lease: bool
) -> None:
    """CPython looks for signals between the two."""

    async def leave() -> None:
        async with AwaitableFastRedlock(urls) as locks:
            lock: Any = locks.lock(KEY, ttl=60)
            taken = await lock.__aenter__()
            (taken if is_lease else lock).__aexit__(None, None, None)
            await until(lambda: values(servers) == NOBODY)

    asyncio.run(leave())


@pytest.mark.slow
@pytest.mark.parametrize("is_each", [False, True])
def test_extend_when_interrupted_at_any_opcode_then_the_next_one_extends(
    locks: FastRedlock, is_each: bool
) -> None:
    leases: list[Lease] = []

    def begin() -> Callable[[], object]:
        locks.release_each(leases)
        names = "ab" if is_each else "a"
        leases[:] = [granted(locks.acquire(name, ttl=20)) for name in names]
        extend = partial(locks.extend_each, leases) if is_each else leases[0].extend
        return lambda: extend(30)

    for where in every_interrupt(begin, least=50 if is_each else 10):
        assert all(lease.remaining() <= 30 for lease in leases)
        lefts = locks.extend_each(leases, 60) if is_each else [leases[0].extend(60)]
        assert (where, min(left or 0 for left in lefts) > 50) == (where, True)
    # ...in any thread: nothing that the interrupted ones had in hand is still held.
    with beside(lambda: leases[0].extend(60)) as (extended,):
        assert extended.result(PATIENCE) > 50
