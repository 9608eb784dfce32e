"""The state of a lease that is kept, or whose loss is waited for; others have none.

It stands where a lease's `Extensions` stand (`Round.keep_lease_state`), and either may
have been there first. As long as nobody extends the lease by hand, all of its renewals
ask for the same ttl, so a later one never shortens an earlier one: the end of the
validity is one number, and no list of bounds is needed. The first extension by hand
makes the Extensions, and from then on the renewals count in them like any other.

Threads share this without a lock, in single steps that no other thread can divide:
a renewal is named in `renewal` before its keeper looks for Extensions, and who makes
Extensions looks at `renewal` afterwards; so of two, one sees the other.
"""

from __future__ import annotations

from typing import NamedTuple

from .validity import Extensions

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
    from weakref import ReferenceType

    from .._core import Round, Terms
    from ..errors import LeaseLostError
    from .lease import BaseLease
    from .pace import Pace

NEVER_KEPT_NS = 0  # of `until_ns`

_making: dict[tuple[int, str], Any] = {}


def first(owner: object, name: str, new: Any) -> Any:
    """Set an attribute that is None; return the one that was set first.

    Of several threads that come at once all get the same: `setdefault` is one step.
    """
    key = (id(owner), name)
    made = _making.setdefault(key, new)
    if getattr(owner, name) is None:
        setattr(owner, name, made)
    _making.pop(key, None)
    return getattr(owner, name)


class Past(NamedTuple):
    """Renewals that some masters never answered: they may still be executed there."""

    terms: Terms
    may_hold: int
    is_opened: bool = True


class Watch:
    """Hold what few kept leases need: who is to be told, and of what."""

    __slots__ = (
        "body",
        "error",
        "failed",
        "on_lost",
        "on_renewal",
        "unknown_until_ns",
        "waiters",
    )

    def __init__(self) -> None:
        self.on_lost: Callable[[Any, LeaseLostError], object] | None = None
        self.on_renewal: Callable[[], object] | None = None  # compat's: a line in a log
        self.error: LeaseLostError | None = None  # that was told
        self.failed: Round | None = None  # the last renewal, where it was not confirmed
        self.unknown_until_ns: int = 0  # adopted: so long its first renewal may take
        self.waiters: list[Callable[[], object]] = []  # to be called once at its end
        self.body: Any = None  # of an `async with`


