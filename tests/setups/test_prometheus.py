"""Metrics for Prometheus, as its client parses them, scraped over HTTP."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families

from fastredlock import FastRedlock
from fastredlock.prometheus import Collector
from fastredlock.testing import LocalMasters
from tests.support.awaited import DRIVERS
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks, Servers, blocking
from tests.support.keys import KEY, set_all
from tests.support.processes import run_to_its_end
from tests.support.waiting import wait_until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def registry() -> CollectorRegistry:
    """Make a registry of the test's own, that checks for names given twice."""
    return CollectorRegistry()


class Scrape:
    def __init__(self, text: str) -> None:
        self.families = {
            each.name: each for each in text_string_to_metric_families(text)
        }
        self._samples: Samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples["fastredlock_" + name, frozenset(labels.items())]


def scraped(registry: CollectorRegistry) -> Scrape:
    """Serve the registry over HTTP, and ask once."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    with urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=10) as reply:
        assert reply.status == 200
        found = Scrape(reply.read().decode())
    server.shutdown()
    server.server_close()
    thread.join()
    return found


def read(registry: CollectorRegistry) -> Scrape:
    return Scrape(generate_latest(registry).decode())


@pytest.fixture
def locks(
    make_locks: MakeLocks, urls: list[str], registry: CollectorRegistry
) -> FastRedlock:
    """Make a FastRedlock that a collector of the registry observes."""
    return connected(make_locks(urls, observer=Collector(registry)))


def test_scrape_when_locks_were_used_then_has_their_times_and_outcomes(
    locks: FastRedlock, registry: CollectorRegistry, servers: Servers
) -> None:
    lease = granted(locks.acquire(KEY, ttl=10))
    assert locks.acquire(KEY, timeout=0) is None
    lease.extend()
    time.sleep(0.03)  # for longer than the first bucket
    lease.release()
    lost = granted(locks.acquire("b"))
    set_all(servers, b"theirs", "b")
    lost.release()
    found = scraped(registry)
    for outcome, count in (("acquired", 2), ("taken", 1), ("unreachable", 0)):
        assert found("acquires_total", outcome=outcome) == count
    assert found("attempts_total") == 3
    assert found("extensions_total") == found("leases_lost_total") == 1
    assert found("wait_seconds_count") == 2
    assert found("hold_seconds_count") == found("margin_seconds_count") == 1
    assert found("hold_seconds_bucket", le="0.025") == 0
    assert found("hold_seconds_bucket", le="10.0") == 1
    assert 5 < found("margin_seconds_sum") < 10
    assert found("rounds_total", operation="acquire", verdict="won") == 2
    assert found("rounds_total", operation="release", verdict="taken") == 1
    kinds = {name: family.type for name, family in found.families.items()}
    assert kinds["fastredlock_wait_seconds"] == "histogram"
    assert kinds["fastredlock_master_failures"] == "counter"


@blocking
def test_collector_when_it_observes_several_then_sums_them_and_never_falls(
    make_locks: MakeLocks, urls: list[str], registry: CollectorRegistry
) -> None:
    collector = Collector(registry)
    first: Any = FastRedlock(urls, observer=collector)
    second = connected(make_locks(urls, observer=collector))
    for locks in (first, second):
        granted(locks.acquire("a")).release()
    first.close()

    def won() -> float:
        found = read(registry)
        return found("rounds_total", operation="acquire", verdict="won")

    assert won() == 2
    del first, locks
    gc.collect()
    assert won() == 2
    granted(second.acquire("a")).release()
    assert won() == 3


@blocking
@pytest.mark.parametrize("made", [str, None, 7, True, b"a", ("a", "b"), DRIVERS])
def test_label_when_it_is_no_text_then_is_shown_as_text(
    make_locks: MakeLocks, urls: list[str], registry: CollectorRegistry, made: Any
) -> None:
    """Seen: each scrape failed from then on, of all metrics of the program."""
    label = "orders" if made is str else str(made)

    def labelled(resource: Any) -> Any:
        return str(resource).split(":")[0] if made is str else made

    collector = Collector(registry, label=labelled)
    locks = connected(make_locks(urls, observer=collector))
    for name in ("orders:1", "orders:2"):
        granted(locks.acquire(name)).release()
    found = read(registry)
    assert found("acquires_total", outcome="acquired", resource=label) == 2
    assert found("hold_seconds_count", resource=label) == 2
    # Else `increase()` would not see the first one.
    assert found("leases_lost_total", resource=label) == 0
    assert found("acquires_total", outcome="unreachable", resource=label) == 0


@blocking
def test_scrape_when_it_is_of_openmetrics_then_its_parser_reads_it(
    locks: FastRedlock, registry: CollectorRegistry
) -> None:
    granted(locks.acquire(KEY)).release()
    text = exposition.generate_latest(registry).decode()
    names = {each.name for each in parser.text_string_to_metric_families(text)}
    assert {"fastredlock_acquires", "fastredlock_margin_seconds"} <= names
    assert KEY not in text


@blocking
def test_collector_when_subclassed_then_the_methods_of_the_subclass_are_called(
    make_locks: MakeLocks, urls: list[str], registry: CollectorRegistry
) -> None:
    class Noting(Collector):
        def acquired(self, resource: Any, waited: float, attempts: int) -> None:
            super().acquired(resource, waited, attempts)
            noted.append(resource)

    class Patched(Collector):
        def __init__(self, registry: CollectorRegistry) -> None:
            self.released = lambda resource, held: noted.append(held)  # type: ignore
            super().__init__(registry)

    noted: list[object] = []
    locks = connected(make_locks(urls, observer=Patched(CollectorRegistry())))
    granted(locks.acquire(KEY)).release()
    assert len(noted) == 1
    noted.clear()
    locks = connected(make_locks(urls, observer=Noting(registry)))
    granted(locks.acquire(KEY)).release()
    assert noted == [KEY]
    found = read(registry)
    assert found("wait_seconds_count") == found("hold_seconds_count") == 1


SHARED = """
import os, sys
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from fastredlock import FastRedlock
from fastredlock.prometheus import Collector

