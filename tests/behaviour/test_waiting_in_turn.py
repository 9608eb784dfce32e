"""First come, first served: over threads, tasks, clients, processes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
import redis

from fastredlock import FastRedlock, ReleaseStatus, ResourceTakenError, Retry, Vote
from fastredlock._options import scripts
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, blocking
from tests.support.keys import KEY, set_all
from tests.support.lock_process import (
    line_of,
    release_adopted,
    take,
    take_in_turn,
    worker,
)
from tests.support.threads import in_threads
from tests.support.waiters import (
    FALL_BACK,
    PROMPT,
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
from tests.support.waiting import stopwatch, wait_until

# --- order ----------------------------------------------------------------------------


def test_threads_when_they_wait_then_are_served_in_the_order_of_their_coming(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    names = [f"{i}" for i in range(12)]
    with Waiters() as waiters:
        lease = granted(locks.acquire(KEY))
        for name in names:
            waiters.come(name, locks)
        lease.release()
    assert waiters.served == names
    assert is_over(servers)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_clients_when_they_wait_then_are_served_in_the_order_of_their_coming(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], n: int
) -> None:
    holder, *others = [connected(make_locks(urls[:n])) for _ in range(7)]
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY))
        for i, each in enumerate(others):
            waiters.come(f"{i}", each)
            time.sleep(0.04)  # a ticket is late by the way of its message
        assert wait_until(lambda: queued(servers) == 6)
        lease.release()
    assert waiters.served == [f"{i}" for i in range(6)]
    assert is_over(servers[:n])


def test_clients_when_they_list_the_masters_in_other_orders_then_have_one_gate(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
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


def test_callers_of_two_clients_when_mixed_then_the_longest_waiting_is_next(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    both = [connected(make_locks(urls, cohort=0)) for _ in range(2)]
    with Waiters() as waiters:
        lease = granted(connected(make_locks(urls)).acquire(KEY))
        for i in range(10):
            waiters.come(f"{i}", both[i // 2 % 2])  # two of each
            time.sleep(0.04)  # a ticket is late by the way of its message
        assert wait_until(lambda: queued(servers) == 2)
        lease.release()
    assert waiters.served == [f"{i}" for i in range(10)]
    assert is_over(servers)


@pytest.mark.slow
@blocking
@pytest.mark.parametrize("n", [1, 5])
def test_processes_when_they_wait_then_are_served_in_the_order_of_their_coming(
    urls: list[str], servers: list[redis.Redis], tmp_path: Path,
    make_locks: MakeLocks, n: int,
) -> None:  # fmt: skip
    counter = tmp_path / "counter"
    counter.write_text("0")
    lease = granted(connected(make_locks(urls[:n])).acquire(KEY, ttl=30))
    with ExitStack() as running:
        processes = []
        for i in range(4):
            call = worker(take_in_turn, urls[:n], KEY, str(counter), 1)
            processes.append(running.enter_context(call))
            assert wait_until(lambda i=i: queued(servers) == i + 1)
        lease.release()
        at = [int(line_of(process)) for process in processes]
        assert [process.wait(20) for process in processes] == [0] * 4
    assert at == sorted(at)
    assert counter.read_text() == "4"
    assert is_over(servers)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 5])
def test_clients_when_each_takes_it_again_at_once_then_all_have_their_share(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], n: int
) -> None:
    """The last holder queues, too: it was 1 grant to 851."""
    clients = [connected(make_locks(urls[:n])) for _ in range(4)]
    section, ends = Section(), time.monotonic() + 1
    grants = [0] * len(clients)

    def work(i: int) -> None:
        while time.monotonic() < ends:
            lease = granted(clients[i].acquire(KEY))
            with section:
                grants[i] += 1
                time.sleep(0.002)
            lease.release()

    in_threads([lambda i=i: work(i) for i in range(4)])
    section.assert_exclusive()
    assert min(grants) > 10
    assert min(grants) > 0.5 * max(grants)
    assert is_over(servers[:n])


@pytest.mark.slow
def test_threads_when_each_takes_it_again_at_once_then_all_have_their_share(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    section, ends = Section(), time.monotonic() + 1
    grants = [0] * 6

    def work(i: int) -> None:
        while time.monotonic() < ends:
            lease = granted(locks.acquire(KEY))
            with section:
                grants[i] += 1
                time.sleep(0.001)
            lease.release()

    in_threads([lambda i=i: work(i) for i in range(6)])
    section.assert_exclusive()
    assert min(grants) > 10
    assert min(grants) > 0.5 * max(grants)
    assert is_over(servers)


def test_holder_when_another_waits_then_its_next_acquire_comes_behind(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    last, other = [connected(make_locks(urls)) for _ in range(2)]
    section, behind = Section(), 0
    with Waiters() as waiters:
        for i in range(10):
            lease = granted(last.acquire(KEY))
            waiting = waiters.come(f"{i}", other, hold=0.005)
            assert wait_until(lambda: queued(servers) == 1)
            lease.release()
            lease = granted(last.acquire(KEY, timeout=5))
            with section:
                assert waiting.done() or waiters.section.inside == 0
                behind += len(waiters.served) == i + 1
            lease.release()
            waiting.result()
    # Where the gate answers behind a quorum, the holder does not know in time.
    assert behind >= 5


# --- how soon -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 5])
def test_release_when_another_client_waits_then_tells_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], n: int
) -> None:
    holder, waiter = [connected(make_locks(urls[:n])) for _ in range(2)]
    took = []
    for i in range(9):
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY))
            waiters.come("waiter", waiter)
            assert wait_until(lambda: queued(servers) == 1)
            time.sleep(0.013 * i)  # at no time that a timer would suit
            began = time.monotonic()
            lease.release()
            waiters.end()
            took.append(waiters.at["waiter"] - began)
    assert sorted(took)[4] < PROMPT / 4, took
    assert is_over(servers[:n])
    assert counter(waiter, "turns_told") >= 8


@pytest.mark.slow
def test_release_by_adopt_in_another_process_then_tells_the_waiter(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    waiter = connected(make_locks(urls))

    def trial() -> float:
        with Waiters() as waiters, worker(take, urls, KEY, 30.0) as holder:
            token = line_of(holder)
            waiters.come("waiter", waiter)
            assert wait_until(lambda: queued(servers) == 1)
            with worker(release_adopted, urls, KEY, token) as adopter:
                released_ns = int(line_of(adopter))
            waiters.end()
        return waiters.at["waiter"] - released_ns / 1e9

    assert is_prompt(trial)
    assert is_over(servers)


def test_release_inside_one_client_then_its_next_caller_follows_at_once(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks = connected(make_locks(urls, cohort=0))  # else it is not released
    with Waiters() as waiters:
        lease = granted(locks.acquire(KEY))
        for i in range(50):
            waiters.come(f"{i}", locks)
        began = time.monotonic()
        lease.release()
        waiters.end()
    assert max(waiters.at.values()) - began < 2  # 50 polls would take over 5 s
    assert counter(locks, "handed_over") >= 15  # or by a push: the CPU may be busy
    assert is_over(servers)


@pytest.mark.slow
def test_waiters_when_the_lock_is_held_then_ask_the_masters_next_to_nothing(
    locks: FastRedlock, servers: list[redis.Redis], make_locks: MakeLocks,
    urls: list[str],
) -> None:  # fmt: skip
    def commands() -> int:
        return max(map(commands_of, servers))

    holder = connected(make_locks(urls))
    with Waiters() as waiters:
        lease = granted(holder.acquire(KEY, ttl=30))
        for i in range(40):
            waiters.come(f"{i}", locks)
        before = commands()
        time.sleep(1)
        # Four questions and four tries; the gate's scripts count what they call.
        assert commands() - before < 90
        lease.release()
    assert is_over(servers)


@pytest.mark.slow
def test_key_when_it_expires_then_the_waiter_has_it_right_after(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, waiter = [connected(make_locks(urls)) for _ in range(2)]
    late = []
    for _ in range(5):
        with Waiters() as waiters:
            granted(holder.acquire(KEY, ttl=0.35))
            expires = time.monotonic() + 0.35
            waiters.come("waiter", waiter)
            waiters.end()
            late.append(waiters.at["waiter"] - expires)
    assert min(late) > -0.1
    assert sorted(late)[2] < PROMPT / 4, late


def test_lock_when_nobody_waits_for_it_any_more_then_is_sent_what_any_other_is(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
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
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]
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


def test_retry_when_it_has_a_delay_then_polls_and_is_in_no_queue(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    set_all(servers, b"another")
    locks = connected(make_locks(urls, retry=Retry(delay=0.02, jitter=0)))
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=0.2) is None
    assert elapsed() >= 0.2
    assert locks.stats().rounds >= 4
    assert (counter(locks, "waits"), queued(servers)) == (0, 0)
    assert all(not server.keys("fastredlock:*") for server in servers)


def test_pollers_when_others_queue_then_both_get_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    poller = connected(make_locks(urls, retry=Retry(delay=0.003)))
    section, ends = Section(), count()
    locks = connected(make_locks(urls))

    def work(each: FastRedlock) -> None:
        for _ in range(10):
            lease = granted(each.acquire(KEY, timeout=10))
            with section:
                time.sleep(0.001)
            lease.release()
            time.sleep(0.002)
            next(ends)

    in_threads([lambda each=each: work(each) for each in (poller, locks, locks)])
    section.assert_exclusive()
    assert next(ends) == 30
    assert is_over(servers)


# --- the end of the caller's time -----------------------------------------------------


def test_acquire_when_its_time_ends_in_the_queue_then_returns_none_and_leaves_it(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]
    granted(holder.acquire(KEY, ttl=30))
    with stopwatch() as elapsed:
        assert locks.acquire(KEY, timeout=0.3) is None
    assert 0.3 <= elapsed() < 0.3 + 4 * FALL_BACK
    assert counter(locks, "waits") >= 1
    assert wait_until(lambda: queued(servers) == 0)


def test_lock_when_its_time_ends_in_the_queue_then_raises_with_real_votes(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]
    granted(holder.acquire(KEY, ttl=30))
    with pytest.raises(ResourceTakenError) as raised, locks.lock(KEY, timeout=0.1):
        pass
    assert [vote.vote for vote in raised.value.votes].count(Vote.TAKEN) >= 3
    assert 0.1 <= raised.value.elapsed < 0.1 + 4 * FALL_BACK
    assert raised.value.attempts == 2
    assert wait_until(lambda: queued(servers) == 0)


@pytest.mark.parametrize("is_one_client", [True, False])
@pytest.mark.parametrize("is_head", [True, False])
def test_waiter_when_its_time_ends_then_the_others_keep_their_order(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis],
    is_one_client: bool, is_head: bool,
) -> None:  # fmt: skip
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]
    hasty = locks if is_one_client else connected(make_locks(urls))

    def trial() -> float:
        with Waiters() as waiters:
            lease = granted(holder.acquire(KEY, ttl=30))
            if not is_head:
                waiters.come("first", locks)
            ends = waiters.come("hasty", hasty, timeout=0.15)
            waiters.come("second", locks)
            assert ends.result() is False
            began = time.monotonic()
            lease.release()
            waiters.end()
        assert waiters.served == ["second"] if is_head else ["first", "second"]
        return waiters.at["second"] - began

    assert is_prompt(trial)
    assert is_over(servers)


# --- beside others --------------------------------------------------------------------


def test_acquire_all_when_others_queue_for_one_of_its_keys_then_all_get_theirs(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    locks, other = [connected(make_locks(urls)) for _ in range(2)]
    section, keys = Section(), [KEY, "another"]

    def all_of_them(each: FastRedlock) -> None:
        for _ in range(5):
            lease = granted(each.acquire_all(keys, timeout=10))
            with section:
                time.sleep(0.001)
            lease.release()
            time.sleep(0.005)

    def one(each: FastRedlock) -> None:
        for _ in range(10):
            lease = granted(each.acquire(KEY, timeout=10))
            with section:
                time.sleep(0.001)
            lease.release()
            time.sleep(0.005)

    works = [lambda w=w, e=e: w(e) for w in (all_of_them, one) for e in (locks, other)]
    in_threads(works)
    section.assert_exclusive()
    assert section.entered == 30
    assert is_over(servers)
    assert is_over(servers, "another")


def test_acquire_each_when_others_queue_for_one_then_gets_the_rest(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    with Waiters() as waiters:
        lease = granted(locks.acquire(KEY))
        waiters.come("one", locks)
        leases = locks.acquire_each(["a", KEY, "b"])
        assert [bool(each) for each in leases] == [True, False, True]
        lease.release()
        locks.release_each([each for each in leases if each])
    for key in ("a", KEY, "b"):
        assert is_over(servers, key)


def test_release_each_when_others_queue_then_tells_them(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    holder, locks = [connected(make_locks(urls)) for _ in range(2)]
    keys = ["a", "b", "c"]

    def trial() -> float:
        with Waiters() as waiters:
            leases = holder.acquire_each(keys)
            for key in keys:
                waiters.come(key, locks, key=key)
            assert wait_until(lambda: all(queued(servers, key) == 1 for key in keys))
            began = time.monotonic()
            holder.release_each([granted(each) for each in leases])
            waiters.end()
        return max(waiters.at.values()) - began

    assert is_prompt(trial)


@pytest.mark.parametrize("n", [1, 5])
def test_release_of_several_when_others_queue_for_each_then_tells_them(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], n: int
) -> None:
    """Seen: who waited for one of them found it with its next question."""
    holder, *others = [connected(make_locks(urls[:n])) for _ in range(4)]
    keys = ["a", "b", "c"]

    def trial() -> float:
        with Waiters() as waiters:
            lease = granted(holder.acquire_all(keys))
            for key, each in zip(keys, others, strict=True):
                waiters.come(key, each, key=key)
            assert wait_until(lambda: all(queued(servers, key) == 1 for key in keys))
            began = time.monotonic()
            assert lease.release() is ReleaseStatus.RELEASED
            waiters.end()
        return max(waiters.at.values()) - began

    assert is_prompt(trial)
    assert all(is_over(servers[:n], key) for key in keys)


def test_scripts_when_the_servers_have_lost_them_then_no_entry_is_left(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    """Seen: the gate never set the key, and kept the entry of the last waiter."""
    clients = [connected(make_locks(urls)) for _ in range(3)]
    for _ in range(5):
        for server in servers:
            server.script_flush()
        with Waiters() as waiters:
            lease = granted(clients[0].acquire(KEY, ttl=30))
            waiters.come("first", clients[1])
            waiters.come("second", clients[2])
            lease.release()
        assert sorted(waiters.served) == ["first", "second"]
        for client in clients:
            client.holders(KEY)  # a blocking client reads late replies in its next call
        assert is_over(servers)


def test_given_tokens_when_their_callers_wait_then_each_has_its_own(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    numbers = count()
    clients = [
        connected(make_locks(urls, new_token=lambda: b"token %d" % next(numbers)))
        for _ in range(2)
    ]
    with Waiters() as waiters:
        lease = granted(clients[0].acquire(KEY))
        for i in range(8):
            waiters.come(f"{i}", clients[i % 2])
            time.sleep(0.04)
        lease.release()
    assert waiters.served == [f"{i}" for i in range(8)]
    assert is_over(servers)


def test_turn_when_the_key_was_set_and_given_back_then_its_caller_keeps_its_place(
    servers: list[redis.Redis],
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
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    ours = (
        b'if redis.call("get",KEYS[1])==ARGV[1] then '
        b'return redis.call("unlink",KEYS[1]) else return 0 end'
    )
    locks = connected(make_locks(urls, release_script=ours))
    lease = granted(locks.acquire(KEY))
    with Waiters() as waiters:
        waiters.start(lambda: waiters.take("poller", locks, timeout=5))
        time.sleep(0.05)
        lease.release()
    assert waiters.served == ["poller"]
    assert counter(locks, "waits") == 0
    assert not any(server.exists(queue_key()) for server in servers)


def test_waiters_of_two_resources_when_one_is_released_then_the_other_waits_on(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    with Waiters() as waiters:
        leases = [granted(locks.acquire(key)) for key in ("a", "b")]
        first = waiters.come("a", locks, key="a")
        other = waiters.come("b", locks, key="b")
        leases[0].release()
        assert first.result()
        assert not other.done()
        leases[1].release()
    assert waiters.served == ["a", "b"]


def test_max_ttl_when_masters_may_vote_then_callers_queue(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    options = {"ttl": 0.3, "max_ttl": 0.3}
    clients = [make_locks(urls, **options) for _ in range(3)]
    for each in clients:
        assert wait_until(lambda each=each: is_voted(each))
    with Waiters() as waiters:
        lease = granted(clients[0].acquire(KEY))
        with begins_to_wait(clients[1]):
            waiters.start(lambda: waiters.take("first", clients[1], timeout=5))
        waiters.come("second", clients[2])
        lease.release()
    assert waiters.served == ["first", "second"]


def is_voted(locks: FastRedlock) -> bool:
    try:
        with granted(locks.acquire("warm", timeout=0)) as lease:
            return len(lease.votes) == 5
    except Exception:
        return False
