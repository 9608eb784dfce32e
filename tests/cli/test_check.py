"""`fastredlock check`: servers that would lose locks, and servers that would not."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Iterator
from unittest.mock import MagicMock

import pytest

from fastredlock import FastRedlock
from fastredlock._cli.connection import Connection, ServerError
from fastredlock._options.masters import Endpoint
from fastredlock.testing import LocalCluster, LocalMasters, LocalSentinels
from tests.support.by_hand import info
from tests.support.certificates import Certificates, tls_master
from tests.support.fake_server import HTTP_REFUSAL, FakeServer, Stranger
from tests.support.fixtures import Raw, Servers
from tests.support.keys import set_all

from .conftest import Call, as_user

SAFE = ("--appendonly", "yes", "--appendfsync", "always")
LEAST = "+set +get +del +pexpire +eval +evalsha"
TURNS = "+subscribe +publish +time +exists +pttl +pexpire +@sortedset"


@pytest.fixture(scope="module")
def three() -> Iterator[LocalMasters]:
    """Run three masters with which nothing is wrong."""
    with LocalMasters(3, options=SAFE) as masters:
        yield masters


def check(call: Call, *urls: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    status, out, err = call("check", "--masters", ",".join(urls), *options)
    assert err == ""
    return status, out


def test_check_when_nothing_is_wrong_then_says_so_and_leaves_nothing(
    call: Call, three: LocalMasters, raw: Raw
) -> None:
    status, out = check(call, *three.urls)
    assert status == 0
    assert out.startswith("OK: 3 of 3 masters can vote\n")
    assert out.count("nothing found") == 3
    assert [raw(url).dbsize() for url in three.urls] == [0, 0, 0]


def test_check_when_asked_for_json_then_has_each_master_and_its_findings(
    call: Call, three: LocalMasters
) -> None:
    status, out = check(call, three.urls[0], three.urls[1], options=("--json",))
    told = json.loads(out)
    assert (status, told["status"]) == (1, "warning")
    said = "2 masters survive the loss of 0, as 1"
    assert told["findings"][0]["text"].startswith(said)
    first, _ = told["masters"]
    assert (first["may_vote"], first["role"], first["findings"]) == (True, "master", [])
    assert 0 <= first["latency"] < 1 > abs(first["clock_offset"])


# --- set-ups --------------------------------------------------------------------------

EVICTING = ("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
FULL = ("--maxmemory", "600kb", "--maxmemory-policy", "noeviction")
LATER = ("--appendonly", "yes", "--appendfsync", "everysec")


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ((*SAFE, *EVICTING), 2, ": evicts keys with a ttl (volatile-lru): an evicted"),
        ((*SAFE, *FULL), 1, "of its memory: when it is full, it refuses locks"),
        ((), 1, ": does not write each lock to a disk (appendonly no)"),
        (LATER, 1, ": writes to its disk later (appendfsync everysec)"),
        ((*SAFE, "--cluster-enabled", "yes"), 2, ": is a cluster node"),
        ((*SAFE, "--min-replicas-to-write", "1"), 1, "refuses SET (NOREPLICAS"),
        ((*SAFE, "--requirepass", "pw"), 1, "no vote: 127.0.0.1:"),
        ((*SAFE, "--rename-command", "EVALSHA", ""), 1, "s (EVALSHA: ERR unknown"),
        ((*SAFE, "--rename-command", "GET", ""), 1, "cannot release locks (GET: ERR"),
        ((*SAFE, "--rename-command", "PTTL", ""), 1, "holders() and `fastredlock who`"),
    ],
)
def test_check_when_one_of_three_is_set_up_wrong_then_says_what(
    call: Call, three: LocalMasters, options: tuple[str, ...], status: int, said: str
) -> None:
    with LocalMasters(1, options=options) as one:
        found = check(call, *three.urls[:2], *one.urls)
    assert (found[0], said in found[1]) == (status, True)


def test_check_when_clients_have_a_max_ttl_then_no_disk_is_needed(
    call: Call, urls: list[str], servers: Servers
) -> None:
    set_all(servers[:3], "run id", "fastredlock:voter")
    assert check(call, *urls[:3])[0] == 0
    servers[0].set("fastredlock:quarantine", "6000", px=6000)
    status, out = check(call, *urls[:3])
    said = "was restarted or emptied: clients with a max_ttl"
    assert (status, out.count(said)) == (1, 1)


def test_check_when_one_is_a_replica_then_it_cannot_vote(
    call: Call, three: LocalMasters, raw: Raw
) -> None:
    with (
        LocalMasters(1, options=SAFE) as replica,
        FakeServer({b"INFO": info(role="active-replica")}) as keydb,
    ):
        raw(replica.urls[0]).replicaof("127.0.0.1", three.ports[0])
        for url, said in (
            (replica.urls[0], ": is a replica: give the masters"),
            (keydb.url, "accept the same key at once, so it gets no vote"),
        ):
            status, out = check(call, *three.urls[:2], url)
            assert status == 1
            assert out.startswith("WARNING: 2 of 3 masters can vote\n")
            assert said in out


def test_check_when_two_urls_are_one_server_then_both_are_told(
    call: Call, three: LocalMasters
) -> None:
    twice = three.urls[0].replace("127.0.0.1", "localhost")
    status, out = check(call, *three.urls[:2], twice)
    assert status == 2
    assert out.startswith("CRITICAL: 2 of 3 masters can vote\n")
    assert out.count(": is the same server as ") == 2


def test_check_when_masters_listen_on_unix_sockets_then_they_are_asked_there(
    call: Call,
) -> None:
    options = (*SAFE, "--requirepass", "pw")
    with LocalMasters(1, unix=True, options=options) as masters:
        url = masters.urls[0].replace("unix://", "unix://:pw@")
        status, out = check(call, f"{url}?db=1")
    assert (status, "there is one master: where it fails" in out) == (1, True)
    assert "nothing found" in out


# --- servers that cannot be asked -----------------------------------------------------


def test_check_when_masters_are_away_then_counts_those_that_are_left(
    call: Call, masters: LocalMasters
) -> None:
    masters.stop(0)
    status, out = check(call, *masters.urls[:3])
    assert (status, out.splitlines()[0]) == (1, "WARNING: 2 of 3 masters can vote")
    assert ": cannot connect: Connection refused" in out
    masters.stop(1)
    status, out = check(call, *masters.urls[:3])
    assert (status, out.splitlines()[0]) == (2, "CRITICAL: 1 of 3 masters can vote")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"-DENIED Redis is running in protected mode\r\n", "DENIED Redis is running"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS: use rediss:// for this master"),
        (HTTP_REFUSAL, "answers, but not as a Redis server"),
    ],
)
def test_check_when_a_server_answers_otherwise_then_says_how(
    call: Call, answer: bytes, said: str
) -> None:
    with Stranger(answer) as stranger:
        host, port = stranger.address
        status, out = check(call, f"redis://{host}:{port}")
    assert status == 2
    assert f"no vote: {host}:{port}: {said}" in out.splitlines()[-1]


def test_question_when_the_server_has_refused_us_and_closed_then_has_its_reason() -> (
    None
):
    """Seen: "Broken pipe". The end without a linger fails our write."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint("127.0.0.1", server.getsockname()[1])
        with Connection(endpoint) as connection:
            with server.accept()[0] as accepted:
                at_once = struct.pack("ii", 1, 0)
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                accepted.sendall(b"-DENIED Redis is running in protected mode\r\n")
            with pytest.raises(ServerError, match="DENIED Redis is running"):
                connection.ask("INFO")


