"""To tell an observer: after the fact, and without harm to the call that tells it."""

from __future__ import annotations

import _thread  # by its name: gevent or eventlet may patch it later

from .._core import Round
from .._reports.log import warn
from ..errors import AcquireError, LeaseLostError
from .lease import GONE

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from .._reports.votes import Resource
    from .acquisition import BaseAcquisition
    from .driver import BaseDriver
    from .kept import Kept
    from .lease import BaseLease

LOST = "lost before its release: validity over, or taken"


class Observing:
    """Call the methods of an observer; see `fastredlock.observer`."""

    __slots__ = ("_at_it", "_has_raised", "_lease", "_observer")

    def __init__(self, observer: object, lease: type[Any]) -> None:
        self._observer = observer
        self._at_it: set[int] = set()  # threads: it may take a lock itself
        self._has_raised = False
        self._lease = lease

    def new_lease(self, driver: BaseDriver, resource: Resource, round: Round) -> Any:
        """Return a lease that tells of what becomes of it."""
        lease = self._lease(driver, resource, round)
        lease._observed = Observed(self, resource, driver.now_ns)
        return lease

    def tell(self, event: str, *values: object) -> None:
        """Call a method, if there is one; what it raises is logged the first time."""
        method = getattr(self._observer, event, None)
        me = _thread.get_ident()
        if method is None or me in self._at_it:
            return
        self._at_it.add(me)
        try:
            method(*values)
        except Exception as raised:
            self._log(event, raised)
        finally:
            self._at_it.discard(me)

    def _log(self, event: str, raised: BaseException) -> None:
        if not self._has_raised:
            self._has_raised = True
            warn("observer: %s raised %r; later ones are not logged", event, raised)

    # --- acquires ---------------------------------------------------------------------

    def of_acquire(
        self,
        acquisition: BaseAcquisition,
        resource: Resource,
        steps: Iterator[Round | float],
    ) -> Iterator[Round | float]:
        """Yield the steps of an acquire, and tell how it ended."""
        try:
            yield from steps
        except AcquireError as error:
            self.failed(error)
            raise
        if acquisition.round is not None:
            self.acquired_each([resource], [acquisition.round])

    def failed(self, error: Exception) -> None:
        """Tell of an acquire without a quorum in time."""
        if isinstance(error, AcquireError):
            self.tell(
                "unreachable", error.resource, error.elapsed, error.attempts, error
            )

    def acquired_each(
        self, resources: Sequence[Resource], rounds: Sequence[Round]
    ) -> None:
        """Tell of acquires by their last rounds."""
        for resource, round in zip(resources, rounds, strict=True):
            event = "acquired" if round.is_won else "taken"
            waited = (round.closed_ns - round.began_ns) / 1e9
            self.tell(event, resource, waited, round.attempt)

    # --- leases: each is one of ours --------------------------------------------------

    def before_releases(self, leases: Iterable[BaseLease | None]) -> list[float | None]:
        """List what `before_release` says of each."""
        return [None if lease is None else before_release(lease) for lease in leases]

    def released_each(
        self, leases: Iterable[Any], left: Iterable[float | None]
    ) -> None:
        """Tell of many releases."""
        for lease, each in zip(leases, left, strict=True):
            if each is not None:
                lease._observed.released(lease, each)

    def extended_each(self, leases: Iterable[Any], outcomes: Iterable[object]) -> None:
        """Tell of many extensions: the validity of each, or its error."""
        for lease, outcome in zip(leases, outcomes, strict=True):
            if isinstance(outcome, float):
                lease._observed.extended(outcome)
            elif isinstance(outcome, LeaseLostError):
                lease._observed.lost(lease, outcome)

    # --- for keepers, in threads of theirs or by the loop -----------------------------

    def kept_extended(self, kept: Kept) -> None:
        """Tell of renewals of a kept lease, unless it has ended meanwhile."""
        lease: Any = kept()
        left = 0.0 if lease is None else lease.remaining()
        if left > 0.0:
            observed: Observed = lease._observed
            del lease  # a method that takes long must not have it renewed
            self._tell_all("extended", observed.extended, left)

    def kept_lost(self, lost: tuple[Any, LeaseLostError]) -> None:
        """Tell of the loss of a kept lease."""
        self._tell_all("lost", lost[0]._observed.lost, *lost)

    def _tell_all(self, event: str, tell: Callable[..., None], *values: object) -> None:
        try:
            tell(*values)
        except BaseException as raised:  # no caller is there to see it
            self._log(event, raised)
            raise


class Observed:
    """Hold what one lease has to tell."""

    __slots__ = ("_now_ns", "_observing", "_resource", "_since_ns", "_unended")

    def __init__(
        self, observing: Observing, resource: Resource, now_ns: Callable[[], int]
    ) -> None:
        self._observing = observing
        self._resource = resource
        self._now_ns = now_ns
        self._since_ns = now_ns()
        self._unended = [True]  # of several threads one takes it out, and tells

    def extended(self, left: float) -> None:
        """Tell of an extension."""
        self._observing.tell("extended", self._resource, left)

    def lost(self, lease: BaseLease, error: LeaseLostError) -> None:
        """Tell of its loss, unless its end was told or it is not ours."""
        is_ours = lease._round.generation == lease._driver.fork_generation()
        if is_ours and lease._status is None and self._ends():
            self._observing.tell("lost", self._resource, self._held(), error)

    def released(self, lease: BaseLease, left: float) -> None:
        """Tell of its release, or of its loss where that was found by it.

        left: as `before_release` said.
        """
        if not self._ends():
            return
        held = self._held()
        if lease._status is GONE or left == 0.0:
            error = LeaseLostError(self._resource, LOST)
            self._observing.tell("lost", self._resource, held, error)
            return
        if left > 0.0:
            self._observing.tell("margin", self._resource, left)
        self._observing.tell("released", self._resource, held)

    def _held(self) -> float:
        return (self._now_ns() - self._since_ns) / 1e9

    def _ends(self) -> bool:
        try:
            return self._unended.pop()
        except IndexError:
            return False


def before_release(lease: BaseLease) -> float | None:
    """Return the validity (s) left before a release, -1.0 where it is not known.

    None: it will not be the first one, or is not ours, so it tells nothing.
    """
    if lease._status is not None:
        return None
    if lease._round.generation != lease._driver.fork_generation():
        return None
    return -1.0 if lease._is_adopted() else lease.remaining()


def attach(observer: object, locks: object) -> None:
    """Let an observer know the FastRedlock, if it wants to."""
    attach = getattr(observer, "attach", None)
    if attach is not None:
        attach(locks)
