"""Blocks inside blocks of the same resource, whose they are, and whose entry is left.

Of a task, of a frame on this stack, or of nobody knows whom: refused, joined, or waited
for; and one lock object that many threads and tasks enter, each for itself.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import Context, copy_context
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    LeaseLostError,
    ReentryError,
    ResourceTakenError,
)
from fastredlock._locking import blocks
from fastredlock._reports import log
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from tests.support.calls import granted
from tests.support.cancellation import with_locks
from tests.support.fixtures import Servers, blocking
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.loop_calls import taken
from tests.support.threads import beside, in_threads, later
from tests.support.waiters import Section
from tests.support.waiting import stopwatch, turn, until, wait_until

OTHER = "orders:43"
ENTRIES = {
    "lock": lambda locks: locks.lock(KEY, ttl=20),
    "kept": lambda locks: locks.lock(KEY, ttl=2, keep_alive=True),
    "all": lambda locks: locks.lock_all([KEY, OTHER], ttl=20),
    "lease": lambda locks: granted(locks.acquire(KEY, ttl=20)),
}
CALLS = {
    "acquire": lambda locks: locks.acquire(KEY),
    "timeout": lambda locks: locks.acquire(KEY, timeout=20),
    "all": lambda locks: locks.acquire_all([OTHER, KEY]),
    "lock": lambda locks: locks.lock(KEY).__enter__(),
}


@pytest.fixture(autouse=True)
def _nothing_was_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "logged", set())


# --- refused --------------------------------------------------------------------------


@blocking
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_acquire_when_inside_of_a_block_of_its_caller_then_is_refused_at_once(
    locks: FastRedlock, servers: Servers, entry: str, call: str
) -> None:
    with ENTRIES[entry](locks) as lease:
        with stopwatch() as took, pytest.raises(ReentryError, match=KEY) as caught:
            CALLS[call](locks)
        assert took() < 1.0
        assert 0.0 < caught.value.held < 5.0
        assert "reentrant=True" in str(caught.value)
        assert pickle.loads(pickle.dumps(caught.value)).held == caught.value.held
        assert lease.is_valid
        assert locks.acquire(KEY, timeout=0) is None
    assert settled_values(servers, NOBODY) == NOBODY
    granted(locks.acquire(KEY)).release()


@blocking
def test_acquire_when_the_block_was_left_or_its_lease_released_then_is_not_refused(
    locks: FastRedlock,
) -> None:
    with locks.lock(KEY) as lease:
        lease.release()
        with locks.lock(KEY):
            pass
    with pytest.raises(ZeroDivisionError), locks.lock(KEY):
        raise ZeroDivisionError
    assert not locks._driver.entered
    granted(locks.acquire(KEY)).release()


@blocking
def test_acquire_when_another_thread_is_in_the_block_then_waits_and_has_its_name(
    locks: FastRedlock,
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.lock(KEY):
            entered.set()
            leave.wait(10)

    with beside(hold):
        assert entered.wait(10)
        with pytest.raises(ResourceTakenError, match="another caller in this process"):
            locks.lock(KEY, timeout=0.05).__enter__()
        with locks.lock(OTHER), pytest.raises(ReentryError):  # that is its caller's
            locks.acquire_all([KEY, OTHER], timeout=5)
        with later(0.05, leave.set):
            granted(locks.acquire(KEY, timeout=10)).release()


@with_locks(ttl=20)
async def test_task_when_inside_of_its_own_block_then_is_refused_and_a_child_waits(
    locks: AwaitableFastRedlock,
) -> None:
    for is_lock in (True, False):
        async with locks.lock(KEY) if is_lock else await taken(locks):
            for call in (lambda: locks.acquire(KEY), locks.lock(KEY).__aenter__):
                with pytest.raises(ReentryError):
                    await call()
            waits = locks.stats().waits
            child = asyncio.create_task(locks.acquire(KEY))
            await until(lambda waits=waits: locks.stats().waits > waits)
        lease = await child
        assert lease is not None
        await lease.release()


# --- joined ---------------------------------------------------------------------------


@blocking
def test_reentrant_lock_when_entered_inside_then_has_the_lease_of_the_outermost(
    locks: FastRedlock, servers: Servers
) -> None:
    lock = locks.lock(KEY, ttl=20, reentrant=True)
    before = locks.stats().acquires.won
    with lock as outer:
        for inner in (lock, locks.lock(KEY, reentrant=True)):
            with inner as lease, inner as again:
                assert lease is again is outer
            assert outer.is_valid
        with pytest.raises(ZeroDivisionError), lock:
            raise ZeroDivisionError
        assert outer.is_valid
    assert settled_values(servers, NOBODY) == NOBODY
    assert locks.stats().acquires.won - before == 1
    assert not locks._driver.entered


@blocking
def test_reentrant_lock_when_more_ttl_is_asked_for_then_extends(
    locks: FastRedlock,
) -> None:
    with locks.lock(KEY, ttl=2, reentrant=True) as lease:
        with locks.lock(KEY, ttl=1, reentrant=True):
            assert lease.remaining() < 2
        with locks.lock(KEY, ttl=30, reentrant=True):
            assert lease.remaining() > 20
        with locks.lock(KEY, keep_alive=True, ttl=1, reentrant=True):
            pass
        assert lease._round.lease_state.was_kept
        for ttl in ("x", 0, -1, float("nan")):
            with pytest.raises(ConfigurationError, match="ttl="):
                locks.lock(KEY, ttl=ttl, reentrant=True).__enter__()  # type: ignore[arg-type]
        assert lease.is_valid


@blocking
def test_reentrant_lock_when_callers_overlap_then_each_leaves_its_own_entries(
    locks: FastRedlock,
) -> None:
    """One whose validity is over is still in its blocks when the next one enters.

    Seen: its inner exit took the other's inner entry, whose exit then released.
    """
    lock = locks.lock(KEY, ttl=1, reentrant=True)
    held, second = [], threading.Event()

    def stay() -> None:
        with lock as lease, lock:
            held.append(lease)
            second.wait(10)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(stay)
        assert wait_until(lambda: bool(held) and not held[0].is_valid)
        with lock as ours:
            ours.extend(20)
            with lock:
                second.set()
                with pytest.raises(LeaseLostError):
                    first.result()
            assert ours.is_valid
        assert not ours.is_valid


class Interruption(BaseException):
    """What a signal handler may raise."""


@contextmanager
def interrupted_in(name: str) -> Iterator[None]:
    """Raise as a function of Python begins, where CPython looks at signals."""

    def trace(frame: FrameType, event: str, value: Any) -> None:
        if frame.f_code.co_name == name:
            raise Interruption

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("is_inner", [False, True])
@with_locks()
async def test_kept_lock_when_interrupted_as_its_body_is_entered_then_leaves_no_key(
    locks: AwaitableFastRedlock, is_inner: bool
) -> None:
    """Seen: the entry stayed, and the lease was renewed for ever."""

    async def enter(lock: Any) -> None:
        with interrupted_in("_watch_body"):
            async with lock:
                pass

    lock = locks.lock(KEY, ttl=1, reentrant=True, keep_alive=True)
    if is_inner:
        async with lock:
            await enter(lock)  # nothing of an inner one is Python
    else:
        with pytest.raises(Interruption):
            await enter(lock)
    assert not lock._entries
    async with locks.lock(KEY, timeout=3):
        pass


# --- whose block it is ----------------------------------------------------------------

WAYS: dict[str, Callable[[FastRedlock], Any]] = {
    "lock": lambda locks: locks.lock(KEY),
    "timeout": lambda locks: locks.lock(KEY, timeout=20),
    "reentrant": lambda locks: locks.lock(KEY, reentrant=True),
    "all": lambda locks: locks.lock_all([KEY, "other"]),
    "semaphore": lambda locks: locks.semaphore(KEY, 1),
}


@blocking
@pytest.mark.parametrize("way", WAYS)
def test_task_when_another_task_is_in_the_block_then_is_refused_at_once(
    locks: FastRedlock, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    section = Section()

    async def task(lock: Any) -> str:
        try:
            with stopwatch() as took, lock, section:
                await turn()  # the others come meanwhile
                return "done"
        except ReentryError as error:
            return str(error) if error.is_of_task and took() < 1 else "wrong"

    async def main() -> list[str]:
        return await asyncio.gather(*(task(WAYS[way](locks)) for _ in range(5)))

    done, *refused = asyncio.run(main())
    assert (done, section.most) == ("done", 1)
    for text in refused:
        assert "fastredlock.asyncio" in text
        assert "reentrant" not in text
    assert caplog.messages == [blocks.REFUSED]


@blocking
def test_task_when_it_is_in_the_block_itself_then_is_its_own_caller(
    locks: FastRedlock,
) -> None:
    async def main() -> None:
        with ExitStack() as stack:  # whatever entered it
            lease = stack.enter_context(locks.lock(KEY))
            await turn()
            with locks.lock(KEY, reentrant=True) as inner:
                assert inner is lease is locks.current(KEY)
            with pytest.raises(ReentryError, match="this caller itself"):
                locks.acquire(KEY)
            taken = asyncio.to_thread(locks.acquire, KEY, timeout=0.05)
            assert await taken is None  # a copied context proves nothing

    asyncio.run(main())


@blocking
def test_task_when_a_block_is_around_its_loop_then_is_refused(
    locks: FastRedlock,
) -> None:
    async def main() -> None:
        with pytest.raises(ReentryError, match="around the event loop"):
            locks.lock(KEY, reentrant=True).__enter__()

    with locks.lock(KEY, reentrant=True):
        asyncio.run(main())


@blocking
def test_semaphore_when_tasks_share_it_then_each_releases_its_own_slot(
    locks: FastRedlock,
) -> None:
    slots = locks.semaphore(KEY, 3)

    async def task(number: int) -> None:
        with slots as lease:
            await asyncio.sleep(0.02 * (3 - abs(number - 1)))  # in another order
            assert lease.is_valid
            assert locks.current(KEY) is lease

    async def main() -> None:
        await asyncio.gather(*(task(number) for number in range(3)))

    asyncio.run(main())
    assert not slots._entries


# As a framework runs a plain dependency with `yield`: in threads of a pool, each part
# in a copy of the request's context.
def part(context: Context, step: Callable[..., Any], *given: Any) -> Any:
    return context.copy().run(step, *given)


@blocking
@pytest.mark.parametrize("reentrant", [False, True])
def test_thread_when_another_request_has_left_it_in_a_block_then_waits(
    locks: FastRedlock, servers: Servers, reentrant: bool
) -> None:
    lock = locks.lock(KEY, timeout=10, reentrant=reentrant)

    def dependency() -> Iterator[None]:
        with lock:
            yield

    context, another = Context(), Context()
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as elsewhere:
        first, second = dependency(), dependency()
        pool.submit(part, context, next, first).result()
        waiting = pool.submit(part, another, next, second)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        with pytest.raises(LeaseLostError, match="in no block"):
            elsewhere.submit(locks.current, KEY).result()
        elsewhere.submit(part, context, next, first, None).result()
        waiting.result()
        elsewhere.submit(part, another, next, second, None).result()
    assert settled_values(servers, NOBODY) == NOBODY
    assert not lock._entries


@blocking
def test_context_manager_when_it_is_a_generator_then_is_its_callers(
    locks: FastRedlock,
) -> None:
    @contextmanager
    def critical(reentrant: bool) -> Iterator[Any]:
        with locks.lock(KEY, reentrant=reentrant) as lease:
            yield lease

    @contextmanager
    def around() -> Iterator[Any]:
        with critical(True) as lease:
            yield lease

    with around() as lease:
        with critical(True) as inner, around() as again:
            assert again is inner is lease is locks.current(KEY)
        with pytest.raises(ReentryError), critical(False):
            pass
        assert lease.is_valid


@blocking
def test_generators_when_they_join_a_block_then_the_last_to_leave_releases(
    locks: FastRedlock, servers: Servers
) -> None:
    """As those of one thread that enter a threading.RLock."""
    lock = locks.lock(KEY, reentrant=True)

    def inside() -> Iterator[Any]:
        with lock as lease:
            yield lease

    first, second = inside(), inside()
    lease = next(first)
    assert next(second) is lease is locks.current(KEY)
    with pytest.raises(ReentryError, match="this caller itself"):
        locks.acquire(KEY)
    assert next(first, None) is None
    assert lease.is_valid
    assert next(second, None) is None
    assert settled_values(servers, NOBODY) == NOBODY
    assert not lock._entries
    assert not locks._driver.entered


def elsewhere_in_a_copy(call: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(part, copy_context(), call).result()


def in_a_greenlet_with_a_copy(call: Callable[[], Any]) -> None:
    greenlet = pytest.importorskip("greenlet").greenlet(call)
    greenlet.gr_context = copy_context()
    greenlet.switch()


# Copies of the context, in which the block is, too: other callers all the same.
@blocking
@pytest.mark.parametrize("run", [elsewhere_in_a_copy, in_a_greenlet_with_a_copy])
def test_acquire_when_only_the_context_is_that_of_the_block_then_does_not_join(
    locks: FastRedlock, run: Callable[[Callable[[], Any]], None]
) -> None:
    lock = locks.lock(KEY, timeout=0.05, reentrant=True)

    def call() -> None:
        with pytest.raises(LeaseLostError):
            locks.current(KEY)
        with pytest.raises(ResourceTakenError, match="another caller in this process"):
            lock.__enter__()

    with lock as lease:
        run(call)
        assert part(copy_context(), locks.current, KEY) is lease
        with pytest.raises(LeaseLostError, match="another context"):
            Context().run(locks.current, KEY)


@blocking
def test_task_of_trio_when_it_was_started_in_a_block_then_is_another_caller(
    locks: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a copy of the context, and runs in the same thread."""
    parent, child = threading.Event(), threading.Event()  # any objects
    running = [parent]
    lowlevel = SimpleNamespace(current_task=lambda: running[0])
    monkeypatch.setitem(sys.modules, "trio", SimpleNamespace(lowlevel=lowlevel))
    with locks.lock(KEY) as lease:
        assert locks.current(KEY) is lease
        running[0] = child
        with pytest.raises(ReentryError, match="another task"):
            part(copy_context(), locks.lock(KEY, reentrant=True).__enter__)
        running[0] = parent


