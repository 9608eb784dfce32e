"""What an observer is notified of: derive from `Observer`, or write a twin.

    locks = FastRedlock(masters, observer=MyObserver())

Any object will do that has some of the methods; a method that it has not is not called.
`fastredlock.prometheus` and `fastredlock.otel` have observers for these two.
"""

from __future__ import annotations

from typing import Any

from ._reports.votes import Resource
from .errors import AcquireError, ConfigurationError, LeaseLostError

EVENTS = (
    *("acquired", "taken", "unreachable"),
    *("extended", "lost", "margin", "released"),
    *("entered", "left"),
)
IS_AWAITED = 0x80 | 0x200  # CO_COROUTINE, CO_ASYNC_GENERATOR of `inspect`


class Observer:
    """Be notified of what has happened; every method does nothing.

    Methods are called after the fact, by the thread that made the call, or by the loop;
    for a kept lease by a thread beside its keeper, or by the loop. Until a method
    returns, this thread or loop does nothing else: be quick. The first exception of
    each FastRedlock is logged, and none reaches a caller. Not reported are calls by a
    method on the same FastRedlock, and calls that are cancelled or interrupted.

    `resource` is as it was given; a tuple for `acquire_all`. Times are s.
    """

    __slots__ = ()

    def attach(self, locks: Any) -> None:
        """Take note of the FastRedlock; called once, by its constructor."""

    def acquired(self, resource: Resource, waited: float, attempts: int) -> None:
        """Take note of a grant: `waited` since the call, after so many rounds."""

    def taken(self, resource: Resource, waited: float, attempts: int) -> None:
        """Take note of an acquire that ended without: others held it all that time."""

    def unreachable(
        self, resource: Resource, waited: float, attempts: int, error: AcquireError
    ) -> None:
        """Take note of an acquire that raises QuorumUnreachableError, or
        ValidityExhaustedError; the error has the vote of each master.

        Of `acquire_each`: once, for the resource that its error names.
        """

    def extended(self, resource: Resource, remaining: float) -> None:
        """Take note of an extension by hand or by a keeper: the validity it left."""

    def lost(self, resource: Resource, held: float, error: LeaseLostError) -> None:
        """Take note of a lease that ended otherwise than by its release; once.

        If it is kept, its keeper finds that; else the first extension or release that
        does.
        """

    def margin(self, resource: Resource, left: float) -> None:
        """Take note of the validity that was left when the release began.

        Called just before `released`, but not for an adopted lease that was never
        extended: its validity is not known.
        """

    def released(self, resource: Resource, held: float) -> None:
        """Take note of a release, once for each lease that was valid then.

        `held`: since it was granted, or adopted.
        """

    def entered(self, resource: Resource) -> None:
        """Take note that a with block begins, of a lock or by a lease.

        It is called, as `left` is, in the context (of `contextvars`) of the block: what
        is set here is set in there. For a lock it comes after `acquired`.
        """

    def left(self, resource: Resource) -> None:
        """Take note that a with block has ended; called before the release."""


def check(observer: object) -> None:
    """Raise ConfigurationError for what cannot be notified."""
    methods = [
        (name, getattr(observer, name)) for name in EVENTS if hasattr(observer, name)
    ]
    named = type(observer).__name__
    if not methods or isinstance(observer, type):
        raise ConfigurationError(
            f"observer of type {named}: allowed is an object with some of the methods "
            f"{', '.join(EVENTS)}"
        )
    for name, method in methods:
        code = getattr(method, "__code__", None)
        if not callable(method) or (code is not None and code.co_flags & IS_AWAITED):
            raise ConfigurationError(
                f"{name} of the observer of type {named}: allowed is a method "
                "that is not awaited"
            )
