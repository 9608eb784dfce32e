"""Every Python block of README and docs, run alone as it is, on local masters."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.testing import LocalMasters
from tests.support.keys import KEY
from tests.support.waiting import settled

from .documents import DOCUMENTS, README, ROOT, blocks, name_of

PORTS = (7001, 7002, 7003)  # that the documents write


@pytest.fixture(autouse=True)
def own_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give redis-py's clients their own locks again, where a page has changed that."""
    for client in (redis.Redis, redis.asyncio.Redis):
        monkeypatch.setattr(client, "lock", client.lock)


@pytest.fixture(scope="module")
def three() -> Iterator[LocalMasters]:
    with LocalMasters(len(PORTS)) as masters:
        yield masters


class Example(NamedTuple):
    """A block, as the copy button of its page gives it."""

    document: Path
    number: int
    code: str


EXAMPLES = [
    Example(document, number, code)
    for document in DOCUMENTS
    for number, code in enumerate(blocks(document, "python"))
]


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda it: f"{name_of(it.document)}-{it.number}"
)
def test_block_when_copied_alone_then_runs_and_leaves_nothing(
    example: Example,
    three: LocalMasters,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FASTREDLOCK_MASTERS", ",".join(three.urls))
    gc.collect()  # what other blocks left: functions and their globals are a cycle
    for url in three.urls:
        with redis.Redis.from_url(url) as server:
            server.flushall()
            for kind in ("normal", "pubsub"):  # clients that have other masters
                server.client_kill_filter(_type=kind, skipme=True)
    code = example.code
    for port, url in zip(PORTS, three.urls, strict=True):
        code = code.replace(f"redis://localhost:{port}", url)
    ports = tuple(urlsplit(url).port for url in three.urls)
    code = code.replace(str(PORTS), str(ports))
    exec(compile(code, name_of(example.document), "exec"), {})
    none: list[list[bytes]] = [[]] * len(PORTS)
    # A rate's keys are there for its window.
    assert settled(lambda: [keys_of(url) for url in three.urls], none, 0.5) == none
    if example.document == README:
        assert "ours for" in capsys.readouterr().out


def test_numbers_at_their_end_when_deleted_as_the_page_says_then_begin_anew(
    three: LocalMasters,
) -> None:
    (recipe,) = blocks(ROOT / "docs" / "fencing.md", "sh")
    ask, delete = (shlex.split(line, comments=True) for line in recipe.splitlines())
    assert ask[:3] == delete[:3] == ["redis-cli", "-p", str(PORTS[0])]
    last = 2**53 - 1
    with FastRedlock(three.urls, fencing=True) as locks:
        with locks.lock(KEY) as lease:
            before = lease.fence
        servers = [redis.Redis.from_url(url) for url in three.urls[:2]]
        for server in servers:
            server.zadd(f"fastredlock:fence:{KEY}", {"f": last})
        with pytest.raises(QuorumUnreachableError, match="no number to count on"):
            locks.acquire(KEY, timeout=0)
        for server in servers:
            assert server.execute_command(*ask[3:]) == last
            assert server.execute_command(*delete[3:]) == 1
            server.close()
        with locks.lock(KEY, timeout=5) as lease:
            assert before < lease.fence < last


def test_every_block_in_python_is_named_so() -> None:
    """One that is named `py` has a button, too, and no test runs it."""
    assert [name_of(each) for each in DOCUMENTS if blocks(each, "py")] == []


def keys_of(url: str) -> list[bytes]:
    """List the keys, but those that stay: a waiter's of python-redis-lock (1 s), the
    numbers of grants (a day), and who broke a lock (its ttl)."""
    with redis.Redis.from_url(url) as server:
        found: list[bytes] = server.keys()
        stay = (b"lock-signal:", b"fastredlock:fence:", b"fastredlock:broken:")
        return [key for key in found if not key.startswith(stay)]
