"""`credentials=`: a login that changes, and a function of the caller's that fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    QuorumUnreachableError,
)
from fastredlock.testing import LocalMasters
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Raw, Servers
from tests.support.keys import KEY
from tests.support.settings import MASTERS, new_settings
from tests.support.waiting import stopwatch, wait_until

SECRET = "pa55-word"
ALL = "on ~* &* +@all"


class Vault:
    """A user of three servers, whose password changes there and here."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.calls = 0
        self.change(f"{SECRET}-0")
        for server in servers:  # nobody comes in without a login, but for ourselves
            server.execute_command("ACL SETUSER default -@all +acl +client")

    def change(self, password: str) -> None:
        """Let the servers take this password alone, and end all connections."""
        for server in self.servers:
            server.execute_command(f"ACL SETUSER app {ALL} resetpass >{password}")
        self.password = password
        for server in self.servers:
            server.execute_command("CLIENT KILL USER app")

    def login(self) -> tuple[str, str]:
        self.calls += 1
        return "app", self.password


@pytest.fixture
def three() -> Iterator[LocalMasters]:
    with LocalMasters(3) as masters:
        yield masters


@pytest.fixture
def vault(three: LocalMasters, raw: Raw) -> Vault:
    return Vault([raw(url) for url in three.urls])


# --- rotation -------------------------------------------------------------------------


def test_password_that_changes_while_locks_are_taken_costs_no_call(
    make_locks: MakeLocks, three: LocalMasters, vault: Vault
) -> None:
    locks = make_locks(three.urls, credentials=vault.login)
    held = granted(locks.acquire("held", ttl=60))
    ended, taken, errors = threading.Event(), [], []

    def work(name: str) -> None:
        while not ended.is_set():
            try:
                with locks.lock(name, timeout=5):
                    taken.append(name)
            except FastRedlockError as error:
                errors.append(error)

    if isinstance(locks, FastRedlock):  # by several threads, where these may share it
        workers = [threading.Thread(target=work, args=(f"r{i}",)) for i in range(3)]
    else:
        workers = [threading.Thread(target=work, args=("r",))]
    for worker in workers:
        worker.start()
    for i in range(1, 6):
        count = len(taken)
        vault.change(f"{SECRET}-{i}")
        assert wait_until(
            lambda i=i, count=count: len(taken) > count + 20 and vault.calls >= 3 * i
        )
    ended.set()
    for worker in workers:
        worker.join()
    assert errors == []
    assert vault.calls >= 15  # of each connection
    assert held.extend() > 0
    for i in range(6, 9):  # one try, behind the end of all connections
        granted(locks.acquire(KEY, timeout=0)).release()
        vault.change(f"{SECRET}-{i}")


def test_password_that_is_refused_is_asked_for_anew_at_the_next_connection(
    make_locks: MakeLocks, three: LocalMasters, vault: Vault
) -> None:
    locks = make_locks(three.urls, credentials=vault.login)
    right, vault.password = vault.password, f"{SECRET}-old"
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    assert "WRONGPASS" in str(raised.value)
    assert SECRET not in str(raised.value)
    vault.password = right
    granted(locks.acquire(KEY, timeout=1))


@pytest.mark.parametrize(
    "login",
    [lambda p: p, lambda p: (p,), lambda p: [b"default", p.encode()]],
    ids=["password", "tuple", "bytes"],
)
def test_login_may_have_the_forms_of_redis_py(
    make_locks: MakeLocks, login: Callable[[str], Any]
) -> None:
    with LocalMasters(1, options=("--requirepass", SECRET)) as masters:
        locks = make_locks(masters.urls, credentials=lambda: login(SECRET))
        granted(locks.acquire(KEY, timeout=0)).release()


