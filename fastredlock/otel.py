"""Spans and metrics for OpenTelemetry: needs `pip install 'fastredlock[otel]'`.

    locks = FastRedlock(masters, observer=Telemetry())

The names of masters and errors are those of the semantic conventions
(https://opentelemetry.io/docs/specs/semconv/). No span and no metric is one of a
database call: most of a long acquire is waiting for others.

An observer is given a resource, not a lease. So the spans of the with blocks around
the caller are in its context (`contextvars`). Where a lease is released, or its loss
found, outside of that, the block of the resource that was entered last is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from functools import partial
from time import time_ns
from typing import Any

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

    # --- events -----------------------------------------------------------------------

    def attach(self, locks: Counting) -> None:
        self._totals.add(locks)

    def acquired(self, resource: Resource, waited: float, attempts: int) -> None:
        self._acquire(resource, waited, attempts, "acquired")

    def taken(self, resource: Resource, waited: float, attempts: int) -> None:
        """Make the span of an acquire that ended without; that is no error."""
        self._acquire(resource, waited, attempts, "taken")

    def unreachable(
        self, resource: Resource, waited: float, attempts: int, error: AcquireError
    ) -> None:
        self._acquire(resource, waited, attempts, "unreachable", error)

    def extended(self, resource: Resource, remaining: float) -> None:
        self._extensions.add(1, self._labels(resource))

    def lost(self, resource: Resource, held: float, error: LeaseLostError) -> None:
        self._lost.add(1, self._labels(resource))
        self._end_hold(resource, held, "lost", error)

    def margin(self, resource: Resource, left: float) -> None:
        self._margin.record(left, self._labels(resource))

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
        end = attributes_of(outcome, error)
        self._duration.record(waited, {**end, **self._labels(resource)})
        attributes = {**end, ATTEMPTS: attempts, RESOURCE: text_of(resource)}
        self._span("acquire", waited, attributes, error)

    def _end_hold(
        self,
        resource: Resource,
        held: float,
        outcome: str,
        error: FastRedlockError | None = None,
    ) -> None:
        end = attributes_of(outcome, error)
        self._hold.record(held, {**end, **self._labels(resource)})
        span = self._ended_span(resource)
        if span is None:
            attributes = {**end, RESOURCE: text_of(resource)}
            return self._span("hold", held, attributes, error)
        span.set_attributes(end)
        end_span(span, time_ns(), error)

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

    def _span(
        self,
        name: str,
        took: float,
        attributes: Attributes,
        error: FastRedlockError | None,
    ) -> None:
        end_ns = time_ns()
        start_ns = end_ns - int(took * 1e9)
        span = self._tracer.start_span(name, attributes=attributes, start_time=start_ns)
        end_span(span, end_ns, error)

    def _labels(self, resource: Resource) -> Attributes:
        return {} if self._label is None else {RESOURCE: self._label(resource)}

    # --- masters ----------------------------------------------------------------------

    def _observed(self, counted: str, _: CallbackOptions) -> Iterable[Observation]:
        for (name, master, *failures), count in self._totals.read().items():
            if name == counted:
                attributes = address(master)
                if failures:
                    attributes["fastredlock.failure"] = failures[0]
                yield Observation(count, attributes)


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
