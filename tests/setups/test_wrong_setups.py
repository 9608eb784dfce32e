"""Masters that are not N independent masters: found at connect, told once."""

from __future__ import annotations

import logging
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock._core import MasterState
from fastredlock.testing import LocalMasters
from fastredlock.testing._local import _find_program
from tests.support.by_hand import (
    START_NS,
    S,
    info,
    make_ready,
    new_engine,
)
from tests.support.calls import connected, granted, reason
from tests.support.fake_server import FakeServer
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY
from tests.support.local_servers import has_ipv6
from tests.support.waiting import is_listening, wait_until


def warnings_of(caplog: pytest.LogCaptureFixture, locks: FastRedlock) -> list[str]:
    """Use the masters several times; return what logger `fastredlock` was told."""
    with caplog.at_level(logging.WARNING):
        locks.connect()
        for _ in range(3):
            if lease := locks.acquire(KEY, timeout=0):
                lease.release()
    assert {record.name for record in caplog.records} <= {"fastredlock"}
    return [record.getMessage() for record in caplog.records]


def unix_path(masters: LocalMasters, raw: Raw) -> str:
    return str(raw(masters.urls[0]).config_get("unixsocket")["unixsocket"])


# --- one server under several names ---------------------------------------------------


@pytest.mark.parametrize("alias", ["localhost", "[::1]", "unix"])
def test_server_when_given_twice_under_two_names_then_has_one_vote(
    make_locks: MakeLocks, raw: Raw, caplog: pytest.LogCaptureFixture, alias: str
) -> None:
    if alias == "[::1]" and not has_ipv6():
        pytest.skip("this machine has no IPv6 on its loopback")
    binds = ("--bind", "127.0.0.1", *(["::1"] if has_ipv6() else []))
    with LocalMasters(1, options=binds) as masters:
        url = masters.urls[0]
        second = url.replace("127.0.0.1", alias)
        if alias == "unix":
            second = f"unix://{unix_path(masters, raw)}"
        locks = make_locks([url, second, url.replace("127.0.0.1", "127.0.0.2")])
        with pytest.raises(QuorumUnreachableError, match="one server has one vote"):
            warnings_of(caplog, locks)
        told = [record.getMessage() for record in caplog.records]
        assert len([text for text in told if "is the same server as" in text]) == 1
        assert raw(url).dbsize() == 0  # the one vote was rolled back


@pytest.mark.parametrize("both_fail_over", [False, True])
def test_server_when_given_plain_and_as_one_that_fails_over_then_has_one_vote(
    make_locks: MakeLocks, both_fail_over: bool
) -> None:
    # samcook/RedLock.net#91: endpoints that are known to fail over are compared, too.
    with LocalMasters(1) as masters:
        url = masters.urls[0].replace("127.0.0.1", "localhost") + "?failover_window=0.1"
        plain = masters.urls[0].removesuffix("/0") + "/1"
        if both_fail_over:
            plain += "?failover_window=0.1"
        locks = make_locks([url, plain, "redis://127.0.0.1:1"], ttl=1, max_ttl=1)
        with pytest.raises(QuorumUnreachableError, match="one server has one vote"):
            locks.connect()


def test_server_when_its_double_goes_away_then_the_other_name_gets_the_vote() -> None:
    said = info(run_id="same", uptime_in_seconds=9)
    engine = make_ready(new_engine(2), [said, said])
    assert engine.states[0][1] == ""
    assert "is the same server as 127.0.0.1:7001" in engine.states[1][1]
    assert [name for name, _ in engine.warnings] == ["127.0.0.1:7002"]
    for after_s in range(1, 9):
        make_ready(engine, [said, said], START_NS + after_s * S)
    assert len(engine.warnings) == 1


# --- servers that are no masters of their own -----------------------------------------