def test_provider_of_redis_py_is_used_as_option_in_a_dict_and_in_a_client(
    make_locks: MakeLocks, three: LocalMasters, vault: Vault
) -> None:
    provider = redis.UsernamePasswordCredentialProvider("app", vault.password)
    port = three.ports
    masters = [
        {"host": "127.0.0.1", "port": port[0], "credential_provider": provider},
        redis.Redis(host="127.0.0.1", port=port[1], credential_provider=provider),
        redis.asyncio.Redis(port=port[2], credential_provider=provider),
    ]
    for locks in (make_locks(masters), make_locks(three.urls, credentials=provider)):
        assert [master.votes for master in locks.ping()] == [True] * 3


# --- a function that fails ------------------------------------------------------------


async def coroutine() -> str:
    return SECRET


def raising() -> None:
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising, "their function raised ValueError"),
        (lambda: None, "their function returned a NoneType: allowed is (user name,"),
        (lambda: {SECRET: SECRET}, "their function returned a dict"),
        (lambda: (SECRET, 5), "their function returned a tuple (str, int)"),
        (lambda: (SECRET,) * 3, "their function returned a tuple (str, str, str)"),
        (lambda: (), "their function returned a tuple ()"),
        (lambda: SECRET + "\ud800", "their function returned a str"),
        (coroutine, "their function returned a coroutine: give a plain function"),
        (lambda secret: secret, "their function raised TypeError"),
    ],
)
def test_function_that_raises_or_returns_rubbish_is_the_vote_of_its_master(
    make_locks: MakeLocks,
    urls: list[str],
    caplog: pytest.LogCaptureFixture,
    function: Callable[..., Any],
    said: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    locks = make_locks(urls, credentials=function, connect_timeout=10)
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    assert f"credentials: {said}" in (raised.value.votes[0].text or "")
    for text in (str(raised.value), repr(locks), str(locks.health()), caplog.text):
        assert SECRET not in text


def test_function_that_blocks_delays_its_own_master_alone_and_is_called_once(
    make_locks: MakeLocks, three: LocalMasters
) -> None:
    calls, go_on = [], threading.Event()

    def blocking() -> str:
        calls.append(1)
        go_on.wait(20)
        return ""

    port = three.ports[0]
    slow = {"host": "127.0.0.1", "port": port, "credential_provider": blocking}
    locks = make_locks([slow, *three.urls[1:]], connect_timeout=0.1)
    with stopwatch() as seconds:
        granted(locks.acquire(KEY, timeout=0)).release()
    assert seconds() < 5
    told = locks.ping(0.4)
    assert [master.votes for master in told] == [False, True, True]
    assert told[0].last_error == "its credentials take too long"
    locks.ping(0.4)
    assert calls == [1]
    go_on.set()
    assert wait_until(lambda: locks.ping(0.4)[0].votes)
    assert calls == [1]  # its late answer was used


def test_close_does_not_wait_for_a_function_that_blocks(
    make_locks: MakeLocks, three: LocalMasters
) -> None:
    go_on = threading.Event()
    locks = make_locks(
        three.urls, credentials=lambda: go_on.wait(20), connect_timeout=0.1
    )
    with pytest.raises(QuorumUnreachableError, match="credentials take too long"):
        locks.acquire(KEY, timeout=0.3)
    with stopwatch() as seconds:
        locks.close()
    assert seconds() < 5
    go_on.set()


# --- options --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"credentials": SECRET}, "credentials of type str: allowed is a function"),
        ({"credentials": ("app", SECRET)}, "credentials of type tuple"),
        ({"client_name": "two words"}, "client_name='two words': allowed are"),
        ({"client_name": ""}, "client_name=''"),
        ({"client_name": "ü"}, "client_name='ü'"),
        ({"client_name": 5}, "client_name=5"),
    ],
)
def test_option_that_is_wrong_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        new_settings(**options)
    assert said in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "master",
    [
        f"redis://:{SECRET}@d",
        "redis://user@d",
        {"host": "d", "credential_provider": lambda: SECRET},
    ],
)
def test_credentials_beside_a_login_of_a_master_are_refused(master: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"masters\[3\] has a login") as raised:
        new_settings([*MASTERS, master], credentials=lambda: SECRET)
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigurationError, match="give one of them"):
        new_settings([{"password": SECRET, "credential_provider": lambda: SECRET}])