@blocking
def test_statement_when_another_entry_is_there_then_leaves_its_own(
    locks: FastRedlock,
) -> None:
    """By what it has found before it entered, whatever was entered since."""
    slots = locks.semaphore(KEY, 3)
    entry = slots.__enter__()  # no statement
    with slots as first:
        unused = slots.__exit__  # looked up, and not called
        last = slots.__enter__()
    del unused
    assert [lease.is_valid for lease in (entry, first, last)] == [True, False, True]
    with ExitStack() as stack:
        stack.push(slots)
    assert [lease.is_valid for lease in (entry, last)] == [True, False]
    slots.__exit__(None, None, None)
    assert not slots._entries


# --- one lock object for many ---------------------------------------------------------


@blocking
@pytest.mark.parametrize("reentrant", [False, True])
def test_lock_when_many_threads_enter_it_then_one_at_a_time_is_inside(
    locks: FastRedlock, servers: Servers, reentrant: bool
) -> None:
    lock, section = locks.lock(KEY, ttl=20, reentrant=reentrant), Section()

    def work() -> None:
        for _ in range(20):
            with lock as lease, lock if reentrant else nullcontext(), section:
                assert lease.is_valid

    in_threads([work] * 8)
    section.assert_exclusive()
    assert section.entered == 160
    assert settled_values(servers, NOBODY) == NOBODY


