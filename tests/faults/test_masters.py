"""Masters that fail, one way at a time: two of five are not noticed, three are told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError, ReleaseStatus, Vote
from fastredlock.testing import LocalMasters
from tests.support.calls import QUICK, granted, take_and_release
from tests.support.fake_server import Answer, FakeServer
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, settled_values
from tests.support.proxy import Proxy, swallowed_syn
from tests.support.waiting import SLACK, stopwatch, wait_until

MakeFake = Callable[..., FakeServer]


def stop(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.reset()


def close_after_accept(proxy: Proxy) -> None:
    proxy.set(closes_accepted=True)
    proxy.reset()


def black_hole(proxy: Proxy) -> None:
    proxy.set(swallows=True)


def drop_replies(proxy: Proxy) -> None:
    proxy.set(drops_replies=True)


def slow_by_50_ms(proxy: Proxy) -> None:
    proxy.set(delay=0.05)


def slow_by_500_ms(proxy: Proxy) -> None:
    proxy.set(delay=0.5)


def reset_in_a_reply(proxy: Proxy) -> None:
    proxy.set(cut_down_after=2, at_cut="reset")


def half_a_reply(proxy: Proxy) -> None:
    proxy.set(cut_down_after=2, at_cut="hold")


def half_close(proxy: Proxy) -> None:
    proxy.set(cut_down_after=2, at_cut="half-close")


# fault: what the three votes may say
NETWORK: dict[Callable[[Proxy], None], tuple[str, ...]] = {
    stop: ("connection refused", "connection reset", "connecting", "closed the"),
    close_after_accept: ("closed the connection", "connection reset", "no answer"),
    black_hole: ("no reply within",),
    drop_replies: ("no reply within",),
    slow_by_500_ms: ("no reply within",),
    reset_in_a_reply: ("connection reset", "no answer", "connecting"),
    half_a_reply: ("no reply within",),
    half_close: ("closed the connection", "no answer", "connecting"),
}

GARBAGE = b"HTTP/1.1 400 Bad Request\r\n\r\n"
# what the server says to SET, and what its vote says of that
SERVERS: dict[str, tuple[dict[bytes, Answer], str]] = {
    "garbage": ({b"SET": GARBAGE}, "something else than RESP"),
    "garbage at once": ({b"HELLO": GARBAGE}, "something else than RESP"),
    "half a reply": (
        {b"SET": b"+O", b"TIME": None, b"EVALSHA": None},
        "no reply within",
    ),
    "a huge header": ({b"SET": b"$104857600\r\n", b"TIME": None}, "no reply within"),
    "a huge array": (
        {b"SET": b"*4294967296\r\n"},
        "announces a million elements",
    ),
    "a huge reply": ({b"SET": b"$104857600\r\n" + b"x" * 2_000_000}, "over 1 MiB"),
    "closes": ({b"SET": b"", b"EVAL": b""}, "closed the connection"),
    "mute": ({b"SET": None}, "no reply within"),
    "mute at once": ({b"HELLO": None}, "no answer to the handshake"),
    "closes at once": ({b"HELLO": b""}, "closed the connection"),
    "an array": ({b"SET": b"*1\r\n:1\r\n"}, "unexpected reply of type list"),
    "a number": ({b"SET": b":1\r\n"}, "unexpected reply of type int"),
    "not OK": ({b"SET": b"+QUEUED\r\n"}, "unexpected reply of type bytes"),
}


@pytest.mark.parametrize("fault", [*NETWORK, slow_by_50_ms], ids=lambda f: f.__name__)
def test_fault_when_it_hits_two_of_five_then_the_caller_does_not_notice(
    proxies: list[Proxy],
    proxied: Callable[..., FastRedlock],
    fault: Callable[[Proxy], None],
) -> None:
    locks = proxied(**QUICK)
    for proxy in proxies[:2]:
        fault(proxy)
    with stopwatch() as elapsed:
        take_and_release(locks)
    assert elapsed() < SLACK


@pytest.mark.slow
@pytest.mark.parametrize("fault", NETWORK, ids=lambda f: f.__name__)
def test_fault_when_it_hits_three_of_five_then_raises_in_time_and_says_why(
    proxies: list[Proxy],
    proxied: Callable[..., FastRedlock],
    fault: Callable[[Proxy], None],
) -> None:
    locks = proxied(**QUICK)
    for proxy in proxies[:3]:
        fault(proxy)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0.2)
    assert elapsed() < 0.2 + 0.1 + SLACK
    votes = raised.value.votes
    assert {vote.vote for vote in votes[3:]} <= {Vote.GRANTED, Vote.PENDING}
    for vote in votes[:3]:
        assert vote.vote in (Vote.FAILED, Vote.SILENT)
        assert any(text in (vote.text or "") for text in NETWORK[fault]), vote


@pytest.mark.slow
@pytest.mark.parametrize("fault", NETWORK, ids=lambda f: f.__name__)
def test_fault_when_three_of_five_recover_then_a_waiting_acquire_is_granted(
    proxies: list[Proxy],
    proxied: Callable[..., FastRedlock],
    servers: list[redis.Redis],
    fault: Callable[[Proxy], None],
) -> None:
    locks = proxied(**QUICK)
    for proxy in proxies[:3]:
        fault(proxy)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire(KEY, timeout=0)
    for proxy in proxies[:3]:
        proxy.heal()
        proxy.reset()
        proxy.listen() if fault is stop else None
    with stopwatch() as elapsed:
        lease = granted(locks.acquire(KEY, timeout=5))
    assert elapsed() < 0.5 + SLACK
    assert lease.release() is ReleaseStatus.RELEASED
    assert settled_values(servers, [None] * 5, KEY) == [None] * 5


@pytest.mark.parametrize("said", SERVERS)
def test_server_when_two_of_five_speak_nonsense_then_the_caller_does_not_notice(
    make_fake: MakeFake, make_locks: MakeLocks, urls: list[str], said: str
) -> None:
    fakes = [make_fake(SERVERS[said][0]).url for _ in range(2)]
    locks = make_locks([*fakes, *urls[:3]], **QUICK)
    locks.connect()  # all three good ones are needed
    with stopwatch() as elapsed:
        take_and_release(locks)
    assert elapsed() < SLACK


@pytest.mark.parametrize("said", SERVERS)
def test_server_when_it_speaks_nonsense_then_its_vote_says_so(
    make_fake: MakeFake, make_locks: MakeLocks, said: str
) -> None:
    answers, text = SERVERS[said]
    locks = make_locks([make_fake(answers).url], **QUICK)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    assert elapsed() < 0.2 + SLACK
    (vote,) = raised.value.votes
    assert vote.vote in (Vote.FAILED, Vote.SILENT)
    assert text in (vote.text or "")


@pytest.fixture
def dead_syn() -> Iterator[list[str]]:
    with ExitStack() as opened:
        yield [opened.enter_context(swallowed_syn()) for _ in range(3)]


def test_syn_when_two_of_five_swallow_it_then_the_caller_does_not_notice(
    dead_syn: list[str], urls: list[str], make_locks: MakeLocks
) -> None:
    locks = make_locks([*dead_syn[:2], *urls[:3]], connect_timeout=5)
    with stopwatch() as elapsed:
        take_and_release(locks)
    assert elapsed() < SLACK


def test_syn_when_three_of_five_swallow_it_then_raises_within_the_timeout(
    dead_syn: list[str], urls: list[str], make_locks: MakeLocks
) -> None:
    locks = make_locks([*dead_syn, *urls[:2]], round_timeout=0.05, connect_timeout=5)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0.1)
    assert elapsed() < 0.1 + 0.05 + SLACK
    texts = {str(vote.text).split(": ")[-1] for vote in raised.value.votes[:3]}
    assert texts <= {"connecting", "connect timed out"}


@pytest.mark.slow
def test_pause_when_two_of_five_stand_still_then_the_caller_does_not_notice(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = make_locks(masters.urls, **QUICK)
    locks.connect()
    masters.pause(0)
    masters.pause(4)
    with stopwatch() as elapsed:
        take_and_release(locks)
    assert elapsed() < SLACK


@pytest.mark.slow
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_pause_when_others_answer_at_once_then_the_mute_one_is_given_up_all_the_same(
    make_locks: MakeLocks, unix: bool
) -> None:
    # Fast masters are read without a poll, and only the poll tells which is mute.
    with LocalMasters(5, unix=unix) as masters:
        locks = make_locks(masters.urls)
        locks.connect()
        masters.pause(0)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            take_and_release(locks)
        assert locks.health()[0].last_error is not None
        masters.resume(0)

        def is_back() -> bool:
            take_and_release(locks)
            return locks.health()[0].state.name == "READY"

        assert wait_until(is_back, within=3)


@pytest.mark.slow
def test_restart_when_a_quorum_comes_back_empty_then_is_used_again(
    masters: LocalMasters, make_locks: MakeLocks
) -> None:
    locks = make_locks(masters.urls)
    take_and_release(locks)
    for i in range(3):
        masters.stop(i)
        masters.start(i)
    # Scripts are forgotten with the keys: extend and release have to load them.
    lease = granted(locks.acquire(KEY, timeout=2))
    assert lease.extend() > 0
    assert lease.release() is ReleaseStatus.RELEASED
