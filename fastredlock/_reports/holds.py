"""The spans of with blocks, for OpenTelemetry: current in the block, ended after it.

An observer is given a resource, not a lease. So the spans of the blocks around the
caller are in its context (`contextvars`). Where a lease is released, or its loss found,
outside of that, the block of the resource that was entered last is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry.context import attach, get_current
from opentelemetry.trace import get_current_span, set_span_in_context

from .votes import Resource

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Hold:
    """The span of one with block, and what was current around it."""

    __slots__ = ("around", "is_ended", "is_left", "key", "span")

    def __init__(self, key: tuple[Holds, Resource], span: Span) -> None:
        self.key = key
        self.span = span
        self.around = get_current()
        self.is_left = False  # the block
        self.is_ended = False  # the lease, and so the span


# Of the blocks around, the innermost first; one that is left, until its lease ends.
AROUND: ContextVar[tuple[Hold, ...]] = ContextVar("fastredlock.holds", default=())


class Holds:
    """Hold the spans of with blocks that were entered, of one observer."""

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        # Of any thread: read and changed in single steps.
        self._entered: dict[Resource, Hold] = {}

    def carrier(self) -> Callable[..., Any]:
        """Return a function that calls another where the same is current as here."""
        context = Context()
        context.run(AROUND.set, AROUND.get())
        context.run(attach, get_current())
        return context.run

    def enter(self, resource: Resource, span: Span) -> None:
        """Make a span current, for a block."""
        hold = Hold((self, resource), span)
        self._entered[resource] = hold
        AROUND.set((hold, *(each for each in AROUND.get() if not each.is_left)))
        attach(set_span_in_context(span))

    def leave(self, resource: Resource) -> None:
        """Make current again what was so around the block.

        It may be left by another thread than has entered it, and where another span is
        current: nothing changes there.
        """
        holds = [each for each in self._of(resource) if not each.is_left]
        if not holds:
            return
        hold = holds[0]
        hold.is_left = True
        if self._entered.get(resource) is hold:
            self._entered.pop(resource, None)
        if get_current_span() is hold.span:
            attach(hold.around)
        rest = (each for each in AROUND.get() if each is not hold)
        AROUND.set(tuple(rest) if hold.is_ended else (hold, *rest))

    def end(self, resource: Resource) -> Span | None:
        """Return the span of a hold that has ended; None: it has none."""
        holds = [each for each in self._of(resource) if not each.is_ended]
        if not holds:
            return None
        hold = holds[0]
        hold.is_ended = True
        if hold.is_left:
            AROUND.set(tuple(each for each in AROUND.get() if each is not hold))
        return hold.span

    def _of(self, resource: Resource) -> list[Hold]:
        key, last = (self, resource), self._entered.get(resource)
        holds = [each for each in AROUND.get() if each.key == key]
        return holds or ([] if last is None else [last])
