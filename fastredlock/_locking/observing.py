"""An observer is notified after the fact, and without harm to the call that does it.

The core calls what each pair of acquire and release needs (calls/observer.pyx); here is
the rest: errors, extensions, losses, and the renewals of keepers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from .._core import ObserverHooks
from .._reports.log import warn
from ..errors import AcquireError, LeaseLostError
from ..observer import EVENTS, Observer
from .blocks import held_for
from .lease import GONE, BaseLease
from .validity import Validity

LOST = "lost before its release: validity over, or taken"


class Observing(ObserverHooks):
    """Call the methods of an observer; see `fastredlock.observer`."""

    __slots__ = ("_carrier", "_carriers", "_has_raised")

    def __init__(self, observer: object) -> None:
        methods = {event: method_of(observer, event) for event in EVENTS}
        super().__init__({each: call for each, call in methods.items() if call})
        self._has_raised = False
        # Telemetry's: what is current, for the loss of a kept lease. Not a copy of the
        # whole context: what is in there may refer to the lease, for ever.
        self._carrier = getattr(observer, "_carrier", None)
        self._carriers: WeakKeyDictionary[BaseLease, Any] = WeakKeyDictionary()

    def log(self, event: str, raised: BaseException) -> None:
        """Log what a method has raised: the first time."""
        if not self._has_raised:
            self._has_raised = True
            warn("observer: %s raised %r; later ones are not logged", event, raised)

    def on_failed(self, error: BaseException) -> None:
        """Notify of an acquire that raises, where it had no quorum in time."""
        if isinstance(error, AcquireError):
            waited, attempts = error.elapsed, error.attempts
            self.notify("unreachable", error.resource, waited, attempts, error)

    # --- leases -----------------------------------------------------------------------

    def on_extended(self, lease: BaseLease, outcome: object) -> None:
        """Notify of an extension: its validity, or the loss that it has found."""
        if isinstance(outcome, float):
            self.notify("extended", lease.resource, outcome)
        elif isinstance(outcome, LeaseLostError) and lease._status is None:
            self.on_lost(lease, outcome)

    def on_lost(self, lease: BaseLease, error: LeaseLostError) -> None:
        """Notify of a loss, unless that was done, or the lease is not ours."""
        is_ours = lease._round.generation == lease._driver.fork_generation()
        if is_ours and takes_end(lease):
            self.notify("lost", lease.resource, held_for(lease), error)

    def on_end(self, lease: BaseLease, left_ns: int) -> None:
        """Notify of a release, or of the loss that it has found.

        left_ns: the validity when it began; -1: it was not known.
        """
        if not takes_end(lease):
            return
        if lease._status is GONE or left_ns == 0:
            error = LeaseLostError(lease.resource, LOST)
            self.notify("lost", lease.resource, held_for(lease), error)
            return
        if left_ns > 0:
            self.notify("margin", lease.resource, left_ns / 1e9)
        self.notify("released", lease.resource, held_for(lease))

    # --- for keepers, in threads of theirs or by the loop -----------------------------

    def kept_extended(self, kept: Validity) -> None:
        """Notify of renewals of a kept lease, unless it has ended meanwhile."""
        lease: Any = kept()
        left = 0.0 if lease is None else lease.remaining()
        if left > 0.0:
            resource = lease.resource
            del lease  # a method that takes long must not have it renewed
            self._notify_beside("extended", self.notify, "extended", resource, left)

    def begin_kept(self, lease: BaseLease) -> None:
        """Take note of what is current where a lease is kept, for its loss."""
        if self._carrier is not None:
            self._carriers[lease] = self._carrier()

    def kept_lost(self, lost: tuple[BaseLease, LeaseLostError]) -> None:
        carry = self._carriers.pop(lost[0], None)
        if carry is None:
            self._notify_beside("lost", self.on_lost, *lost)
        else:
            self._notify_beside("lost", carry, self.on_lost, *lost)

    def _notify_beside(
        self, event: str, notify: Callable[..., None], *values: object
    ) -> None:
        try:
            notify(*values)
        except BaseException as raised:  # no caller is there to see it
            self.log(event, raised)
            raise


def method_of(observer: object, event: str) -> Any:
    """Return a method of an observer; None where it has none, or that of `Observer`."""
    method = getattr(observer, event, None)
    if getattr(method, "__func__", None) is getattr(Observer, event):
        return None
    return method


def takes_end(lease: BaseLease) -> bool:
    """Return whether the end of a lease is to be noted by this call: by one alone."""
    made: Validity | None = lease._round.lease_state
    return made is None or made.take_end()
