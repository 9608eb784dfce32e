"""Spans and metrics for OpenTelemetry, through the exporters of its SDK."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.attributes import db_attributes, error_attributes
from opentelemetry.semconv.attributes import server_attributes as server
from opentelemetry.semconv.metrics import db_metrics
from opentelemetry.trace import SpanKind, StatusCode

from fastredlock import FastRedlock, QuorumUnreachableError
from fastredlock.otel import Telemetry, address, text_of
from fastredlock.testing import LocalMasters
from tests.support.awaited import DRIVERS
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY, set_all
from tests.support.masters import stop


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    """Run each test of this file over all drivers that it is marked for."""
    return str(request.param)


class Exported:
    """Telemetry, and what its exporters were given."""

    def __init__(self, **options: Any) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader])
        self.telemetry = Telemetry(self.tracers, meters, **options)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the spans of one name that have ended."""
        return [each for each in self._spans.get_finished_spans() if each.name == name]

    def points(self, name: str) -> list[Any]:
        """Return the data points of one metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def exported() -> Exported:
    """Export to memory."""
    return Exported()


@pytest.fixture
def observed(make_locks: MakeLocks, urls: list[str], exported: Exported) -> FastRedlock:
    """Make a FastRedlock that `exported` observes."""
    return connected(make_locks(urls, observer=exported.telemetry))


def test_pair_when_observed_then_is_a_span_of_its_acquire_and_one_of_its_hold(
    observed: FastRedlock, exported: Exported
) -> None:
    lease = granted(observed.acquire(KEY, ttl=10))
    time.sleep(0.03)
    lease.release()
    (acquire,), (hold,) = exported.spans("acquire"), exported.spans("hold")
    assert acquire.kind is SpanKind.CLIENT
    assert dict(acquire.attributes or {}) == {
        db_attributes.DB_SYSTEM_NAME: "redis",
        db_attributes.DB_OPERATION_NAME: "acquire",
        "fastredlock.outcome": "acquired",
        "fastredlock.attempts": 1,
        "fastredlock.resource": KEY,
    }
    assert acquire.start_time is not None
    assert acquire.end_time is not None
    took = (acquire.end_time - acquire.start_time) / 1e9
    assert took == pytest.approx(lease.waited, abs=1e-6)
    assert hold.start_time is not None
    assert hold.end_time is not None
    assert (hold.end_time - hold.start_time) / 1e9 >= 0.03
    assert acquire.status.status_code is hold.status.status_code is StatusCode.UNSET
    assert lease.token.decode() not in acquire.to_json() + hold.to_json()


@pytest.mark.parametrize("driver", ["blocking"], indirect=True)
def test_span_when_another_is_current_then_is_its_child(
    observed: FastRedlock, exported: Exported
) -> None:
    tracer = exported.tracers.get_tracer("theirs")
    with tracer.start_as_current_span("request") as request, observed.lock(KEY):
        pass
    for name in ("acquire", "hold"):
        (span,) = exported.spans(name)
        assert span.parent is not None
        assert span.parent.span_id == request.get_span_context().span_id


@pytest.mark.parametrize("driver", ["blocking", "asyncio"], indirect=True)
def test_acquire_when_masters_are_down_then_its_span_and_metrics_say_so(
    make_locks: MakeLocks, masters: LocalMasters, exported: Exported
) -> None:
    locks = connected(make_locks(masters.urls, observer=exported.telemetry, **QUICK))
    stop(masters, 3)
    with pytest.raises(QuorumUnreachableError) as raised:
        locks.acquire(KEY, timeout=0)
    (span,) = exported.spans("acquire")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == str(raised.value)
    attributes = span.attributes or {}
    assert attributes[error_attributes.ERROR_TYPE] == "QuorumUnreachableError"
    failed = {
        point.attributes[server.SERVER_PORT]: point.value
        for point in exported.points("fastredlock.master.failures")
        if point.attributes["fastredlock.failure"] == "failed"
    }
    ports = [int(each.master.rpartition(":")[2]) for each in locks.health()]
    assert all(failed[port] >= 1 for port in ports[:3])
    assert [failed[port] for port in ports[3:]] == [0, 0]
    assert len(exported.points("fastredlock.master.answers")) == 5


def test_metrics_when_locks_were_used_then_have_the_names_of_the_conventions(
    observed: FastRedlock, exported: Exported, servers: list[redis.Redis]
) -> None:
    lease = granted(observed.acquire(KEY))
    assert observed.acquire(KEY, timeout=0) is None
    lease.extend()
    lease.release()
    lost = granted(observed.acquire("b"))
    set_all(servers, b"theirs", "b")
    lost.release()
    durations = {
        point.attributes["fastredlock.outcome"]: point.count
        for point in exported.points(db_metrics.DB_CLIENT_OPERATION_DURATION)
    }
    assert durations == {"acquired": 2, "taken": 1}
    holds = {
        point.attributes["fastredlock.outcome"]: point.count
        for point in exported.points("fastredlock.hold.duration")
    }
    assert holds == {"released": 1, "lost": 1}
    (margin,) = exported.points("fastredlock.release.margin")
    assert 5 < margin.sum < 10
    assert [point.value for point in exported.points("fastredlock.extensions")] == [1]
    assert [point.value for point in exported.points("fastredlock.leases.lost")] == [1]
    assert exported.spans("hold")[-1].status.status_code is StatusCode.ERROR
    for point in exported.points("fastredlock.leases.lost"):
        assert dict(point.attributes) == {}


@pytest.mark.parametrize("driver", ["blocking"], indirect=True)
def test_metrics_when_given_a_label_then_have_that(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    exported = Exported(label=lambda resource: str(resource).split(":")[0])
    locks = connected(make_locks(urls, observer=exported.telemetry))
    for name in ("orders:1", "orders:2"):
        granted(locks.acquire(name)).release()
    (point,) = exported.points("fastredlock.release.margin")
    assert (dict(point.attributes), point.count) == (
        {"fastredlock.resource": "orders"},
        2,
    )


def test_resource_when_it_is_bytes_or_several_then_is_an_attribute() -> None:
    assert text_of(b"gr\xc3\xb6\xc3\x9fe\xff") == "größe\\xff"
    assert text_of(("a", b"b")) == ["a", "b"]


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("a:6379", {"server.address": "a", "server.port": 6379}),
        ("[::1]:7001", {"server.address": "::1", "server.port": 7001}),
        ("/run/redis.sock", {"server.address": "/run/redis.sock"}),
    ],
)
def test_master_when_named_then_has_the_attributes_of_a_server(
    master: str, expected: dict[str, Any]
) -> None:
    assert address(master) == expected