# --- rights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "level", "said"),
    [
        ("+@all ~*", "", ""),
        ("+@all -evalsha ~*", "no vote|warning", "EVALSHA"),  # or has native releases
        ("+@all -del ~*", "no vote", "so it gets no vote: grant +get +del"),
        ("+@all -pexpire ~*", "warning", "cannot extend leases|leases cannot be ext"),
        ("+@all %W~*", "no vote", "grant it the key to read, too (~ without %W)"),
        ("+@all -exists ~*", "warning", "acquire_all cannot be used; grant +exists"),
        ("+@all -exists ~*", "warning", "a free slot of a semaphore; grant +exists"),
        ("+@all -subscribe ~*", "warning", "callers cannot wait in turn, and poll"),
        ("+@all -zadd ~*", "warning", "callers cannot wait in turn, and poll"),
        ("+@all -pttl ~*", "warning", "holders() and `fastredlock who` cannot"),
        ("+@all -info ~*", "warning", "grant its user +info"),
        ("+@all -client +client|setname ~*", "note", "late live for their ttl; grant"),
        ("+@all -config ~*", "note", "does not tell its appendfsync"),
        ("+@all ~orders:* ~fastredlock:queue:*", "warning", "give --key, and how the"),
        ("+@all -set ~*", "no vote", "its user may not run SET (NOPERM"),
    ],
)
def test_check_when_a_right_is_missing_then_says_what_for_and_what_to_grant(
    call: Call, three: LocalMasters, raw: Raw, rules: str, level: str, said: str
) -> None:
    server = raw(three.urls[0])
    server.flushall()
    url = as_user(three.urls[0], f"&* {rules}")
    status, out = check(call, url, *three.urls[1:])
    assert status == (0 if level in ("", "note") else 1)
    found = [line for line in out.splitlines()[1:] if line[:1] != " "]
    pattern = "|".join(re.escape(text) for text in said.split("|"))
    assert any(re.match(f"({level}): .*({pattern})", line) for line in found) or (
        found == [] == [*level]
    )
    assert all(0 < server.pttl(key) <= 10_000 for key in server.scan_iter())


@pytest.mark.parametrize(
    ("rules", "options", "levels"),
    [
        (  # as the documents ask for
            f"{LEAST} {TURNS} +info ~orders:* ~fastredlock:* &fastredlock:*",
            ("--key", "orders:"),
            {"note"},
        ),
        (
            "~app:* &app:* +@all ~fastredlock:voter ~fastredlock:quarantine",
            ("--key-prefix", "app:"),
            set(),
        ),
    ],
)
def test_check_when_the_user_has_what_is_needed_then_nothing_is_wrong(
    call: Call,
    three: LocalMasters,
    rules: str,
    options: tuple[str, ...],
    levels: set[str],
) -> None:
    urls = [as_user(url, f"resetchannels {rules}") for url in three.urls]
    status, out = check(call, *urls, options=options)
    assert status == 0
    assert {line.split(":")[0] for line in out.splitlines()[4:]} == levels