@contextmanager
def sentinel(folder: Path) -> Iterator[tuple[str, int]]:
    """Run a Sentinel that watches nothing, on a port that was free just now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = folder / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\n")
    argv = [_find_program(None), str(config), "--sentinel"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            assert wait_until(lambda: is_listening(("127.0.0.1", port)))
            yield "127.0.0.1", port
        finally:
            process.kill()


NO_MASTERS = {  # how it is started, what is said, and whether its vote says so as well
    "replica": ("--replicaof 127.0.0.1 1", "is a replica: give the masters", True),
    "Sentinel": ("", "is a Sentinel, not a master", True),
    "cluster node": ("--cluster-enabled yes", "is a cluster node", False),
    "cache": (
        "--maxmemory 100mb --maxmemory-policy volatile-lru",
        *("evicts keys with a ttl (volatile-lru)", False),
    ),
}


@pytest.mark.parametrize("kind", NO_MASTERS)
def test_server_when_it_is_no_master_that_keeps_locks_then_is_told_once(
    make_locks: MakeLocks, urls: list[str], tmp_path: Path,
    caplog: pytest.LogCaptureFixture, kind: str,
) -> None:  # fmt: skip
    options, text, never_grants = NO_MASTERS[kind]
    with ExitStack() as opened:
        if kind == "Sentinel":
            third: object = opened.enter_context(sentinel(tmp_path))
        else:
            third = opened.enter_context(LocalMasters(1, options=options.split())).urls[
                0
            ]
        locks = make_locks([*urls[:2], third])
        (told,) = warnings_of(caplog, locks)
        assert text in told
        if never_grants:
            lease = granted(locks.acquire(KEY, timeout=0))
            locks.holders(KEY)  # waits for all: reads the slowest reply as well
            assert text in str(lease.votes[2].text)
        elif kind == "cache":
            assert locks.health()[2].warnings == (told.partition(": ")[2],)


# --- masters that can lose keys -------------------------------------------------------


def test_good_setup_when_used_then_logs_nothing(
    make_locks: MakeLocks, urls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(caplog, make_locks(urls)) == []


# --- servers that say little before a login, or nothing at all ------------------------


def test_server_when_paused_then_nothing_is_said_about_tls(
    make_locks: MakeLocks,
) -> None:
    """Seen: "does this port want rediss://?" of a server that stands still; it grew."""
    with LocalMasters(1) as masters:
        masters.pause(0)
        locks = make_locks(masters.urls, connect_timeout=0.05)
        said = {reason(locks) for _ in range(5)}
    late = "not connected in time: "
    (silent,) = said - {f"{late}connecting", f"{late}no answer to the handshake yet"}
    assert silent == "no answer to the handshake within 0.05 s: paused or overloaded?"


def test_server_when_it_hangs_up_at_the_first_plain_word_then_tls_is_guessed(
    make_locks: MakeLocks,
) -> None:
    with FakeServer({b"HELLO": b""}) as server:
        locks = make_locks([server.url])
        said = [reason(locks) for _ in range(5)][-1]
    assert said.endswith("(before it said anything: does this port want rediss://?)")
    assert said.count("rediss://") == 1


# --- health() -------------------------------------------------------------------------


def test_health_when_all_is_well_then_tells_what_the_servers_are(
    make_locks: MakeLocks, urls: list[str], raw: Raw
) -> None:
    # Of another prefix, else others' lists are compared.
    locks = connected(make_locks(urls, key_prefix="own:", round_timeout=2))
    for _ in range(5):
        granted(locks.acquire(KEY, timeout=0)).release()
    for url, health in zip(urls, locks.health(), strict=True):
        said = raw(url).info()
        assert health.master in url
        assert health.state is MasterState.READY
        assert (health.version, health.run_id) == (
            said.get("valkey_version", said["redis_version"]),
            said["run_id"],
        )
        assert (health.role, health.policy) == ("master", "noeviction")
        assert health.uptime is not None
        assert (health.clock_step, health.last_error, health.warnings) == (0, None, ())
    # The slowest of five is not waited for: it may have no sample yet.
    trips = [health.round_trip for health in locks.health()]
    assert len([trip for trip in trips if trip is not None and 0 < trip < 1]) >= 3
