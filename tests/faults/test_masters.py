"""Masters that fail, one way at a time: two of five are not noticed, three are told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from fastredlock import QuorumUnreachableError, ReleaseStatus, Vote
from tests.support.calls import QUICK, granted, take_and_release
from tests.support.fake_server import Answer, FakeServer
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, NOBODY, values
from tests.support.proxy import Proxy, swallowed_syn
from tests.support.waiting import SLACK, stopwatch, wait_until

MakeFake = Callable[..., FakeServer]


def stop(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.reset()


def close_after_accept(proxy: Proxy) -> None:
    proxy.set(closes_accepted=True)
    proxy.reset()


def setting(**faults: object) -> Callable[[Proxy], None]:
    return lambda proxy: proxy.set(**faults)


MINOR = "slow by 50 ms"  # a quorum of such masters answers in time
FAULTS: dict[str, Callable[[Proxy], None]] = {
    "stopped": stop,
    "closes after accept": close_after_accept,
    "a black hole": setting(swallows=True),
    "drops replies": setting(drops_replies=True),
    "slow by 500 ms": setting(delay=0.5),
    "reset in a reply": setting(cut_down_after=2, at_cut="reset"),
    "half a reply": setting(cut_down_after=2, at_cut="hold"),
    "half closed": setting(cut_down_after=2, at_cut="half-close"),
    MINOR: setting(delay=0.05),
}
# What the three votes may say; "no reply within" where nothing stands here.
TEXTS = {
    "stopped": ("connection refused", "connection reset", "connecting", "closed the"),
    "closes after accept": ("closed the connection", "connection reset", "no answer"),
    "reset in a reply": ("connection reset", "no answer", "connecting"),
    "half closed": ("closed the connection", "no answer", "connecting"),
}
SERIOUS = [name for name in FAULTS if name != MINOR]

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
    "a huge array": ({b"SET": b"*4294967296\r\n"}, "announces a million elements"),
    "a huge reply": ({b"SET": b"$104857600\r\n" + b"x" * 2_000_000}, "over 1 MiB"),
    "closes": ({b"SET": b"", b"EVAL": b""}, "closed the connection"),
    "mute": ({b"SET": None}, "no reply within"),
    "mute at once": ({b"HELLO": None}, "no answer to the handshake"),
    "closes at once": ({b"HELLO": b""}, "closed the connection"),
    "an array": ({b"SET": b"*1\r\n:1\r\n"}, "unexpected reply of type list"),
    "a number": ({b"SET": b":1\r\n"}, "unexpected reply of type int"),
    "an error": ({b"SET": b"-LOADING the dataset\r\n"}, "LOADING the dataset"),
    "not OK": ({b"SET": b"+QUEUED\r\n"}, "unexpected reply of type bytes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_when_it_hits_two_of_five_then_the_caller_does_not_notice(
    proxies: list[Proxy], proxied: MakeLocks, fault: str
) -> None:
    locks = proxied(**QUICK)
    for proxy in proxies[:2]:
        FAULTS[fault](proxy)
    with stopwatch() as elapsed:
        take_and_release(locks)
    assert elapsed() < SLACK


@pytest.mark.slow
@pytest.mark.parametrize("fault", SERIOUS)
def test_fault_when_it_hits_three_of_five_then_raises_in_time_says_why_and_recovers(
    proxies: list[Proxy], proxied: MakeLocks, servers: Servers, fault: str
) -> None:
    locks = proxied(**QUICK)
    for proxy in proxies[:3]:
        FAULTS[fault](proxy)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0.2)
    assert elapsed() < 0.2 + 0.1 + SLACK
    votes = raised.value.votes
    assert {vote.vote for vote in votes[3:]} <= {Vote.GRANTED, Vote.PENDING}
    for vote in votes[:3]:
        assert vote.vote in (Vote.FAILED, Vote.SILENT)
        texts = TEXTS.get(fault, ("no reply within",))
        assert any(text in (vote.text or "") for text in texts), vote
    for proxy in proxies[:3]:
        proxy.heal()
        proxy.reset()
        proxy.listen() if fault == "stopped" else None
    with stopwatch() as elapsed:
        lease = granted(locks.acquire(KEY, timeout=5))
    assert elapsed() < 0.5 + SLACK
    assert lease.release() is ReleaseStatus.RELEASED
    # What is deferred is sent by the next call, where no loop runs.
    assert wait_until(lambda: locks.holders(KEY) and values(servers) == NOBODY)


@blocking  # as the next ones: all drivers read replies in the same function
@pytest.mark.parametrize("said", SERVERS)
def test_server_when_it_speaks_nonsense_then_its_vote_says_so_and_two_are_no_matter(
    make_fake: MakeFake, make_locks: MakeLocks, urls: list[str], said: str
) -> None:
    answers, text = SERVERS[said]
    fakes = [make_fake(answers).url for _ in range(2)]
    locks = make_locks(fakes[:1], **QUICK)
    with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    assert elapsed() < 0.2 + SLACK
    (vote,) = raised.value.votes
    assert vote.vote in (Vote.FAILED, Vote.SILENT)
    assert text in (vote.text or "")
    locks = make_locks([*fakes, *urls[:3]], **QUICK)
    locks.connect()  # all three good ones are needed
    with stopwatch() as elapsed:
        take_and_release(locks)
    assert elapsed() < SLACK


def test_syn_when_it_is_swallowed_then_two_are_no_matter_and_three_end_in_time(
    urls: list[str], make_locks: MakeLocks
) -> None:
    with ExitStack() as opened:
        dead = [opened.enter_context(swallowed_syn()) for _ in range(3)]
        locks = make_locks([*dead[:2], *urls[:3]], connect_timeout=5)
        with stopwatch() as elapsed:
            take_and_release(locks)
        assert elapsed() < SLACK
        options = {"round_timeout": 0.05, "connect_timeout": 5}
        locks = make_locks([*dead, *urls[:2]], **options)
        with stopwatch() as elapsed, pytest.raises(QuorumUnreachableError) as raised:
            locks.acquire(KEY, timeout=0.1)
        assert elapsed() < 0.1 + 0.05 + SLACK
        texts = {str(vote.text).split(": ")[-1] for vote in raised.value.votes[:3]}
        assert texts <= {"connecting", "connect timed out"}


# --- error replies: a failed vote with the text, never a grant ------------------------


def test_real_server_when_the_key_is_a_list_then_release_finds_it_gone(
    make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    locks = make_locks(urls[:1])
    lease = granted(locks.acquire(KEY, timeout=0))
    servers[0].delete(KEY)
    servers[0].lpush(KEY, "not ours")
    assert lease.release() is ReleaseStatus.GONE
    assert locks.acquire(KEY, timeout=0) is None  # it exists: taken by somebody
    assert "WRONGTYPE" in (locks.holders(KEY)[0].text or "")
    assert servers[0].lrange(KEY, 0, -1) == [b"not ours"]
