"""What INFO says of a server, without a server: text in, values out."""

from __future__ import annotations

import signal
import time
from collections import deque
from itertools import repeat
from operator import length_hint

import pytest

from fastredlock._core import ServerClock, ServerInfo
from tests.support.by_hand import MS, S


def test_server_info_when_info_is_whole_then_holds_what_it_said() -> None:
    found = ServerInfo(
        b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"
        b"run_id:abc\r\nuptime_in_seconds:17\r\n# Replication\r\nrole:master\r\n"
        b"maxmemory:0\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n"
    )
    assert found.run_id == "abc"
    assert found.uptime_s == 17
    assert found.version == "7.0.15"
    assert (found.role, found.mode) == ("master", "standalone")
    assert found.policy == "noeviction"
    assert found.warnings() == []
    assert found.refusal() is None


@pytest.mark.parametrize(
    "reply", [None, b"", b"\xff\xfe:\r\n", 17, [b"run_id:abc"], Exception("NOPERM")]
)
def test_server_info_when_info_tells_nothing_then_is_none(reply: object) -> None:
    found = ServerInfo(reply)
    assert (found.run_id, found.uptime_s, found.version) == (None, None, None)
    assert (found.role, found.mode, found.policy) == (None, None, None)
    assert (found.warnings(), found.refusal()) == ([], None)


@pytest.mark.parametrize(
    ("uptime", "seconds"),
    [
        *((odd, None) for odd in (b"", b"-1", b"1.5", b"soon", b"\xc2\xb2")),
        (b"9" * 5000, 10**20 - 1),  # absurd
    ],
)
def test_server_info_when_uptime_is_no_whole_number_then_is_none(
    uptime: bytes, seconds: int | None
) -> None:
    assert ServerInfo(b"uptime_in_seconds:" + uptime + b"\r\n").uptime_s == seconds


def test_server_info_when_the_server_is_valkey_then_version_is_its_own() -> None:
    found = ServerInfo(
        b"redis_version:7.2.4\r\nvalkey_version:8.1.0\r\nserver_mode:x\r\n"
    )
    assert (found.version, found.mode) == ("8.1.0", "x")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"cluster_enabled:1\r\n", "is a cluster node"),
        (b"redis_mode:cluster\r\n", "is a cluster node"),
        (b"maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n", "(volatile-lru)"),
        (b"maxmemory:9\r\nmaxmemory_policy:allkeys-lfu\r\n", "(allkeys-lfu)"),
    ],
)
def test_warnings_when_a_server_can_lose_locks_then_say_how(
    said: bytes, text: str
) -> None:
    (warning,) = ServerInfo(said).warnings()
    assert text in warning


def test_warnings_when_an_evicting_policy_has_no_limit_then_are_none() -> None:
    said = b"maxmemory:0\r\nmaxmemory_policy:volatile-lru\r\n"
    assert ServerInfo(said).warnings() == []


def test_refusal_when_role_is_active_replica_then_says_why() -> None:
    assert "accept the same key at once" in str(
        ServerInfo(b"role:active-replica").refusal()
    )


def clock_reply(ns: int) -> list[bytes]:
    return [b"%d" % (ns // S), b"%d" % (ns % S // 1000)]


@pytest.mark.parametrize("drift", [0, 1])  # of a two-hundredth
def test_clock_when_it_drifts_by_less_than_a_hundredth_then_sees_no_jump(
    drift: int,
) -> None:
    clock = ServerClock()
    for at_ns in range(1_000 * S, 2_000 * S, 5 * S):
        said_ns = at_ns + 7 * S + drift * at_ns // 200
        assert not clock.on_time(clock_reply(said_ns), at_ns, at_ns + MS)
    assert clock.step_ns == 0


@pytest.mark.parametrize("step_ns", [3 * S, -3 * S, 200 * MS])
def test_clock_when_it_jumps_then_tells_the_step_once(step_ns: int) -> None:
    clock = ServerClock()
    clock.on_time(clock_reply(1_000 * S), 1_000 * S, 1_000 * S)
    assert clock.on_time(clock_reply(1_005 * S + step_ns), 1_005 * S, 1_005 * S)
    assert clock.step_ns == step_ns
    assert not clock.on_time(clock_reply(1_010 * S + step_ns), 1_010 * S, 1_010 * S)


def test_clock_when_the_reply_took_long_then_is_not_judged() -> None:
    clock = ServerClock()
    clock.on_time(clock_reply(1_000 * S), 1_000 * S, 1_000 * S)
    assert not clock.on_time(clock_reply(1_009 * S), 1_005 * S, 1_006 * S)
    assert clock.step_ns == 0


@pytest.mark.parametrize(
    "reply",
    [None, b"12", [], [b"1"], [b"a", b"b"], [None, None], [b"9" * 30, b"0"]],
)
def test_clock_when_the_reply_is_no_time_then_is_ignored(reply: object) -> None:
    assert not ServerClock().on_time(reply, S, S)


def test_reply_to_time_when_it_is_taken_then_no_signal_is_looked_for() -> None:
    """Seen: an exception of a handler in there, and a lost connection."""
    on_time, reply = ServerClock().on_time, clock_reply(1_700_000_000 * S)
    moments = iter([S] * 300_000)
    left: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: left.append(length_hint(moments)))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        # All calls come from C, which looks for no signals by itself.
        deque(map(on_time, repeat(reply), moments, repeat(S)), maxlen=0)
        while not left:
            time.sleep(0.001)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert left == [0]
