"""Every Python block of README and docs, run as it stands, on local masters."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from fastredlock.testing import LocalMasters

from .documents import DOCUMENTS, README, blocks, name_of

PORTS = (7001, 7002, 7003)  # that the documents write


class Example(NamedTuple):
    """Blocks that are pasted one after the other into one interpreter."""

    document: Path
    code: list[str]


def examples() -> list[Example]:
    """List them: a block of the README stands alone, a page is read from its top."""
    alone = [Example(README, [block]) for block in blocks(README, "python")]
    pages = [Example(page, blocks(page, "python")) for page in DOCUMENTS]
    return alone + [page for page in pages if page.code and page.document != README]


@pytest.mark.parametrize("example", examples(), ids=lambda it: name_of(it.document))
def test_example_when_pasted_then_runs_and_leaves_nothing(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {}
    with LocalMasters(len(PORTS)) as masters:
        for code in example.code:
            for port, url in zip(PORTS, masters.urls, strict=True):
                code = code.replace(f"redis://localhost:{port}", url)
            exec(compile(code, name_of(example.document), "exec"), names)
        assert [keys_of(url) for url in masters.urls] == [[]] * len(PORTS)
    if example.document == README:
        assert "ours for" in capsys.readouterr().out


def keys_of(url: str) -> list[bytes]:
    """List the keys, but those that stay: a waiter's of python-redis-lock (1 s), and
    numbers of grants (a day)."""
    with redis.Redis.from_url(url) as server:
        found: list[bytes] = server.keys()
        stay = (b"lock-signal:", b"fastredlock:fence:")
        return [key for key in found if not key.startswith(stay)]
