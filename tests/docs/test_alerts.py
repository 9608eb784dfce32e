"""The alerts of docs/observing.md: each fires where it should, and not before."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import redis
from prometheus_client import CollectorRegistry

from fastredlock import FastRedlock, QuorumUnreachableError, ValidityExhaustedError
from fastredlock.prometheus import Collector
from fastredlock.testing import LocalMasters
from tests.support.masters import stop
from tests.support.promql import Scraped, fires
from tests.support.proxy import Proxy

from .documents import ROOT, blocks, rows

PAGE = ROOT / "docs" / "observing.md"
(RULES,) = blocks(PAGE, "yaml")
ALERTS = dict(re.findall(r"- alert: (\w+).*\n +expr: (.+)\n", RULES))


def scrape(registry: CollectorRegistry) -> Scraped:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


def lose(locks: FastRedlock, masters: LocalMasters) -> None:
    lease = locks.acquire("a")
    for url in masters.urls:
        with redis.Redis.from_url(url) as server:
            server.flushall()
    assert lease is not None
    lease.release()


def fail(locks: FastRedlock, masters: LocalMasters) -> None:
    stop(masters, 2)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire("a", timeout=0)


def fail_one(locks: FastRedlock, masters: LocalMasters) -> None:
    stop(masters, 1)
    with locks.lock("a"):
        pass


def cut_it_fine(locks: FastRedlock, masters: LocalMasters) -> None:
    with locks.lock("a", ttl=0.9):
        pass


def contend(locks: FastRedlock, masters: LocalMasters) -> None:
    with locks.lock("a"):
        assert locks.acquire("a", timeout=0) is None


def wait_long(locks: FastRedlock, masters: LocalMasters) -> None:
    assert locks.acquire("a", ttl=1.2)  # never released: it expires
    with locks.lock("a", timeout=8):
        pass


def use_the_validity_up(locks: FastRedlock, masters: LocalMasters) -> None:
    observer = locks._driver.settings.observer
    with ExitStack() as opened:
        proxies = [opened.enter_context(Proxy(url)) for url in masters.urls]
        urls = [proxy.url for proxy in proxies]
        slow = FastRedlock(urls, observer=observer, round_timeout=5)
        opened.enter_context(slow).connect()
        for proxy in proxies:
            proxy.set(delay=0.03)
        with pytest.raises(ValidityExhaustedError):
            slow.acquire("a", ttl=0.03, timeout=0)


CAUSES: dict[str, tuple[Callable[[FastRedlock, LocalMasters], None], set[str]]] = {
    "LeaseLost": (lose, set()),
    "NoQuorum": (fail, {"MasterFails"}),
    "ValidityUsedUp": (use_the_validity_up, set()),
    "MasterFails": (fail_one, set()),
    "MarginSmall": (cut_it_fine, set()),
    "Contended": (contend, set()),
    "WaitsLong": (wait_long, set()),
}


def test_every_alert_has_its_cause_here() -> None:
    assert list(ALERTS) == list(CAUSES)
    assert RULES.count("expr:") == len(ALERTS)


@pytest.mark.parametrize("alert", CAUSES)
def test_alert_when_its_cause_is_there_then_fires_and_not_before(alert: str) -> None:
    cause, others = CAUSES[alert]
    registry = CollectorRegistry()
    with LocalMasters(3) as masters:
        collector = Collector(registry)
        with FastRedlock(masters.urls, observer=collector, round_timeout=2) as locks:
            locks.connect()
            first = scrape(registry)
            with locks.lock("healthy"):
                pass
            second = scrape(registry)
            assert [name for name in ALERTS if fires(ALERTS[name], first, second)] == []
            cause(locks, masters)
            third = scrape(registry)
    fired = {name for name in ALERTS if fires(ALERTS[name], second, third)}
    assert alert in fired
    assert fired <= {alert, *others}


def test_table_names_every_metric() -> None:
    told = set(re.findall(r"`(fastredlock_\w+)`", "".join(row[0] for row in metrics())))
    described = Collector(None).describe()
    actual = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in described
    }
    assert told == actual


def metrics() -> list[list[str]]:
    """List the rows of the table of metrics."""
    return [row for row in rows(PAGE, "## Prometheus") if "fastredlock_" in row[0]]
