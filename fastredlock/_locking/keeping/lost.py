"""Whether a lease is lost: asked of the clock each time, and waited for."""

from __future__ import annotations

import _thread  # by its name: gevent or eventlet may patch it later
from contextlib import suppress
from typing import Any

from ..._reports.votes import shown
from ...errors import LeaseLostError
from .kept import Kept, Watch, kept_of

SLICE_NS = 1_000_000_000  # timers stop while the machine is suspended
RELEASED = "it was released"
PARENTS = "it is the parent's"
UNKNOWN = "not known to be valid: it was adopted, and not extended since"
OVER = "lost: its validity is over"
BEFORE_END = "lost before the end of the with block"
OVERRUN = (
    "lost before the end of the with block: its validity (ttl {:g} s) was overrun by "
    "{:.3f} s"
)
ADVICE = "; give keep_alive=True, or a longer ttl"
KEY_GONE = "lost before the end of the with block: its key is gone: deleted, or taken"


def is_lost(lease: Any) -> bool:
    """Return whether it ended otherwise than by a release; once so, it stays so.

    An adopted lease of which nothing is known yet is not.
    """
    made = lease._round.lease_state
    kept: Kept | None = None if made is None else made.kept
    if kept is not None and kept.is_lost:
        return True
    if lease._status is not None:
        return lease._status is lease._gone
    if lease.is_valid:
        return False
    if (
        lease._is_adopted()
        and lease._round.generation == lease._driver.fork_generation()
    ):
        return False
    if kept is not None:
        kept.count_lost()
    return True


def check(lease: Any) -> None:
    """Raise LeaseLostError where the lease is over; no I/O."""
    if not lease.is_valid:
        raise loss_of(lease) or LeaseLostError(lease.resource, reason_of(lease))


def loss_of(lease: Any) -> LeaseLostError | None:
    """Return, anew, the error by which a loss was reported; None where none was."""
    made = lease._round.lease_state
    kept: Kept | None = None if made is None else made.kept
    if kept is None or kept.watch is None or kept.watch.error is None:
        return None
    return LeaseLostError(*kept.watch.error.args)


def reason_of(lease: Any) -> str:
    """Return why a lease is not valid."""
    if lease._round.generation != lease._driver.fork_generation():
        return PARENTS
    if is_lost(lease):
        return OVER
    return UNKNOWN if lease._status is None else RELEASED


def loss_at_exit(lease: Any, overrun_ns: int) -> LeaseLostError:
    """Return the error of a body that ended by so much too late; 0: not known."""
    reason = reason_at_exit(lease, overrun_ns)
    return loss_of(lease) or LeaseLostError(lease.resource, reason)


def reason_at_exit(lease: Any, overrun_ns: int) -> str:
    """Return why a lease was not valid any more at the end of its body."""
    if lease._round.generation != lease._driver.fork_generation():
        return f"{BEFORE_END}: {PARENTS}"
    if overrun_ns > 0:
        made = lease._round.lease_state
        advice = ADVICE if made is None or made.kept is None else ""
        return OVERRUN.format(lease.ttl, overrun_ns / 1e9) + advice
    if lease._status is not lease._gone and lease._is_adopted():
        return f"{BEFORE_END}: {UNKNOWN}"
    return KEY_GONE


class BaseLost:
    """The reading half of an event: a lease is lost; see `Lost`."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Any) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Return whether the lease is lost, by the clock; does not block.

        False for one that was released while it was valid.
        """
        return is_lost(self._lease)

    def _is_over(self) -> bool:
        return self._lease._status is not None or is_lost(self._lease)

    def _left_ns(self, until_ns: int | None, now_ns: int) -> int:
        """Return how long to wait before looking again (ns); 0: time is up."""
        left_ns = SLICE_NS if until_ns is None else min(SLICE_NS, until_ns - now_ns)
        end_ns: int = self._lease._valid_until_ns
        if end_ns:
            left_ns = min(left_ns, max(end_ns - now_ns, 1))
        return max(left_ns, 0)

    def _until_ns(self, timeout: float | None) -> int | None:
        if timeout is None:
            return None
        now_ns: int = self._lease._driver.now_ns()
        return now_ns + int(timeout * 1e9)

    def _watch(self) -> Watch:
        return kept_of(self._lease).watched()

    @shown
    def __repr__(self) -> str:
        state = "set" if self.is_set() else "unset"
        return f"<{type(self).__name__} of {self._lease.resource!r}: {state}>"


class Lost(BaseLost):
    """Show whether a lease is lost, as the reading half of a `threading.Event`."""

    __slots__ = ()

    _lease: Any  # of the face that it is imported by

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is lost; return False where it was released, or time is up.

        `timeout` in s. Needs no keeper: it looks at the end of the validity itself.
        """
        until_ns, watch = self._until_ns(timeout), self._watch()
        now_ns = self._lease._driver.now_ns
        while not self._is_over():
            gate = _thread.allocate_lock()
            gate.acquire()
            watch.waiters.append(gate.release)
            try:
                left_ns = 0 if self._is_over() else self._left_ns(until_ns, now_ns())
                if left_ns > 0:
                    self._lease._driver.wait(gate, left_ns)
            finally:
                with suppress(ValueError):  # it was woken
                    watch.waiters.remove(gate.release)
            if until_ns is not None and now_ns() >= until_ns:
                break
        return self.is_set()
