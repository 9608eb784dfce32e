"""The list changes from a service of Sentinel to a cluster, beside plain masters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fastredlock import FastRedlock, ReleaseStatus, cli
from fastredlock.testing import LocalCluster, LocalMasters, LocalSentinels
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks

KEY = "moved"
Lists = tuple[list[str], list[str]]


@pytest.fixture(scope="module")
def lists() -> Iterator[Lists]:
    with ExitStack() as opened:
        plain = opened.enter_context(LocalMasters(2)).urls
        service = opened.enter_context(LocalSentinels()).url
        cluster = opened.enter_context(LocalCluster()).url
        lossless = [f"{url}?lossless_failover=true" for url in (service, cluster)]
        yield [*plain, lossless[0]], [*plain, lossless[1]]


@pytest.mark.slow
def test_lock_when_a_service_becomes_a_cluster_then_neighbours_exclude_each_other(
    lists: Lists, make_locks: MakeLocks, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = lists
    joint = connected(make_locks(old, changing_to=new))
    plain = [connected(make_locks(each)) for each in lists]
    pairs: list[tuple[FastRedlock, FastRedlock]] = []
    for one in plain:
        pairs += [(one, joint), (joint, one)]
    for first, second in pairs:
        lease = granted(first.acquire(KEY, ttl=5))
        assert second.acquire(KEY, timeout=0) is None
        assert lease.extend(10) > 5
        assert any(vote.token_hash == lease.token_hash for vote in joint.holders(KEY))
        assert lease.release() is ReleaseStatus.RELEASED
    assert not any(each.warnings for each in plain[0].health() if "/" in each.master)
    words = "--masters", ",".join(old), "--changing-to", ",".join(new)
    assert (
        cli.main(["masters", *words]) == 2
    )  # one has the old list beside one with the new one
    out = capsys.readouterr().out
    assert out.count("both lists") == 1
    assert "sentinel:" in out
    assert "cluster:" in out