class Kept:
    """Hold the times of one kept lease; changed by its keeper, but for `until_ns`."""

    __slots__ = (
        "_terms",
        "awaited",
        "bucket",
        "extensions",
        "is_lost",
        "lease",
        "pace",
        "renewal",
        "until_ns",
        "validity_ns",
        "watch",
    )

    def __init__(self, lease: BaseLease, extensions: Extensions | None = None) -> None:
        from weakref import ref

        round = lease._round
        self.lease: ReferenceType[BaseLease] = ref(lease)
        self._terms = round.terms
        self.validity_ns: int = round.valid_until_ns
        self.until_ns: int | None = NEVER_KEPT_NS  # from then on it is not renewed
        self.is_lost: bool = False
        self.bucket: list[Kept] | None = None  # of its keeper, in which it waits
        self.pace: Pace | None = None  # of its ttl
        self.renewal: Round | None = None  # the last one, until all have answered it
        self.awaited: int = 0  # the masters that never answered an earlier one
        self.extensions: Extensions | None = extensions  # None: never extended by hand
        self.watch: Watch | None = None

    @property
    def kept(self) -> Kept:
        """Itself: Extensions that were there first have it as an attribute."""
        return self

    @property
    def terms(self) -> Terms:
        """The times last asked for."""
        return self._terms if self.extensions is None else self.extensions.terms

    @property
    def longest_terms(self) -> Terms:
        """The times of the longest ttl asked for, confirmed or not."""
        if self.extensions is None:
            return self._terms
        return self.extensions.longest_terms

    @property
    def valid_until_ns(self) -> int:
        """The end of the validity; 0 where it is lost, or was never known."""
        if self.is_lost:
            return 0
        if self.extensions is None:
            return self.validity_ns
        return self.extensions.valid_until_ns

    def watched(self) -> Watch:
        """Return the Watch; the first call makes it."""
        made: Watch = self.watch or first(self, "watch", Watch())
        return made

    # --- extended by hand -------------------------------------------------------------

    def to_extensions(self) -> Extensions:
        """Return the Extensions, in which a renewal under way counts as one."""
        made = self.extensions
        if made is None:
            new = Extensions(self._terms, self.validity_ns)
            new.kept = self
            made = first(self, "extensions", new)
        renewal = self.renewal
        if renewal is not None:
            self._count(made, renewal)
        if self.awaited:
            made.unanswered.add(Past(self._terms, self.awaited))  # type: ignore[arg-type]
        return made

    def _count(self, extensions: Extensions, renewal: Round) -> None:
        extensions.unanswered.add(renewal)
        if not renewal.closed_ns:
            bound_ns = renewal.valid_until_ns or self.validity_ns
            extensions.under_way.setdefault(renewal, [bound_ns])
            if renewal.closed_ns:  # its keeper may have looked before
                extensions.under_way.pop(renewal, None)

    def nudge(self) -> None:
        """Let the keeper, and who waits, look again: it was extended by hand."""
        lease, watch = self.lease(), self.watch
        is_told = watch is not None and watch.on_lost is not None
        if lease is not None and (is_told or self.until_ns != NEVER_KEPT_NS):
            lease._driver.keep(self)
        self.wake()

    # --- renewals, by the keeper ------------------------------------------------------

    def begin(self, renewal: Round, at_ns: int) -> None:
        """Count a renewal that is about to be run; in Extensions where there are."""
        self.renewal = renewal
        if self.extensions is not None:
            self.extensions.begin(renewal, renewal, at_ns)

    def win(self, renewal: Round) -> None:
        """Let a renewal that was won in time count."""
        if self.watch is not None:
            self.watch.failed = None
        extensions = self.extensions
        if extensions is None:
            self.validity_ns = renewal.valid_until_ns
        elif renewal in extensions.under_way:
            extensions.win(renewal, renewal)

    def end(self, renewal: Round) -> None:
        """Count a renewal as ended, however it did."""
        if self.extensions is not None:
            self.extensions.under_way.pop(renewal, None)

    def settle(self, renewal: Round) -> None:
        """Let go of a renewal that ended some time ago."""
        if renewal.may_hold:
            self.awaited |= renewal.may_hold
        if self.renewal is renewal:
            self.renewal = None

    # --- its end ----------------------------------------------------------------------

    def lose(self, error: LeaseLostError) -> bool:
        """Count as lost from now on, and wake who waits; False: it was told before."""
        watch = self.watched()
        if watch.error is not None:
            return False
        watch.error = error
        self.is_lost = True
        self.validity_ns = 0
        if self.extensions is not None:
            self.extensions.validity_ns = [0]
        self.wake()
        if watch.body is not None:
            watch.body.cancel()
        return True

    def released(self) -> None:
        """Take note that its release has begun: nothing renews it, nothing is told."""
        self.until_ns = NEVER_KEPT_NS
        lease = self.lease()
        if lease is not None and 0 < self.valid_until_ns <= lease._driver.now_ns():
            self.is_lost = True  # before that, and nobody was told
        self.wake()

    def wake(self) -> None:
        """Wake all that wait for its end."""
        watch = self.watch
        while watch is not None and watch.waiters:
            try:
                wake = watch.waiters.pop()
            except IndexError:  # another thread was at it
                return
            wake()


def kept_of(lease: BaseLease) -> Kept:
    """Return the lease's Kept; the first call makes it, and keeps nothing yet."""
    made: Kept | Extensions | None = lease._round.lease_state
    if made is None:
        made = lease._round.keep_lease_state(Kept(lease))
    if isinstance(made, Kept):
        return made
    kept: Kept = made.kept or first(made, "kept", Kept(lease, made))
    return kept
