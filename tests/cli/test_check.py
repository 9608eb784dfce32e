"""`fastredlock check`: servers that would lose locks, and servers that would not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import MagicMock

import pytest

from fastredlock._cli.connection import Server, ServerError
from fastredlock._options.masters import Endpoint, TLSSettings
from fastredlock.testing import LocalCluster, LocalMasters, LocalSentinels
from tests.support.by_hand import info
from tests.support.certificates import Certificates, tls_master
from tests.support.fake_server import FakeServer
from tests.support.fixtures import Raw, Servers
from tests.support.keys import set_all
from tests.support.processes import environment_of_children

from .conftest import Call, as_user

SAFE = ("--appendonly", "yes", "--appendfsync", "always")


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
    assert [raw(url).keys() for url in three.urls] == [[], [], []]


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
        ((*SAFE, "--min-replicas-to-write", "1"), 1, ": NOREPLICAS"),
        ((*SAFE, "--requirepass", "pw"), 1, "no vote: 127.0.0.1:"),
        ((*SAFE, "--rename-command", "EVALSHA", ""), 1, "s (EVALSHA: ERR unknown"),
        ((*SAFE, "--rename-command", "GET", ""), 1, "cannot release locks (GET: ERR"),
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
    for kind in ("normal", "pubsub"):  # clients of other tests, with other masters
        for server in servers[:3]:
            server.client_kill_filter(_type=kind, skipme=True)
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


def test_check_when_two_urls_are_one_server_then_one_of_them_has_no_vote(
    call: Call, three: LocalMasters
) -> None:
    twice = three.urls[0].replace("127.0.0.1", "localhost")
    status, out = check(call, *three.urls[:2], twice)
    assert status == 2
    assert out.startswith("CRITICAL: 2 of 3 masters can vote\n")
    assert out.count("critical: 127.0.0.1:") + out.count("critical: localhost:") == 1
    assert out.count(": is the same server as ") == 1


# --- rights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "status", "said"),
    [
        ("+@all ~*", 0, ""),
        ("+@all -del ~*", 1, "no vote: 127.0.0.1:"),
        ("+@all -del ~*", 1, "so it gets no vote: grant +get +del"),
        ("+@all -set ~*", 1, "no vote: 127.0.0.1:"),
        ("+@all -info ~*", 1, "grant its user +info"),
        ("+@all -config ~*", 1, "warning: 127.0.0.1:"),
        ("+@all ~orders:* ~fastredlock:queue:*", 1, "give --key, and how the names"),
    ],
)
def test_check_when_a_right_is_missing_then_says_what_a_client_would(
    call: Call, three: LocalMasters, raw: Raw, rules: str, status: int, said: str
) -> None:
    url = as_user(three.urls[0], f"&* {rules}")
    found = check(call, url, *three.urls[1:])
    assert (found[0], said in found[1]) == (status, True)
    assert raw(three.urls[0]).keys() == []


@pytest.mark.parametrize(
    ("rules", "options", "status"),
    [
        ("~orders:*", ("--key", "orders:"), 0),
        ("~orders:*", ("--key", "bills:"), 2),
        ("~app:*", ("--key-prefix", "app:"), 0),
    ],
)
def test_check_when_names_are_given_then_tries_whether_the_user_may_write_them(
    call: Call, three: LocalMasters, rules: str, options: tuple[str, ...], status: int
) -> None:
    urls = [as_user(url, f"+@all {rules} ~fastredlock:*") for url in three.urls]
    assert check(call, *urls, options=options)[0] == status


# --- as a client with a max_ttl -------------------------------------------------------


def test_check_when_masters_were_restarted_then_counts_the_votes_of_a_client(
    call: Call, masters: LocalMasters, raw: Raw
) -> None:
    """Seen: "3 of 3 can vote" where the guard withheld two. And it writes nothing."""
    for index in (0, 1):
        masters.stop(index)
        masters.start(index)
    urls = masters.urls[:3]
    assert check(call, *urls)[1].startswith("WARNING: 3 of 3 masters can vote\n")
    raw(urls[2]).set("fastredlock:voter", raw(urls[2]).info()["run_id"])
    raw(urls[2]).set("fastredlock:quarantine:lifted", raw(urls[2]).info()["run_id"])
    status, out = check(call, *urls, options=("--max-ttl", "3600"))
    assert (status, out.splitlines()[0]) == (2, "CRITICAL: 1 of 3 masters can vote")
    assert out.count(", votes ") == 1
    assert [len(raw(url).keys()) for url in urls] == [0, 0, 2]


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
        assert check(call, service.url)[0] == 0
        status, out = check(call, service.url, options=options)
        assert (status, out.count(", votes "), "nobody" in out) == (2, 1, True)
        call("quarantine", "--masters", service.url, "--lift", "--yes", *options)
        status, out = check(call, service.url, options=options)
        assert (status, out.splitlines()[0]) == (0, "OK: 1 of 1 masters can vote")
        assert f"nobody gets one for {cost}" in out
        if setup is LocalSentinels:
            status, out = check(call, service.url + "?replicas=3", options=options)
            assert (status, "has 3 replicas" in out) == (2, True)


def test_check_when_redis_py_is_missing_then_says_what_is_not_known(
    urls: list[str],
) -> None:
    program = "import sys; sys.modules['redis'] = None; from fastredlock import cli; "
    for words, status in ((["check"], 1), (["list"], 71), (["quarantine"], 71)):
        told = subprocess.run(
            [sys.executable, "-c", f"{program}sys.exit(cli.main({words!r}))"],
            env=environment_of_children() | {"FASTREDLOCK_MASTERS": ",".join(urls[:3])},
            capture_output=True,
            text=True,
        )
        assert told.returncode == status
        assert "needs redis-py: pip install" in told.stdout + told.stderr


# --- logins and TLS -------------------------------------------------------------------

NO_LOGIN = "NOAUTH no password was given: redis://user:password@host"
WRONG_LOGIN = "WRONGPASS invalid username-password pair: correct it, or enable the user"


@pytest.mark.parametrize(("login", "said"), [("", NO_LOGIN), (":wrong@", WRONG_LOGIN)])
def test_commands_when_the_password_is_missing_or_wrong_then_give_the_remedy_alone(
    call: Call, login: str, said: str
) -> None:
    with LocalMasters(1, options=("--requirepass", "sesame")) as masters:
        url = masters.urls[0].replace("//", f"//{login}")
        name = masters.urls[0][8:-2]
        status, out = check(call, url)
        assert (status, out.count(f"no vote: {name}: "), said in out) == (2, 1, True)
        assert "+info" not in out
        status, _, err = call("list", "--masters", url, "*")
        assert (status, err.startswith(f"fastredlock list: {name}: ")) == (69, True)
        assert "wrong@" not in out + err


def test_check_when_a_master_speaks_tls_then_its_certificate_is_looked_at(
    call: Call, three: LocalMasters, certificates: Certificates
) -> None:
    with tls_master(certificates) as (_, port):
        url = f"rediss://127.0.0.1:{port}"
        trusted = check(call, f"{url}?ssl_ca_certs={certificates.authority}")[1]
        strange = check(call, url, *three.urls[:2])[1]
    assert "WARNING: 1 of 1 masters can vote" in trusted
    assert "no vote: 127.0.0.1:" in strange
    assert re.search("TLS: (self-signed|unable to get local issuer) cert", strange)


def test_check_when_a_name_has_a_final_dot_then_its_certificate_is_of_it_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From: valkey-io/valkey-operator#425; RFC 6066, section 3."""
    context = MagicMock()
    context.wrap_socket.side_effect = OSError
    monkeypatch.setattr("fastredlock._cli.connection.context_of", lambda _: context)
    monkeypatch.setattr("redis.Connection._connect", MagicMock())
    with pytest.raises(ServerError):
        Server(Endpoint("redis-0.test.", 6379, tls=TLSSettings())).ask("PING")
    assert context.wrap_socket.call_args.kwargs == {"server_hostname": "redis-0.test"}
