"""First come, first served: over threads, tasks, clients, processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from functools import partial
from itertools import count
from typing import Any

import pytest

from fastredlock import (
    FastRedlock,
    ReleaseStatus,
    ResourceTakenError,
    Retry,
    Vote,
)
from fastredlock import asyncio as awaitable
from fastredlock._cli.waiting import queue_of
from fastredlock._options import scripts
from fastredlock._options.masters import parse_masters
from tests.support.awaited import LOOPS
from tests.support.calls import connected, granted
from tests.support.cancellation import (
    released,
)
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, set_all
from tests.support.processes import Fork
from tests.support.threads import Interrupt, alarm, in_threads, interrupt
from tests.support.waiters import (
    FALL_BACK,
    Section,
    Waiters,
    begins_to_wait,
    commands_of,
    counter,
    is_over,
    is_prompt,
    queue_key,
    queued,
)
from tests.support.waiting import stopwatch, until, wait_until

# --- order ----------------------------------------------------------------------------

TOKENS = (b"token %d" % number for number in count())


@pytest.mark.parametrize(
    ("n", "whose", "options"),
    [
        (5, [0] * 12, {"cohort": 0.01}),
        (1, [*range(6)], {}),
        (3, [*range(6)], {}),
        (5, [*range(6)], {}),
        (5, [0, 0, 1, 1] * 2, {"cohort": 0}),
        (5, [0, 1] * 4, {"new_token": lambda: next(TOKENS)}),
        (5, [0, 1], {"ttl": 0.5, "max_ttl": 0.5}),
    ],
    ids=["callers", "N=1", "N=3", "N=5", "callers of two", "given tokens", "guarded"],
)
def test_callers_when_they_wait_then_are_served_in_the_order_of_their_coming(
    make_locks: MakeLocks, urls: list[str], servers: Servers,
    n: int, whose: list[int], options: dict[str, Any],
) -> None:  # fmt: skip
    clients = [connected(make_locks(urls[:n], **options)) for _ in {*whose, -1}]
    assert all(wait_until(partial(is_voted, each, n)) for each in clients)
    with Waiters() as waiters:
        lease = granted(clients[-1].acquire(KEY))
        for i, client in enumerate(whose):
            waiters.come(f"{i}", clients[client])
            there = len({*whose[: i + 1]})
            assert wait_until(lambda there=there: queued(servers) == there)
            clients[client].ping()  # behind its question
            time.sleep(0.02)  # a client knows the gate's time to half a round trip
        lease.release()
    assert waiters.served == [f"{i}" for i in range(len(whose))]
    assert is_over(servers[:n])


def is_voted(locks: FastRedlock, count: int) -> bool:
    """Whether so many masters may vote; those of a guard are young at first."""
    return sum(master.votes for master in locks.ping()) == count


def test_clients_when_they_list_the_masters_in_other_orders_then_have_one_gate(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    """Seen: a gate was found by its place in the list, so each order had its own."""
    orders = [urls, urls[::-1], [*urls[2:], *urls[:2]]]
    clients = [connected(make_locks(order)) for order in orders]
    with Waiters() as waiters:
        for i in range(5):
            key = f"{KEY}{i}"
            lease = granted(clients[0].acquire(key, ttl=30))
            for each in clients:
                waiters.come(f"{i}", each, key=key)
            assert wait_until(lambda key=key: queued(servers, key) == 3)
            at_most = max(queued([server], key) for server in servers)
            lease.release()
            assert at_most == 3


# --- how soon -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "is_adopted"), [(1, False), (3, False), (5, False), (5, True)]
)
def test_release_when_another_client_waits_then_tells_it(
    make_locks: MakeLocks, urls: list[str], servers: Servers, n: int, is_adopted: bool
) -> None:
    holder, waiter, other = [connected(make_locks(urls[:n])) for _ in range(3)]
    for _ in range(7):
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY))
            if is_adopted:
                lease = other.adopt(KEY, lease.token)
            waiters.come("waiter", waiter)
            assert wait_until(lambda: queued(servers) == 1)
            lease.release()
    assert is_over(servers[:n])
    assert counter(waiter, "turns_told") >= 6


@pytest.mark.slow
def test_lock_when_nobody_waits_for_it_any_more_then_is_sent_what_any_other_is(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    """Seen: each pair within a second of the last one joined the queue, for ever."""

    def commands_of_pairs(resource: str) -> int:
        before = sum(map(commands_of, servers))
        for _ in range(20):
            granted(locks.acquire(resource, timeout=5)).release()
        assert is_over(servers, resource)
        return sum(map(commands_of, servers)) - before

    locks, other = [connected(make_locks(urls)) for _ in range(2)]
    with Waiters() as waiters:
        lease = granted(other.acquire(KEY))
        waiters.come("waiter", locks)
        lease.release()
    alone_until = time.monotonic() + 1.1
    while time.monotonic() < alone_until:
        granted(locks.acquire(KEY, timeout=5)).release()
    waits = counter(locks, "waits")
    assert commands_of_pairs(KEY) < 1.2 * commands_of_pairs(KEY + "-2")
    assert counter(locks, "waits") == waits


# --- who does not queue ---------------------------------------------------------------


def test_acquire_when_timeout_is_zero_then_never_queues(
    holder: FastRedlock, locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    servers: Servers,
) -> None:  # fmt: skip
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY))
        waiters.come("waiter", locks)
        assert wait_until(lambda: queued(servers) == 1)
        waits, rounds = counter(locks, "waits"), locks.stats().rounds
        for each in (locks, connected(make_locks(urls))):
            with stopwatch() as elapsed:
                assert each.acquire(KEY, timeout=0) is None
            assert elapsed() < 5 * FALL_BACK
        assert (counter(locks, "waits"), queued(servers)) == (waits, 1)
        assert locks.stats().rounds == rounds + 1
        lease.release()


def test_retry_when_it_has_a_delay_then_keeps_it_and_is_in_no_queue(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    set_all(servers, b"another")
    locks = connected(make_locks(urls, retry=Retry(delay=0.1, jitter=0)))
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=0.25) is None
    assert elapsed() >= 0.25
    assert 2 <= locks.stats().rounds <= 4  # at 0, 0.1, 0.2 and 0.25 s
    assert (counter(locks, "waits"), queued(servers)) == (0, 0)
    assert all(not server.keys("fastredlock:*") for server in servers)


# --- the end of the caller's time -----------------------------------------------------


def test_acquire_when_its_time_ends_in_the_queue_then_leaves_it_with_real_votes(
    holder: FastRedlock, locks: FastRedlock, urls: list[str], servers: Servers
) -> None:
    granted(holder.acquire(KEY, ttl=30))
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=0.2) is None
    assert 0.2 <= elapsed() < 0.2 + 4 * FALL_BACK
    assert counter(locks, "waits") >= 1
    with pytest.raises(ResourceTakenError) as raised, locks.lock(KEY, timeout=0.1):
        pytest.fail("its body runs")
    assert [vote.vote for vote in raised.value.votes].count(Vote.TAKEN) >= 3
    assert 0.1 <= raised.value.elapsed < 0.1 + 4 * FALL_BACK
    assert (raised.value.attempts, raised.value.resource) == (2, KEY)
    told = str(raised.value)
    said = r"'orders:42': held by others after 2 attempts in \d+ ms \(.* has held it "
    assert re.match(said + r".*\): 0 of 5 granted, [345] taken", told)
    assert all(url.removeprefix("redis://").removesuffix("/0") in told for url in urls)
    assert wait_until(lambda: queued(servers) == 0)


@pytest.mark.parametrize("way", ["timeout", "interrupt"])
@pytest.mark.parametrize("is_one_client", [True, False])
@pytest.mark.parametrize("is_head", [True, False])
def test_waiter_when_it_gives_up_then_the_next_has_its_turn_promptly(
    holder: FastRedlock, locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    servers: Servers, way: str, is_one_client: bool, is_head: bool,
) -> None:  # fmt: skip
    other = locks if is_one_client else connected(make_locks(urls))

    def trial() -> float:
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY, ttl=30))
            if not is_head:
                waiters.come("first", other)
            before = counter(locks, "waits")

            def come_behind() -> None:
                assert wait_until(lambda: counter(locks, "waits") > before)
                waiters.take("second", other, timeout=8)

            with begins_to_wait(other):
                waiters.start(come_behind)
                if way == "timeout":
                    assert locks.acquire(KEY, timeout=0.3) is None
                else:
                    with pytest.raises(Interrupt), alarm(0.3, interrupt):
                        locks.acquire(KEY)
            assert wait_until(lambda: queued(servers) == 1)
            began = time.monotonic()
            lease.release()
            waiters.end()
        assert waiters.served == ["second"] if is_head else ["first", "second"]
        return waiters.at["second"] - began

    assert is_prompt(trial)
    assert is_over(servers)


async def waiting(locks: awaitable.FastRedlock) -> None:
    before = locks.stats().waits
    await until(lambda: locks.stats().waits > before)


# --- the end of a client --------------------------------------------------------------


@pytest.mark.parametrize("way", ["cancelled", "left behind"])
def test_loop_when_it_ends_with_waiters_then_others_have_their_turn_and_the_next_works(
    make_locks: MakeLocks, urls: list[str], servers: Servers, kind: str, way: str
) -> None:
    holder, other = [connected(make_locks(urls)) for _ in range(2)]
    locks = awaitable.FastRedlock(urls)

    async def wait_a_while() -> list[asyncio.Task[awaitable.Lease | None]]:
        await locks.connect()
        tasks = []
        for _ in range(3):
            tasks.append(asyncio.ensure_future(locks.acquire(KEY, ttl=30)))
            await waiting(locks)
        await until(lambda: queued(servers) == 1)
        if way == "cancelled":
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return tasks

    async def take_it() -> None:
        async with locks:
            await released(await locks.acquire(KEY, timeout=5))

    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        loop = LOOPS[kind]()
        loop.set_exception_handler(lambda *_: None)  # tasks that are left behind
        tasks = loop.run_until_complete(wait_a_while())
        waiters.come("other", other)
        loop.close()
        del tasks
        loop = LOOPS[kind]()
        lease.release()
        waiters.end()
        loop.run_until_complete(take_it())
        loop.close()
    assert is_over(servers)


def test_fork_when_callers_wait_then_parent_and_child_queue_as_two(
    holder: FastRedlock, locks: FastRedlock, servers: Servers, urls: list[str]
) -> None:
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        waiters.come("parent", locks)
        child = Fork(lambda: take_at(locks))
        # A child that connects may enter at two masters, and leave one of them.
        assert wait_until(lambda: len(names_at(urls)) == queued(servers) == 2)
        assert f"{os.getpid()}" in names_at(urls)
        lease.release()
        waiters.end()
        assert child.result() > waiters.at["parent"]
    assert locks.stats().losses == 0
    assert is_over(servers)


def names_at(urls: list[str]) -> set[str]:
    """Return the numbers of the processes that wait, by the names of their clients."""
    queues = [queue_of(each, b"", KEY.encode()) for each in parse_masters(urls)]
    return {
        (each.owner or "").rpartition(":")[2]
        for each in itertools.chain(*queues)
        if each.client_name == "fastredlock"
    }


def take_at(locks: FastRedlock) -> float:
    with locks.lock(KEY, timeout=7):
        return time.monotonic()


# --- beside others --------------------------------------------------------------------


def test_callers_when_they_poll_queue_or_want_several_then_all_get_theirs(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    poller = connected(make_locks(urls, retry=Retry(delay=0.003)))
    locks, other = [connected(make_locks(urls)) for _ in range(2)]
    section, both = Section(0.001), [KEY, "another"]
    takes: list[Any] = [partial(each.acquire, KEY) for each in (poller, locks, other)]
    takes += [partial(each.acquire_all, both) for each in (locks, other)]

    def work(take: Any) -> None:
        for _ in range(8):
            lease = granted(take(timeout=10))
            with section:
                pass
            lease.release()
            time.sleep(0.005)  # a poller gets it between the turns of the others

    in_threads([partial(work, take) for take in takes])
    section.assert_exclusive()
    assert section.entered == 8 * 5
    assert is_over(servers)
    assert is_over(servers, "another")


BOTH = ("a", "b")


def test_keys_of_both_when_freed_one_by_one_then_go_to_who_waits_longest_for_both(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    """Seen: 64 transfers with waits of 3.9 s, where nested locks in order made 288."""
    holder, locks, *others = [connected(make_locks(urls)) for _ in range(4)]
    with Waiters() as waiters:
        first, second = [granted(holder.acquire(key)) for key in BOTH]
        waiters.come("both", locks, key=BOTH)
        for key, other in zip(BOTH, others, strict=True):
            waiters.come(key, other, key=key)
        first.release()
        time.sleep(0.1)  # its key is kept: nobody has it, and nobody may
        assert waiters.served == []
        second.release()
        waiters.end()
    assert waiters.served[0] == "both"
    assert sorted(waiters.served[1:]) == ["a", "b"]
    assert all(is_over(servers, key) for key in BOTH)


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("is_each", [True, False])
def test_release_of_several_when_others_queue_for_each_then_tells_them(
    make_locks: MakeLocks, urls: list[str], servers: Servers, n: int, is_each: bool
) -> None:
    """Seen: who waited for one of them found it with its next question."""
    holder, *others = [connected(make_locks(urls[:n])) for _ in range(4)]
    keys = ["a", "b", "c"]

    def trial() -> float:
        with Waiters() as waiters:
            each = holder.acquire_each(keys) if is_each else [holder.acquire_all(keys)]
            for key, other in zip(keys, others, strict=True):
                waiters.come(key, other, key=key)
            assert wait_until(lambda: all(queued(servers, key) == 1 for key in keys))
            began = time.monotonic()
            if is_each:
                holder.release_each(each)
            else:
                assert granted(each[0]).release() is ReleaseStatus.RELEASED
            waiters.end()
        return max(waiters.at.values()) - began

    assert is_prompt(trial)
    assert all(is_over(servers[:n], key) for key in keys)


def test_turn_when_the_key_was_set_and_given_back_then_its_caller_keeps_its_place(
    servers: Servers,
) -> None:
    """Seen: the entry was that of the next caller; another process went first."""
    server = servers[0]
    ours = ("token", 30_000, "ours", 3_000_000, 1_000_000)

    def run(script: bytes, *arguments: str | int) -> object:
        return server.execute_command("EVAL", script, 1, KEY, *arguments)

    for process, waited_us in (("ours", 3_000_000), ("theirs", 2_000_000)):
        run(scripts.ASK_TURN, process, waited_us, 0)
    for _ in range(3):
        assert run(scripts.TAKE_TURN, *ours) == 1  # theirs waits longer than our next
        server.delete(KEY)  # a quorum refused: the round is rolled back
    assert run(scripts.TAKE_TURN, "token", 30_000, "ours", 1_000_000, -1) == 2
    server.delete(queue_key(), "fastredlock:turn:" + KEY)


def test_own_release_script_when_others_wait_then_they_poll_and_get_it(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    ours = (
        b'if redis.call("get",KEYS[1])==ARGV[1] then '
        b'return redis.call("unlink",KEYS[1]) else return 0 end'
    )
    locks = connected(make_locks(urls, release_script=ours))
    lease = granted(locks.acquire(KEY))
    with Waiters() as waiters:
        waiters.start(lambda: waiters.take("poller", locks, timeout=5))
        assert wait_until(lambda: locks.stats().taken >= 2)
        lease.release()
    assert waiters.served == ["poller"]
    assert counter(locks, "waits") == 0
    assert not any(server.exists(queue_key()) for server in servers)
