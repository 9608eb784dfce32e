"""Forks in the middle of a step: nothing of it may go on in the child."""

from __future__ import annotations

import os
import signal
import ssl
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from fastredlock import FastRedlock, FastRedlockError, Lease, ReleaseStatus
from fastredlock import _core as core
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Raw, Servers, blocking
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.masters import pause, resume
from tests.support.processes import Fork
from tests.support.threads import beside
from tests.support.waiting import PATIENCE, wait_until

pytestmark = blocking


def fork_and_go_on() -> int:
    """Fork; return the child's process id, 0 in the child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        return os.fork()


def in_child(pid: int, work: Callable[[], object]) -> None:
    """End the child with the work's outcome, kill it if it hangs."""
    if pid == 0:
        signal.alarm(int(PATIENCE))
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)


def ended_well(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["write", "read", "do_handshake"])
def test_child_when_forked_while_another_thread_is_in_ssl_then_uses_that_master(
    tls_locks: FastRedlock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Seen: 55 of 150 children could never use one master again."""
    original = getattr(ssl.SSLObject, name)
    inside, go_on = threading.Event(), threading.Event()

    def wait_and_do(self: ssl.SSLObject, *args: Any) -> Any:
        if threading.current_thread() is thread:
            inside.set()
            go_on.wait(PATIENCE)
        return original(self, *args)

    def take() -> None:
        granted(tls_locks.acquire(KEY, ttl=60)).release()

    if name != "do_handshake":
        take()
    thread = threading.Thread(target=take)
    monkeypatch.setattr(ssl.SSLObject, name, wait_and_do)
    thread.start()
    assert inside.wait(PATIENCE)
    child = Fork(lambda: bool(tls_locks.acquire("childs", timeout=2)))
    go_on.set()
    thread.join()
    assert child.result() is True
    take()
    assert tls_locks.stats().losses == 0


@pytest.mark.slow
@pytest.mark.parametrize("uses", [False, True], ids=["idle", "used"])
@pytest.mark.parametrize("name", ["write", "read", "do_handshake"])
def test_child_when_forked_inside_ssl_of_its_own_round_then_that_ends_and_the_next_wins(
    tls_locks: FastRedlock, monkeypatch: pytest.MonkeyPatch, name: str, uses: bool
) -> None:
    """The child goes on inside the outer step, whose connection is not there."""
    original = getattr(ssl.SSLObject, name)
    pids: list[int] = []

    def fork_and_do(self: ssl.SSLObject, *args: Any) -> Any:
        monkeypatch.setattr(ssl.SSLObject, name, original)
        pids.append(fork_and_go_on())
        if pids == [0]:
            signal.alarm(int(PATIENCE))
            if uses:
                granted(tls_locks.acquire("inner", timeout=2))
        return original(self, *args)

    if name != "do_handshake":
        granted(tls_locks.acquire(KEY, ttl=60)).release()
    monkeypatch.setattr(ssl.SSLObject, name, fork_and_do)
    lease, error = None, None
    try:
        lease = tls_locks.acquire(KEY, ttl=60, timeout=1)  # the child waits for that
    except FastRedlockError as raised:
        error = raised
    if pids == [0]:
        in_child(0, lambda: tls_locks.acquire("childs", timeout=2))
    assert error is None
    assert granted(lease).is_valid
    assert ended_well(pids[0])
    assert granted(lease).release() is ReleaseStatus.RELEASED
    assert tls_locks.stats().losses == 0


@pytest.mark.slow
@pytest.mark.parametrize("uses", [False, True], ids=["idle", "used"])
@pytest.mark.parametrize("call", ["acquire", "acquire_each"])
def test_child_when_a_handler_forked_in_a_poll_then_leaves_the_parents_replies_alone(
    masters: LocalMasters, make_locks: MakeLocks, raw: Raw, uses: bool, call: str
) -> None:
    """Seen: the child went on with the parent's sockets, and read its replies."""
    locks = connected(make_locks(masters.urls, ttl=60, round_timeout=5))
    calls: dict[str, Callable[[], Any]] = {
        "acquire": lambda: locks.acquire(KEY, timeout=1.5),  # the child waits for that
        "acquire_each": lambda: locks.acquire_each([KEY])[0],
    }
    pause(masters, 3)
    pids: list[int] = []

    def on_alarm(*_: object) -> None:
        pids.append(fork_and_go_on())
        if pids[0]:
            resume(masters, 3)
        elif uses:
            granted(locks.acquire("inner", timeout=4))

    old = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    lease, error = None, None
    try:
        lease = calls[call]()
    except FastRedlockError as raised:
        error = raised
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if pids == [0]:
        in_child(0, lambda: locks.acquire("childs", timeout=4))
    signal.signal(signal.SIGALRM, old)
    assert error is None
    assert granted(lease).is_valid
    assert ended_well(pids[0])
    assert granted(lease).release() is ReleaseStatus.RELEASED
    assert locks.stats().losses == 0
    servers = [raw(url) for url in masters.urls]
    assert settled_values(servers, NOBODY) == NOBODY


def test_child_when_forked_in_a_close_then_ends(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = connected(make_locks(masters.urls, round_timeout=0.5))
    pause(masters, 3)
    with pytest.raises(FastRedlockError):
        locks.acquire(KEY, timeout=0)

    def use() -> str:
        with pytest.raises(FastRedlockError) as raised:
            locks.acquire(KEY, timeout=0)
        locks.close()
        return str(raised.value)

    with beside(locks.close):
        assert wait_until(lambda: locks._driver.engine.is_closed)
        child = Fork(use)
    resume(masters, 3)
    assert "closed" in child.result()


# --- before the lease -----------------------------------------------------------------


def test_round_when_the_process_forks_before_its_lease_then_the_child_has_none(
    locks: FastRedlock, servers: Servers
) -> None:
    engine, terms = locks._driver.engine, locks._driver.settings.default_terms
    round = engine.new_round(0, KEY.encode(), b"token", terms)
    core.blocking_run(engine, round)
    wanted: list[bytes | None] = [b"token"] * 5
    assert settled_values(servers, wanted, KEY) == wanted

    def in_child() -> bool:
        # The child goes on where the parent was: with a round that is won.
        is_valid = Lease(locks._driver, KEY, round).is_valid
        core.blocking_abandon(engine, round)
        granted = locks.acquire("childs", timeout=0)
        return is_valid or granted is None

    assert Fork(in_child).result() is False
    assert settled_values(servers, wanted, KEY) == wanted  # still the parent's
    lease = Lease(locks._driver, KEY, round)
    assert lease.is_valid
    assert lease.release().name == "RELEASED"
