"""Spans and metrics for OpenTelemetry: needs `pip install 'fastredlock[otel]'`.

locks = FastRedlock(masters, observer=Telemetry())

An observer is given a resource, not a lease. So the spans of the with blocks around the
caller are in its context (`contextvars`). Where a lease is released, or its loss found,
outside of that, the block of the resource that was entered last is meant.

The SDK takes longer for a span than a lock does. So a call only notes what has ended,
when, and in which context; a thread makes the spans and records the metrics of that a
moment later, and lets others run behind each. It ends when nothing more comes.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from functools import partial
from threading import RLock, Thread
from time import sleep, time_ns
from typing import Any

from ._reports.log import warn
from ._reports.votes import Resource

try:
    from opentelemetry.context import attach, get_current
    from opentelemetry.metrics import (
        CallbackOptions,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
    from opentelemetry.trace import (
        Span,
        Status,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer_provider,
        set_span_in_context,
    )
except ImportError as _error:
    raise ImportError(
        "fastredlock.otel needs opentelemetry-api: pip install 'fastredlock[otel]'"
    ) from _error

from . import __version__
from ._reports.stats import BUCKETS, Counting, Totals
from .errors import AcquireError, FastRedlockError, LeaseLostError
from .observer import Observer

Attributes = dict[str, Any]

OUTCOME, RESOURCE = "fastredlock.outcome", "fastredlock.resource"
ATTEMPTS = "fastredlock.attempts"
GAUGES = (
    ("leases_held", "{lease}", "Leases that are valid, and not released"),
    ("master_connected", "1", "Whether a master is connected"),
    ("master_votes", "1", "Whether the vote of a master counts now"),
    ("master_warnings", "{warning}", "Warnings of health() about a master"),
)
EVERY = 0.05  # s
BURST_NS, PAUSE = 1_000_000, 0.001  # as long for others as for this
IDLE_MOST = 20  # times, and the thread ends
NOTED_MOST = 4096  # beyond, a caller waits for some of it


class Block:
    """The span of one with block, and what was current around it."""

    __slots__ = ("around", "is_ended", "is_left", "key", "span")

    def __init__(self, key: tuple[Telemetry, Resource], span: Span) -> None:
        self.key: tuple[Telemetry, Resource] = key
        self.span: Span = span
        self.around: Any = get_current()  # a context of OpenTelemetry
        self.is_left: bool = False  # the block
        self.is_ended: bool = False  # its lease, and so the span


# Of the blocks around, the innermost first; one that is left, until its lease ends.
AROUND: ContextVar[tuple[Block, ...]] = ContextVar("fastredlock.blocks", default=())


class Telemetry(Observer):
    """Make a span of each acquire and of each hold, and metrics of both.

    The span of the hold of a with block begins with the block, and is current in it:
    what the block does is its child. Any other is made when it has ended, with its own
    times; its parent is the span that is current then, and of a loss that a keeper
    reports, the one that was current when it was kept.
    `tracer_provider`, `meter_provider`: default the global ones. `label`: a function
    from a resource to a few words, which become an attribute of the metrics; without it
    they have none, for each value is a series of its own. Spans have the resource.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        label: Callable[[Resource], str] | None = None,
    ) -> None:
        self._label = label
        self._totals = Totals()
        self._has_begun = False
        self._begin_anew()
        ALL.add(self)
        # The last of each resource, of any thread: read and changed in single steps.
        self._entered: dict[Resource, Block] = {}
        tracers = tracer_provider or get_tracer_provider()
        self._tracer = tracers.get_tracer("fastredlock", __version__)
        meters = meter_provider or get_meter_provider()
        meter = meters.get_meter("fastredlock", __version__)

        def histogram(name: str, description: str) -> Any:
            return meter.create_histogram(
                name, "s", description, explicit_bucket_boundaries_advisory=BUCKETS
            )

        self._duration = histogram(
            "fastredlock.acquire.duration", "Duration of acquires, with their waits"
        )
        self._hold = histogram(
            "fastredlock.hold.duration", "Time from the grant to the end of a lease"
        )
        self._margin = histogram(
            "fastredlock.release.margin", "Validity left when a release began"
        )
        self._extensions = meter.create_counter(
            "fastredlock.extensions", "{extension}", "Extensions, also by keepers"
        )
        self._lost = meter.create_counter(
            "fastredlock.leases.lost", "{lease}", "Leases that ended by their loss"
        )
        meter.create_observable_counter(
            "fastredlock.master.failures",
            [partial(self._observed, "master_failures")],
            "{round}",
            "Rounds in which a master failed, or was silent until the deadline",
        )
        meter.create_observable_counter(
            "fastredlock.master.answers",
            [partial(self._observed, "master_answers")],
            "{answer}",
            "Answers of a master to rounds",
        )
        for name, unit, text in GAUGES:
            meter.create_observable_gauge(
                "fastredlock." + name.replace("_", "."),
                [partial(self._gauged, name)],
                unit,
                text,
            )

    # --- events -----------------------------------------------------------------------

    def attach(self, locks: Counting) -> None:
        self._totals.add(locks)

    def flush(self) -> None:
        """Make the spans, and record the metrics, of all that has ended by now.

        A thread does it within 0.1 s, and it is done when metrics are collected and at
        the end of the program. Call it before you shut down a provider.
        """
        with self._doing:
            while self._noted:
                self._do_next()

    def acquired(self, resource: Resource, waited: float, attempts: int) -> None:
        self._acquire(resource, waited, attempts, "acquired")

    def taken(self, resource: Resource, waited: float, attempts: int) -> None:
        """Make the span of an acquire that ended without the lock; that is no error."""
        self._acquire(resource, waited, attempts, "taken")

    def unreachable(
        self, resource: Resource, waited: float, attempts: int, error: AcquireError
    ) -> None:
        self._acquire(resource, waited, attempts, "unreachable", error)

    def extended(self, resource: Resource, remaining: float) -> None:
        labels, around = self._labels(resource), get_current()
        self._later(partial(self._extensions.add, 1, labels, around))

    def lost(self, resource: Resource, held: float, error: LeaseLostError) -> None:
        labels, around = self._labels(resource), get_current()
        self._later(partial(self._lost.add, 1, labels, around))
        self._end_hold(resource, held, "lost", error)

    def margin(self, resource: Resource, left: float) -> None:
        labels, around = self._labels(resource), get_current()
        self._later(partial(self._margin.record, left, labels, around))

    def released(self, resource: Resource, held: float) -> None:
        self._end_hold(resource, held, "released")

    def _acquire(
        self,
        resource: Resource,
        waited: float,
        attempts: int,
        outcome: str,
        error: FastRedlockError | None = None,
    ) -> None:
        attributes = {ATTEMPTS: attempts, RESOURCE: text_of(resource)}
        ended = "acquire", waited, outcome, error, attributes, None
        self._end(self._duration, resource, *ended)

    def _end_hold(
        self,
        resource: Resource,
        held: float,
        outcome: str,
        error: FastRedlockError | None = None,
    ) -> None:
        attributes = {RESOURCE: text_of(resource)}
        span = self._ended_span(resource)
        self._end(self._hold, resource, "hold", held, outcome, error, attributes, span)

    # --- noted, and done by a thread --------------------------------------------------

    def _begin_anew(self) -> None:
        # Also in a forked child, which has none of its parent's spans and threads.
        self._noted: deque[Callable[[], None]] = deque()
        self._doing = RLock()
        self._thread: Thread | None = None
        self._has_failed = False

    def _later(self, do: Callable[[], None]) -> None:
        self._noted.append(do)
        if self._thread is None:
            self._begin_thread()
        elif len(self._noted) > NOTED_MOST and self._doing.acquire(blocking=False):
            try:
                self._do_next()
                self._do_next()
            finally:
                self._doing.release()

    def _begin_thread(self) -> None:
        with self._doing:
            if self._thread is None:
                if not self._has_begun:  # behind the providers', so called before them
                    self._has_begun = True
                    atexit.register(flush_one, weakref.ref(self))
                name = "fastredlock telemetry"
                self._thread = Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        idle = 0
        while idle < IDLE_MOST:
            sleep(EVERY)
            idle = 0 if self._noted else idle + 1
            while self._noted:
                until_ns = time_ns() + BURST_NS
                while self._noted and time_ns() < until_ns:
                    self._do_next()
                sleep(PAUSE)
        self._thread = None
        if self._noted:
            self._begin_thread()

    def _do_next(self) -> None:
        with self._doing:
            if not self._noted:
                return
            do = self._noted.popleft()
            try:
                do()
            except Exception as raised:
                if not self._has_failed:
                    warn("telemetry: %r; later ones are not logged", raised)
                self._has_failed = True

    # --- with blocks ------------------------------------------------------------------

    def entered(self, resource: Resource) -> None:
        """Begin the span of a hold, which is current in the block."""
        attributes = {RESOURCE: text_of(resource)}
        span = self._tracer.start_span("hold", attributes=attributes)
        block = self._entered[resource] = Block((self, resource), span)
        AROUND.set((block, *(each for each in AROUND.get() if not each.is_left)))
        attach(set_span_in_context(span))

    def left(self, resource: Resource) -> None:
        """Make current again what was so around the block.

        It may be left by another thread than has entered it, and where another span is
        current: nothing changes there.
        """
        block = next((each for each in self._of(resource) if not each.is_left), None)
        if block is None:
            return
        block.is_left = True
        if self._entered.get(resource) is block:
            self._entered.pop(resource, None)
        if get_current_span() is block.span:
            attach(block.around)
        others = (each for each in AROUND.get() if each is not block)
        AROUND.set(tuple(others) if block.is_ended else (block, *others))

    def _ended_span(self, resource: Resource) -> Span | None:
        """Return the span of the block whose lease has ended; None: of none."""
        block = next((each for each in self._of(resource) if not each.is_ended), None)
        if block is None:
            return None
        block.is_ended = True
        if block.is_left:
            AROUND.set(tuple(each for each in AROUND.get() if each is not block))
        return block.span

    def _of(self, resource: Resource) -> list[Block]:
        key, last = (self, resource), self._entered.get(resource)
        blocks = [each for each in AROUND.get() if each.key == key]
        return blocks or ([] if last is None else [last])

    def _carrier(self) -> Callable[..., Any]:
        """Return a function that calls another, of a kept lease, in this context."""
        context = Context()
        context.run(AROUND.set, AROUND.get())
        context.run(attach, get_current())
        return context.run

    # --- spans ------------------------------------------------------------------------

    def _end(
        self,
        times: Any,
        resource: Resource,
        name: str,
        took: float,
        outcome: str,
        error: FastRedlockError | None,
        attributes: Attributes,
        span: Span | None,
    ) -> None:
        """Note an end, with the time and the context that are current."""
        labels, around, end_ns = self._labels(resource), get_current(), time_ns()

        def end_it() -> None:
            end = attributes_of(outcome, error)
            times.record(took, {**end, **labels}, around)
            if span is not None:
                span.set_attributes(end)
                return end_span(span, end_ns, error)
            made = self._tracer.start_span(
                name, around, attributes={**end, **attributes},
                start_time=end_ns - int(took * 1e9),
            )  # fmt: skip
            end_span(made, end_ns, error)

        self._later(end_it)

    def _labels(self, resource: Resource) -> Attributes:
        return {} if self._label is None else {RESOURCE: self._label(resource)}

    # --- masters ----------------------------------------------------------------------

    def _observed(self, counted: str, _: CallbackOptions) -> Iterable[Observation]:
        self.flush()
        for (name, master, *failures), count in self._totals.read().items():
            if name == counted:
                attributes = address(master)
                if failures:
                    attributes["fastredlock.failure"] = failures[0]
                yield Observation(count, attributes)

    def _gauged(self, gauge: str, _: CallbackOptions) -> Iterable[Observation]:
        for (name, *master), value in self._totals.gauges().items():
            if name == gauge:
                yield Observation(value, address(master[0]) if master else {})


