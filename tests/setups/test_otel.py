"""Spans and metrics for OpenTelemetry, through the exporters of its SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.attributes import server_attributes as server
from opentelemetry.trace import INVALID_SPAN, SpanKind, StatusCode, get_current_span

from fastredlock import FastRedlock, LeaseLostError, QuorumUnreachableError
from fastredlock import asyncio as awaitable
from fastredlock.otel import Telemetry, address, text_of
from fastredlock.prometheus import GAUGES
from fastredlock.testing import LocalMasters, MemoryLocks
from tests.support.calls import QUICK, connected, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, set_all
from tests.support.masters import stop
from tests.support.threads import in_threads


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
        self.telemetry.flush()
        return self.finished(name)

    def finished(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._spans.get_finished_spans() if each.name == name]

    def points(self, name: str) -> list[Any]:
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
    return Exported()


@pytest.fixture
def observed(make_locks: MakeLocks, urls: list[str], exported: Exported) -> FastRedlock:
    return connected(make_locks(urls, observer=exported.telemetry))


def test_pair_when_observed_then_is_a_span_of_its_acquire_and_one_of_its_hold(
    observed: FastRedlock, exported: Exported
) -> None:
    lease = granted(observed.acquire(KEY, ttl=10))
    began = time.monotonic()
    assert lease.extend() > 0
    held = time.monotonic() - began
    lease.release()
    (acquire,), (hold,) = exported.spans("acquire"), exported.spans("hold")
    assert acquire.kind is SpanKind.INTERNAL  # and not a call of a database
    assert dict(acquire.attributes or {}) == {
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
    assert (hold.end_time - hold.start_time) / 1e9 >= held - 1e-6
    assert acquire.status.status_code is hold.status.status_code is StatusCode.UNSET
    assert lease.token.decode() not in acquire.to_json() + hold.to_json()


def span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def parent_of(exported: Exported, name: str) -> int | None:
    (span,) = exported.spans(name)
    return None if span.parent is None else span.parent.span_id


# Issue 29: it was a sibling of the hold, whose span was made after it.
def test_work_in_a_with_block_when_it_makes_spans_then_they_are_children_of_the_hold(
    urls: list[str], exported: Exported
) -> None:
    tracer = exported.tracers.get_tracer("theirs")
    with FastRedlock(urls, observer=exported.telemetry) as locks:
        with locks.lock(KEY), locks.lock("b"), tracer.start_as_current_span("work"):
            pass
        assert get_current_span() is INVALID_SPAN
    outer, inner = sorted(exported.spans("hold"), key=lambda span: span.start_time or 0)
    assert parent_of(exported, "work") == span_id(inner)
    assert inner.parent is not None
    assert inner.parent.span_id == span_id(outer)
    for span in (outer, inner):
        assert (span.attributes or {})["fastredlock.outcome"] == "released"


def test_work_of_a_task_when_it_makes_spans_then_they_are_children_of_its_hold(
    urls: list[str], exported: Exported
) -> None:
    tracer = exported.tracers.get_tracer("theirs")

    async def work(locks: awaitable.FastRedlock, name: str, both: Any) -> None:
        async with locks.lock(f"r:{name}"):
            with tracer.start_as_current_span(name):
                await both.wait()
        assert get_current_span() is INVALID_SPAN

    async def main() -> None:
        async with awaitable.FastRedlock(urls, observer=exported.telemetry) as locks:
            both = asyncio.Barrier(2)  # the tasks are inside together
            await asyncio.gather(work(locks, "a", both), work(locks, "b", both))

    asyncio.run(main())
    holds = {
        span.attributes["fastredlock.resource"]: span_id(span)
        for span in exported.spans("hold")
        if span.attributes is not None
    }
    assert parent_of(exported, "a") == holds["r:a"]
    assert parent_of(exported, "b") == holds["r:b"]


# Issue 29: a keeper reports it from a thread of its own, where nothing is current.
@pytest.mark.parametrize("is_block", [True, False])
def test_loss_when_a_keeper_reports_it_then_its_span_has_the_parent_of_the_acquire(
    exported: Exported, *, is_block: bool
) -> None:
    locks = MemoryLocks(ttl=10, observer=exported.telemetry)
    tracer = exported.tracers.get_tracer("theirs")
    with tracer.start_as_current_span("request") as request:
        if is_block:
            with suppress(LeaseLostError), locks.lock(KEY, keep_alive=True):
                be_robbed(locks)
        else:
            lease = granted(locks.acquire(KEY, keep_alive=True))
            in_threads([lambda: be_robbed(locks)])
            lease.release()
    (hold,) = exported.spans("hold")
    assert (hold.attributes or {})["fastredlock.outcome"] == "lost"
    assert parent_of(exported, "hold") == request.get_span_context().span_id


def be_robbed(locks: MemoryLocks) -> None:
    locks.lose(KEY)
    locks.steal(KEY)
    locks.advance(10)


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
    votes = {
        point.attributes[server.SERVER_PORT]: point.value
        for point in exported.points("fastredlock.master.votes")
    }
    assert [votes[port] for port in ports] == [0, 0, 0, 1, 1]


def test_gauges_when_a_lease_is_held_then_are_those_of_prometheus(
    observed: FastRedlock, exported: Exported
) -> None:
    lease = granted(observed.acquire(KEY))
    for name, _, labels in GAUGES:
        points = exported.points(f"fastredlock.{name.replace('_', '.')}")
        wanted = 0 if name == "master_warnings" else 1
        assert [each.value for each in points] == [wanted] * (5 if labels else 1)
    lease.release()
    assert [each.value for each in exported.points("fastredlock.leases.held")] == [0]


def test_metrics_when_locks_were_used_then_have_the_names_of_the_conventions(
    observed: FastRedlock, exported: Exported, servers: Servers
) -> None:
    lease = granted(observed.acquire(KEY))
    assert observed.acquire(KEY, timeout=0) is None
    lease.extend()
    lease.release()
    lost = granted(observed.acquire("b"))
    set_all(servers, b"theirs", "b")
    lost.release()
    counted = {
        name: {
            point.attributes["fastredlock.outcome"]: point.count
            for point in exported.points(f"fastredlock.{name}.duration")
        }
        for name in ("acquire", "hold")
    }
    assert counted["acquire"] == {"acquired": 2, "taken": 1}
    assert counted["hold"] == {"released": 1, "lost": 1}
    (margin,) = exported.points("fastredlock.release.margin")
    assert 5 < margin.sum < 10
    assert [point.value for point in exported.points("fastredlock.extensions")] == [1]
    (lost_ones,) = exported.points("fastredlock.leases.lost")
    assert (lost_ones.value, dict(lost_ones.attributes)) == (1, {})
    assert exported.spans("hold")[-1].status.status_code is StatusCode.ERROR


# --- noted by the call, done by a thread ----------------------------------------------


class Gated(SpanProcessor):
    """Let no span begin before it may."""

    def __init__(self) -> None:
        self.may = threading.Event()

    def on_start(self, *_: object, **__: object) -> None:
        assert self.may.wait(10)


def test_spans_when_the_sdk_is_slow_then_keep_no_caller_waiting_and_have_its_times(
    exported: Exported,
) -> None:
    gated = Gated()
    exported.tracers.add_span_processor(gated)
    locks, began_ns = MemoryLocks(observer=exported.telemetry), time.time_ns()
    for _ in range(3):
        granted(locks.acquire(KEY)).release()
    ended_ns = time.time_ns()
    time.sleep(0.1)  # its thread has begun, and waits
    gated.may.set()
    spans = [*exported.spans("acquire"), *exported.spans("hold")]
    assert len(spans) == 6
    for span in spans:
        assert began_ns <= (span.start_time or 0) <= (span.end_time or 0) <= ended_ns


def test_telemetry_when_its_thread_is_behind_then_callers_help(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastredlock.otel.EVERY", 60)
    monkeypatch.setattr("fastredlock.otel.NOTED_MOST", 8)
    locks = MemoryLocks(observer=exported.telemetry)
    for _ in range(50):
        granted(locks.acquire(KEY)).release()
        assert len(exported.telemetry._noted) <= 9
    assert len(exported.finished("hold")) >= 45


def test_telemetry_when_the_sdk_raises_then_that_is_logged_once(
    exported: Exported, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SpanProcessor):
        def on_start(self, *_: object, **__: object) -> None:
            raise ValueError("broken")

    exported.tracers.add_span_processor(Broken())
    locks = MemoryLocks(observer=exported.telemetry)
    for _ in range(2):
        granted(locks.acquire(KEY)).release()
    assert exported.spans("hold") == []
    assert caplog.messages == [
        "telemetry: ValueError('broken'); later ones are not logged"
    ]


PROGRAM = """
import os, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, ConsoleSpanExporter
from fastredlock.otel import Telemetry
from fastredlock.testing import MemoryLocks
tracers = TracerProvider()
line = lambda span: f"{os.getpid() == main} {span.name}\\n"
tracers.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
main, locks = os.getpid(), MemoryLocks(observer=Telemetry(tracers))
locks.acquire("r").release()
if sys.argv[1] == "fork" and (child := os.fork()):
    os.waitpid(child, 0)
elif sys.argv[1] == "fork":
    MemoryLocks(observer=Telemetry(tracers)).acquire("r")
"""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("end", ["True acquire", "True hold"]),
        ("fork", ["False acquire", "True acquire", "True hold"]),
    ],
)
def test_program_when_it_ends_or_forks_then_each_span_is_exported_once(
    how: str, expected: list[str]
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == expected


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