def test_check_when_a_service_has_another_marker_then_that_is_asked_for(
    call: Call, three: LocalMasters
) -> None:
    rules = "resetchannels ~app:* &app:* +@all ~fastredlock:quarantine"
    url = as_user(three.urls[0], f"{rules} ~fastredlock:voter")
    options = "--key-prefix", "app:"
    assert "max_ttl cannot be used" not in check(call, url, options=options)[1]
    of_service = f"{url}{'&' if '?' in url else '?'}failover_window=2"
    assert "max_ttl cannot be used" in check(call, of_service, options=options)[1]


# --- endpoints ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "cost"),
    [
        (LocalSentinels, "15 s = 10 s + 1 s + 4 s (failover window)"),
        (LocalCluster, "14 s = 10 s + 1 s + 3 s (failover window)"),
    ],
)
def test_check_when_one_endpoint_is_well_set_up_then_ends_with_ok_and_its_cost(
    call: Call, setup: type[LocalSentinels | LocalCluster], cost: str
) -> None:
    options = "--max-ttl", "10"
    with setup() as service:
        status, out = check(call, service.url, options=options)
        assert (status, out.splitlines()[0]) == (0, "OK: 1 of 1 masters can vote")
        assert f"nobody gets one for {cost}" in out
        with FastRedlock([service.url], max_ttl=10) as locks:
            locks.connect()
        status, out = check(call, service.url, options=options)
        assert (status, "was restarted or emptied" in out) == (1, True)
        if setup is LocalSentinels:
            status, out = check(call, service.url + "?replicas=3", options=options)
            assert (status, "has 3 replicas" in out) == (2, True)


# --- logins and TLS -------------------------------------------------------------------

NO_LOGIN = "NOAUTH no password was given: redis://user:password@host"
WRONG_LOGIN = "WRONGPASS invalid username-password pair: correct it, or enable the user"


@pytest.mark.parametrize(
    ("login", "said"), [("", NO_LOGIN), (":wrong@", f"AUTH: {WRONG_LOGIN}")]
)
def test_commands_when_the_password_is_missing_or_wrong_then_give_the_remedy_alone(
    call: Call, login: str, said: str
) -> None:
    with LocalMasters(1, options=("--requirepass", "sesame")) as masters:
        url = masters.urls[0].replace("//", f"//{login}")
        name = masters.urls[0][8:-2]
        status, out = check(call, url)
        assert (status, out.splitlines()[-1]) == (2, f"no vote: {name}: {said}")
        assert "+info" not in out
        status, _, err = call("list", "--masters", url, "*")
        assert (status, err) == (69, f"fastredlock list: {name}: {said}\n")


def test_check_when_a_master_speaks_tls_then_its_certificate_is_looked_at(
    call: Call, three: LocalMasters, certificates: Certificates
) -> None:
    with tls_master(certificates) as (_, port):
        url = f"rediss://127.0.0.1:{port}"
        trusted = check(call, f"{url}?ssl_ca_certs={certificates.authority}")[1]
        strange = check(call, url, *three.urls[:2])[1]
    assert "WARNING: 1 of 1 masters can vote" in trusted
    assert "no vote: 127.0.0.1:" in strange
    assert "certificate verify failed" in strange


def test_check_when_a_tls_port_is_asked_in_plain_then_asks_for_rediss(
    call: Call, certificates: Certificates
) -> None:
    with tls_master(certificates) as (_, port):
        status, out = check(call, f"redis://127.0.0.1:{port}")
    assert status == 2
    assert "rediss://" in out.splitlines()[-1]
    with Stranger(b"") as stranger:
        host, port = stranger.address
        status, out = check(call, f"redis://{host}:{port}")
    assert out.splitlines()[-1].endswith(": does this port want rediss://?")


def test_check_when_a_name_has_a_final_dot_then_its_certificate_is_of_it_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From: valkey-io/valkey-operator#425; RFC 6066, section 3."""
    context = MagicMock()
    monkeypatch.setattr("fastredlock._cli.connection.context_of", lambda _: context)
    monkeypatch.setattr("socket.create_connection", MagicMock())
    Connection(Endpoint("redis-0.test.", 6379))
    assert context.wrap_socket.call_args.kwargs == {"server_hostname": "redis-0.test"}


@pytest.mark.slow
def test_check_when_a_plain_port_is_asked_by_tls_then_asks_whether_it_speaks_it(
    call: Call, urls: list[str]
) -> None:
    status, out = check(call, urls[0].replace("redis:", "rediss:"))
    text = "no answer to TLS yet: does the server speak it on this port?"
    assert (status, out.splitlines()[-1]) == (2, f"no vote: {urls[0][8:-2]}: {text}")
