"""Connections that end beside open rounds and releases; names of two addresses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from shutil import which

import pytest

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.asyncio import FastRedlock as AwaitableFastRedlock
from fastredlock.testing import LocalMasters
from tests.support import ending_programs
from tests.support.fixtures import MakeLocks
from tests.support.masters import pause, resume
from tests.support.processes import running
from tests.support.proxy import Proxy, swallowed_syn
from tests.support.waiting import is_listening, until, wait_until

ENDS = ("exit", "child", "close", "dropped", "awaited close", "awaited dropped")
CALLS = ("connect()", "ping()", "acquire('r', timeout=0)")
NAMED = """
import sys, time
from fastredlock import FastRedlock
locks = FastRedlock([sys.argv[1]])
began = time.monotonic()
locks.{}
assert time.monotonic() - began < 0.5 and locks.has_quorum
"""


def are_free(urls: list[str], resource: str) -> bool:
    with FastRedlock(urls) as locks:
        return all(vote.remaining_ms == -2 for vote in locks.holders(resource))


@pytest.mark.slow
def test_acquire_when_masters_wake_up_after_its_connections_ended_then_leaves_no_key(
) -> None:  # fmt: skip
    with LocalMasters(3) as masters, FastRedlock(masters.urls, ttl=20) as locks:
        with locks.lock("before"):
            pause(masters, 2)
        with pytest.raises(QuorumUnreachableError):
            locks.acquire("r")
        resume(masters, 2)
        assert wait_until(lambda: are_free(masters.urls, "r"))


@pytest.mark.slow
def test_awaited_release_when_its_master_comes_back_then_is_sent_without_a_call() -> (
    None
):
    async def use(masters: LocalMasters) -> None:
        async with AwaitableFastRedlock(masters.urls, ttl=20) as locks:
            lease = await locks.acquire("r")
            assert lease is not None
            pause(masters, 1)
            await lease.release()
            await until(lambda: locks.stats().losses)  # overdue, and given up
            resume(masters, 1)
            assert await asyncio.to_thread(
                wait_until, lambda: are_free(masters.urls, "r")
            )

    with LocalMasters(3) as masters:
        asyncio.run(use(masters))


def test_close_when_a_connection_is_cut_as_the_release_leaves_then_sends_it_again(
    proxies: list[Proxy], proxied: MakeLocks
) -> None:
    locks = proxied()
    lease = locks.acquire("r")
    assert lease is not None
    proxies[0].set(swallows=True)
    lease.release()
    proxies[0].heal()
    proxies[0].reset()
    locks.close()
    urls = [proxy.url for proxy in proxies]
    assert wait_until(lambda: are_free(urls, "r"))


@pytest.mark.slow
@pytest.mark.parametrize("away", [0.0, 0.12], ids=["back", "soon back"])
@pytest.mark.parametrize("how", ENDS)
def test_end_when_its_masters_are_just_back_then_sends_what_was_deferred(
    proxies: list[Proxy], how: str, away: float
) -> None:
    """Seen: keys stood for their ttl, where it ended inside of a back-off; and if the
    masters came back after that, but within the time that an end has."""
    urls = [proxy.url for proxy in proxies]
    with running(ending_programs, "end_in_a_back_off", how, *urls) as program:
        assert program.answer() == "held"
        for proxy in proxies:
            proxy.refuse()
            proxy.reset()
        assert program.say("") == "UNKNOWN"
        if away:
            program.tell("")
            time.sleep(away)
        for proxy in proxies:
            proxy.listen()
        program.communicate("\n", timeout=10)
    # Asked again where a vote came too late; a key that is left stays for 60 s.
    assert wait_until(lambda: are_free(urls, "r"))


@pytest.mark.skipif(which("redis-server") is None, reason="binds it to 127.0.0.2")
@pytest.mark.skipif(os.geteuid() != 0, reason="binds a file over /etc/hosts")
@pytest.mark.parametrize("call", CALLS)
def test_name_when_its_first_address_swallows_then_connects_by_the_next(
    call: str, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 two.test\n127.0.0.2 two.test\n")
    with swallowed_syn() as url:
        port = url.rsplit(":", 1)[1].split("/")[0]
        server = subprocess.Popen(
            ["redis-server", "--port", port, "--bind", "127.0.0.2", "--save", ""],
            stdout=subprocess.DEVNULL,
        )
        try:
            assert wait_until(lambda: is_listening(("127.0.0.2", int(port))))
            script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
            words = ["unshare", "-m", "--propagation", "private", "sh", "-c", script]
            words += ["sh", str(hosts), sys.executable, "-c", NAMED.format(call)]
            subprocess.run([*words, f"redis://two.test:{port}"], check=True, timeout=20)
        finally:
            with suppress(ProcessLookupError):
                server.kill()
            server.wait()