ALL: weakref.WeakSet[Telemetry] = weakref.WeakSet()


def begin_all_anew() -> None:
    for each in ALL:
        each._begin_anew()


os.register_at_fork(after_in_child=begin_all_anew)


def flush_one(refers: weakref.ref[Telemetry]) -> None:
    telemetry = refers()
    if telemetry is not None:
        telemetry.flush()


def attributes_of(outcome: str, error: FastRedlockError | None) -> Attributes:
    """Return what the span and the metric of one end have in common."""
    if error is None:
        return {OUTCOME: outcome}
    return {OUTCOME: outcome, "error.type": type(error).__name__}


def end_span(span: Span, end_ns: int, error: FastRedlockError | None) -> None:
    """End a span, unless a sampler has left it out."""
    if not span.is_recording():
        return
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end(end_ns)


def text_of(resource: Resource) -> str | list[str]:
    """Return a resource as an attribute can have it."""
    if isinstance(resource, tuple):
        return [str(text_of(each)) for each in resource]
    if isinstance(resource, bytes):
        return resource.decode("utf-8", "backslashreplace")
    return resource


def address(master: str) -> Attributes:
    """Return the attributes that name a server: its host and port, or its socket."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdigit():
        return {"server.address": master}
    return {"server.address": host.strip("[]"), "server.port": int(port)}
