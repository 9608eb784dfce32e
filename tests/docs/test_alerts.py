"""docs/alerts.yml and dashboard.json: each alert fires where it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry

from fastredlock import (
    FastRedlock,
    QuorumUnreachableError,
    Stats,
    ValidityExhaustedError,
)
from fastredlock.prometheus import GAUGES as _GAUGES
from fastredlock.prometheus import Collector
from fastredlock.testing import LocalMasters
from tests.support.masters import stop
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

from .documents import ROOT, rows

PAGE = ROOT / "docs" / "observing.md"
RULES = (ROOT / "docs" / "alerts.yml").read_text("utf-8")
DASHBOARD = json.loads((ROOT / "docs" / "dashboard.json").read_text("utf-8"))
PANELS = [
    target["expr"].replace("$__rate_interval", "5m")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
ALERTS = dict(re.findall(r"- alert: (\w+).*\n +expr: (.+)\n", RULES))
Scraped = dict[tuple[str, frozenset[tuple[str, str]]], float]
GAUGES = {f"fastredlock_{name}" for name, _, _ in _GAUGES}
HEALTHY_MINUTES, BAD_MINUTES = 6, 10
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: Debian's prometheus"
)


def promtool(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run promtool beside the rules of the page."""
    (folder / "rules.yml").write_text(RULES)
    command = ["promtool", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def series(first: Scraped, second: Scraped, third: Scraped) -> list[dict[str, str]]:
    """Return the samples of each minute: from first to second, and then as to third.

    What has happened between the last two goes on in each minute; a gauge stays.
    """
    return [
        {
            "series": name + "{" + ",".join(f'{k}="{v}"' for k, v in labels) + "}",
            "values": " ".join(
                f"{value:f}"
                for value in (
                    *[first[name, labels]] * 3,
                    *[second[name, labels]] * (HEALTHY_MINUTES - 3),
                    *progress(name, second[name, labels], last),
                )
            ),
        }
        for (name, labels), last in third.items()
        if (name, labels) in second and (name, labels) in first
    ]


def progress(name: str, before: float, after: float) -> list[float]:
    if name in GAUGES:
        return [after] * BAD_MINUTES
    return [before + (after - before) * minute for minute in range(1, BAD_MINUTES + 1)]


def fired(folder: Path, samples: list[dict[str, str]], minutes: int) -> set[str]:
    """Return the alerts that fire after so many minutes, by promtool."""
    firing = 'group by (alertname) (ALERTS{alertstate="firing"})'
    asked = {"expr": firing, "eval_time": f"{minutes}m", "exp_samples": []}
    test = {"interval": "1m", "input_series": samples, "promql_expr_test": [asked]}
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(tests))  # which YAML includes
    run = promtool(folder, "test", "rules", "test.yml")
    said = run.stdout + run.stderr
    found = set(re.findall(r'alertname="(\w+)"', said))
    assert (run.returncode == 0) == (not found), said
    return found


def scrape(registry: CollectorRegistry) -> Scraped:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


def take(locks: FastRedlock, masters: LocalMasters) -> None:
    with locks.lock("a"):
        pass


def lose(locks: FastRedlock, masters: LocalMasters) -> None:
    lease = locks.acquire("a")
    masters.flush()
    assert lease is not None
    lease.release()


def fail(locks: FastRedlock, masters: LocalMasters) -> None:
    stop(masters, 2)
    with pytest.raises(QuorumUnreachableError):
        locks.acquire("a", timeout=0)


def fail_one(locks: FastRedlock, masters: LocalMasters) -> None:
    stop(masters, 1)
    take(locks, masters)


def meet_another_list(locks: FastRedlock, masters: LocalMasters) -> None:
    """It warns when it connects again."""
    with redis.Redis.from_url(masters.urls[0]) as server:
        server.client_kill_filter(_type="normal", skipme=True)
    with FastRedlock(masters.urls[:1]) as other:
        other.connect()
        locks.ping()


def refuse_writes(locks: FastRedlock, masters: LocalMasters) -> None:
    with redis.Redis.from_url(masters.urls[0]) as server:
        server.config_set("min-replicas-to-write", 1)
    assert wait_until(lambda: not locks.ping(timeout=5)[0].votes)


def drop_releases(locks: FastRedlock, masters: LocalMasters) -> None:
    stats = FastRedlock.stats

    def dropping(self: FastRedlock) -> Stats:
        now = stats(self)
        return now._replace(
            masters=tuple(m._replace(releases_dropped=9) for m in now.masters)
        )

    FastRedlock.stats = dropping  # type: ignore[assignment,method-assign]