def pairs(name, count):
    with FastRedlock(sys.argv[2:], observer=collector, connect_timeout=5) as locks:
        for _ in range(count):
            locks.acquire(name).release()
        with locks.lock(name, ttl=9):
            assert locks.acquire(name.upper(), timeout=0) is None

label = None if sys.argv[1] == "none" else str.lower
collector = Collector(CollectorRegistry(), label=label)
others = FastRedlock(sys.argv[2:], connect_timeout=5)
taken = [others.acquire(name) for name in "AB"]
child = os.fork()
pairs("b" if child else "a", 2)
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
others.release_each(taken)
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


@pytest.mark.parametrize(
    ("name", "label"),
    [("PROMETHEUS_MULTIPROC_DIR", "none"), ("prometheus_multiproc_dir", "lower")],
)
def test_scrape_when_several_processes_share_their_metrics_then_sums_them(
    urls: list[str], tmp_path: Path, label: str, name: str
) -> None:
    done = run_to_its_end(SHARED, label, *urls, env={name: str(tmp_path)})
    assert done.returncode == 0, done.stderr
    found = Scrape(done.stdout)
    series = [{}] if label == "none" else [{"resource": "a"}, {"resource": "b"}]
    for names in series:
        count = 2 // len(series)
        assert found("acquires_total", outcome="acquired", **names) == 3 * count
        assert found("acquires_total", outcome="taken", **names) == count
        assert found("attempts_total", **names) == 4 * count
        assert found("hold_seconds_count", **names) == 3 * count
        assert found("margin_seconds_bucket", le="10.0", **names) == 3 * count


def test_gauges_when_masters_stop_and_leases_end_then_show_what_is_so(
    make_locks: MakeLocks, masters: LocalMasters, registry: CollectorRegistry
) -> None:
    locks = make_locks(masters.urls, observer=Collector(registry), **QUICK)
    name = locks.health()[1].master

    def gauges() -> tuple[float, ...]:
        found = read(registry)
        by_master = [
            found(gauge, master=name) for gauge in ("master_connected", "master_votes")
        ]
        return (*by_master, found("leases_held"))

    with pytest.raises(KeyError):
        gauges()  # nothing is known before the first call
    lease = granted(connected(locks).acquire(KEY, ttl=10))
    short = granted(locks.acquire("short", ttl=0.05))
    assert wait_until(lambda: not short.is_valid)
    assert gauges() == (1, 1, 1)
    lease.release()
    masters.stop(1)
    locks.ping()
    assert gauges() == (0, 0, 0)
    masters.start(1)
    locks.ping()
    assert gauges() == (1, 1, 0)
    locks.close()
    with pytest.raises(KeyError):
        gauges()
