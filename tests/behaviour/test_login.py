"""Every way to reach a master and to log in there; no text shows a password."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest
import redis

from fastredlock import FastRedlock, QuorumUnreachableError, ReleaseStatus
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted, reason
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY, settled_values

SECRET = "pa55-word"
# What a server before Redis 6 says to HELLO is said by every server without HELLO.
NO_HELLO = ("--rename-command", "HELLO", "")


def with_login(url: str, login: str) -> str:
    return url.replace("redis://", f"redis://{login}@")


def assert_works(locks: FastRedlock) -> None:
    lease = locks.acquire(KEY, timeout=0)
    assert lease
    assert lease.extend(5) > 0
    assert lease.release() is ReleaseStatus.RELEASED


def our_connection(server: redis.Redis) -> dict[str, Any]:
    """Return how the server sees the connection of a FastRedlock."""
    found = [each for each in server.client_list() if each["name"] == "fastredlock"]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("options", [(), NO_HELLO], ids=["RESP3", "no HELLO"])
def test_password_when_right_then_locks(
    make_locks: MakeLocks, options: tuple[str, ...]
) -> None:
    with LocalMasters(1, options=("--requirepass", SECRET, *options)) as masters:
        assert_works(make_locks([with_login(masters.urls[0], f":{SECRET}")]))


@pytest.mark.parametrize("options", [(), NO_HELLO], ids=["RESP3", "no HELLO"])
def test_password_when_wrong_then_the_vote_says_wrongpass(
    make_locks: MakeLocks, options: tuple[str, ...]
) -> None:
    with LocalMasters(1, options=("--requirepass", "other", *options)) as masters:
        told = reason(make_locks([with_login(masters.urls[0], f":{SECRET}")]))
    assert "WRONGPASS invalid username-password pair: correct it, or enable" in told


def test_password_when_missing_then_the_vote_says_noauth(make_locks: MakeLocks) -> None:
    with LocalMasters(1, options=("--requirepass", SECRET)) as masters:
        assert reason(make_locks(masters.urls)) == (
            "HELLO: NOAUTH no password was given: redis://user:password@host"
        )


def test_password_when_wrong_on_a_minority_then_the_others_grant(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    with LocalMasters(1, options=("--requirepass", "other")) as masters:
        locks = make_locks([*urls[:2], with_login(masters.urls[0], f":{SECRET}")])
        assert_works(locks)


def test_password_when_anything_fails_then_is_in_no_message_repr_or_log(
    make_locks: MakeLocks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with LocalMasters(1, options=("--requirepass", "other")) as masters:
        locks = make_locks([with_login(masters.urls[0], f"user:{SECRET}")])
        with pytest.raises(QuorumUnreachableError) as raised:
            locks.acquire(KEY, timeout=0)
        with pytest.raises(QuorumUnreachableError) as refused:
            locks.connect()
    told = [str(raised.value), repr(raised.value), repr(refused.value), repr(locks)]
    told += [str(refused.value), caplog.text, repr(raised.value.votes)]
    assert SECRET not in "\n".join(told)
    assert "WRONGPASS" in told[0]


def test_acl_user_when_the_password_is_right_then_logs_in_as_that_user(
    make_locks: MakeLocks, raw: Raw
) -> None:
    with LocalMasters(1) as masters:
        server = raw(masters.urls[0])
        server.acl_setuser(
            "ann", True, passwords=["+" + SECRET], keys=["*"], commands=["+@all"]
        )
        locks = make_locks([with_login(masters.urls[0], f"ann:{SECRET}")])
        assert_works(locks)
        assert our_connection(server)["user"] == "ann"


def test_acl_user_when_the_password_is_wrong_then_the_vote_says_wrongpass(
    make_locks: MakeLocks, raw: Raw
) -> None:
    with LocalMasters(1) as masters:
        raw(masters.urls[0]).acl_setuser("ann", True, passwords=["+right"])
        told = reason(make_locks([with_login(masters.urls[0], f"ann:{SECRET}")]))
    assert "WRONGPASS" in told


def test_acl_user_when_setname_and_script_load_are_forbidden_then_locks_all_the_same(
    make_locks: MakeLocks, raw: Raw
) -> None:
    allowed = ["hello", "auth", "set", "get", "del", "pexpire", "eval", "evalsha"]
    with LocalMasters(1) as masters:
        raw(masters.urls[0]).acl_setuser(
            "ann",
            True,
            passwords=["+" + SECRET],
            keys=["*"],
            commands=[f"+{command}" for command in allowed],
        )
        assert_works(make_locks([with_login(masters.urls[0], f"ann:{SECRET}")]))


def test_acl_user_when_set_is_forbidden_then_the_vote_says_noperm(
    make_locks: MakeLocks, raw: Raw
) -> None:
    with LocalMasters(1) as masters:
        raw(masters.urls[0]).acl_setuser(
            "ann", True, nopass=True, keys=["*"], commands=["+@all", "-set"]
        )
        told = reason(make_locks([with_login(masters.urls[0], "ann:x")]))
    assert told.startswith("NOPERM")


def test_connection_when_opened_then_speaks_resp3_under_our_name(
    make_locks: MakeLocks, raw: Raw
) -> None:
    with LocalMasters(1) as masters:
        assert_works(make_locks(masters.urls))
        found = our_connection(raw(masters.urls[0]))
        if "resp" not in found:
            pytest.skip("this server is too old to tell the protocol (Redis < 7)")
        assert found["resp"] == "3"


def test_connection_when_the_server_has_no_hello_then_speaks_resp2_and_locks(
    make_locks: MakeLocks, raw: Raw
) -> None:
    with LocalMasters(1, options=NO_HELLO) as masters:
        assert_works(make_locks(masters.urls))
        assert our_connection(raw(masters.urls[0])).get("resp", "2") == "2"


def test_db_when_given_then_the_key_is_there_and_not_in_db_0(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], raw: Raw
) -> None:
    there = [raw(url.replace("/0", "/3")) for url in urls]
    locks = connected(make_locks([url.replace("/0", "/3") for url in urls]))
    lease = granted(locks.acquire(KEY, timeout=0))
    assert settled_values(there, [lease.token] * 5) == [lease.token] * 5
    assert [server.dbsize() for server in servers] == [0] * 5
    assert lease.votes[0].master.endswith("/3")


def test_db_when_out_of_range_then_the_vote_says_so(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = make_locks([urls[0].replace("/0", "/99")])
    assert reason(locks) == "SELECT: ERR DB index is out of range"


def test_unix_sockets_when_named_by_url_then_lock(make_locks: MakeLocks) -> None:
    with LocalMasters(3, unix=True) as masters:
        locks = make_locks(masters.urls)
        assert_works(locks)
        assert repr(locks).count("unix:/") == 3


def test_unix_socket_when_there_is_no_server_then_the_vote_says_so(
    make_locks: MakeLocks,
) -> None:
    locks = make_locks(["unix:///nowhere/redis.sock"])
    assert reason(locks) == "no such file or directory"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_ipv6_when_named_by_url_then_locks(make_locks: MakeLocks) -> None:
    with LocalMasters(1, options=("--bind", "::1")) as masters:
        locks = make_locks([masters.urls[0].replace("127.0.0.1", "[::1]")])
        assert_works(locks)
        assert "[::1]:" in repr(locks)


def test_host_name_when_localhost_then_is_looked_up_and_locks(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    locks = connected(
        make_locks([url.replace("127.0.0.1", "localhost") for url in urls])
    )
    assert_works(locks)


def test_host_name_when_it_cannot_exist_then_the_vote_says_look_up(
    make_locks: MakeLocks,
) -> None:
    # Over 63 characters between two dots: refused without asking anybody.
    locks = make_locks([f"redis://{'x' * 64}.invalid:1"], connect_timeout=10, ttl=100)
    assert "name look-up" in reason(locks)


def test_masters_when_given_in_every_form_then_lock(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis]
) -> None:
    ports = [int(url.split(":")[2].split("/")[0]) for url in urls]
    pair = ("127.0.0.1", ports[1])
    settings = {"host": "127.0.0.1", "port": ports[2], "socket_timeout": 3}
    locks = connected(make_locks([urls[0], pair, settings, *servers[3:]]))
    lease = granted(locks.acquire(KEY, timeout=0))
    assert settled_values(servers, [lease.token] * 5) == [lease.token] * 5


def test_redis_py_client_when_given_then_its_socket_is_not_used(
    make_locks: MakeLocks, urls: list[str], servers: list[redis.Redis], raw: Raw
) -> None:
    client = raw(urls[0])
    locks = make_locks([client, *urls[1:]])
    assert_works(locks)
    locks.close()
    assert client.ping()