def cut_it_fine(locks: FastRedlock, masters: LocalMasters) -> None:
    with locks.lock("a", ttl=1.6):
        time.sleep(1)  # most of its validity


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
    "NoQuorum": (fail, {"MasterFails", "NoConnection", "NoQuorumOfVotes"}),
    "ValidityUsedUp": (use_the_validity_up, set()),
    "MasterFails": (fail_one, {"NoConnection"}),
    "NoConnection": (fail_one, {"MasterFails"}),
    "Warned": (meet_another_list, set()),
    "NoQuorumOfVotes": (fail, {"MasterFails", "NoConnection", "NoQuorum"}),
    "NoVote": (refuse_writes, {"MasterFails"}),
    "ReleasesDropped": (drop_releases, set()),
    "MarginSmall": (cut_it_fine, set()),
    "Contended": (contend, set()),
    "WaitsLong": (wait_long, set()),
}


def test_every_alert_has_its_cause_here() -> None:
    assert list(ALERTS) == list(CAUSES)
    assert RULES.count("expr:") == len(ALERTS)


@needs_promtool
def test_rules_are_valid(tmp_path: Path) -> None:
    run = promtool(tmp_path, "check", "rules", "rules.yml")
    assert run.returncode == 0, run.stdout + run.stderr


@needs_promtool
@pytest.mark.parametrize(
    ("alert", "options"),
    [
        *((alert, {"round_timeout": 2}) for alert in CAUSES),
        ("", {"ttl": 1}),  # every ttl is a second or less: that is no small margin
    ],
)
def test_alert_when_its_cause_is_there_then_fires_and_not_before(
    alert: str,
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cause, others = CAUSES.get(alert, (take, set()))
    monkeypatch.setattr(FastRedlock, "stats", FastRedlock.stats)
    registry = CollectorRegistry()
    with LocalMasters(3) as masters:
        observer = Collector(registry)
        with FastRedlock(masters.urls, observer=observer, **options) as locks:
            locks.connect()
            scrapes = [scrape(registry)]
            for each in (take, cause):
                each(locks, masters)
                scrapes.append(scrape(registry))
    samples = series(*scrapes)
    assert fired(tmp_path, samples, HEALTHY_MINUTES - 1) == set()
    found = fired(tmp_path, samples, HEALTHY_MINUTES + BAD_MINUTES - 1)
    assert {*filter(None, [alert])} <= found <= {alert, *others}


def test_dashboard_asks_for_every_metric() -> None:
    endings = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    actual = {each.name + endings[each.type] for each in Collector(None).describe()}
    assert {*re.findall(r"fastredlock_\w+", " ".join(PANELS))} == actual


@needs_promtool
def test_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    asked = [{"record": f"panel:{at}", "expr": expr} for at, expr in enumerate(PANELS)]
    rules = {"groups": [{"name": "dashboard", "rules": asked}]}
    (tmp_path / "panels.yml").write_text(json.dumps(rules))  # JSON is YAML
    run = promtool(tmp_path, "check", "rules", "panels.yml")
    assert run.returncode == 0, run.stdout + run.stderr


def test_dashboard_is_one_that_grafana_loads() -> None:
    """As far as its schema says: https://grafana.com/docs, *JSON model*."""
    assert {"title", "uid", "schemaVersion", "time", "panels"} <= {*DASHBOARD}
    assert DASHBOARD["schemaVersion"] >= 36  # from there on a datasource is an object
    assert len(DASHBOARD["uid"]) <= 40
    (source,) = DASHBOARD["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(
        DASHBOARD["panels"]
    )
    cells: list[tuple[int, int]] = []
    for panel in DASHBOARD["panels"]:
        assert panel["type"] in {"timeseries", "stat", "table", "gauge", "heatmap"}
        names = [target["refId"] for target in panel["targets"]]
        assert len({*names}) == len(names) > 0
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {
                "type": "prometheus", "uid": f"${{{source['name']}}}",
            }  # fmt: skip
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24  # columns
        across = range(at["x"], at["x"] + at["w"])
        cells += product(across, range(at["y"], at["y"] + at["h"]))
    assert len({*cells}) == len(cells)  # no panel is over another


def test_page_says_what_to_do_about_every_alert() -> None:
    cells = [row[0] for row in rows(PAGE, "## Prometheus")]
    named = {name for cell in cells for name in re.findall(r"`([A-Z]\w+)`", cell)}
    assert named == {*ALERTS}


def test_table_names_every_metric() -> None:
    cells = "".join(row[0] for row in rows(PAGE, "## Prometheus"))
    actual = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in Collector(None).describe()
    }
    assert {*re.findall(r"`(fastredlock_\w+)`", cells)} == actual