@pytest.mark.parametrize("reentrant", [False, True])
@with_locks(ttl=20)
async def test_lock_when_many_tasks_enter_it_then_one_at_a_time_is_inside(
    locks: AwaitableFastRedlock, reentrant: bool
) -> None:
    lock, section = locks.lock(KEY, reentrant=reentrant), Section()

    @lock
    async def again(times: int) -> None:
        await turn()
        if times:
            await again(times - 1)

    async def work() -> None:
        for _ in range(20):
            async with lock as lease:
                with section:
                    await turn()
                    if reentrant:
                        await again(2)
                    assert lease.is_valid

    await asyncio.gather(*(work() for _ in range(8)))
    section.assert_exclusive()
    assert section.entered == 160
    async with lock as outer:
        if reentrant:
            async with locks.lock(KEY, ttl=60, reentrant=True) as inner:
                assert inner is outer
                assert outer.remaining() > 40


@with_locks(ttl=60)
async def test_lock_when_a_task_is_cancelled_while_it_enters_then_has_no_entry(
    locks: AwaitableFastRedlock,
) -> None:
    lock = locks.lock(KEY)
    async with lock:
        waiting = asyncio.create_task(lock.__aenter__())
        await until(lambda: locks.stats().waits == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert not lock._entries
    async with lock as lease:
        assert lease.is_valid
