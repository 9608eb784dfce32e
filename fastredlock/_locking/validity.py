"""The validity of a lease that was extended or is kept; most leases have none of this.

`Extensions` are for leases that are extended by hand, `Kept` for those that are kept,
or whose loss is waited for. Either is in `Round.lease_state`, whichever was there
first, and has the other as an attribute. As long as nobody extends a kept lease by
hand, all of its renewals ask for the same ttl, so a later one never shortens an earlier
one: the end of the validity is one number, and no list of bounds is needed. The first
extension by hand makes the Extensions, and from then on the renewals count in them like
any other.

Threads share this without a lock, in single steps that no other thread can divide:
a renewal is named in `renewal` before its keeper looks for Extensions, and who makes
Extensions looks at `renewal` afterwards; so of two, one sees the other.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .._core import KeptFields, LeaseFields, Pace, Round, Terms, Vote, WatchFields
from ..errors import FastRedlockError, LeaseLostError

# --- extended by hand -----------------------------------------------------------------


def extensions_of(lease: LeaseFields) -> Extensions:
    """Return the lease's Extensions; the first call makes them.

    Threads and signal handlers may make several at the same time: the first to be kept
    is everybody's. (A lock would stay locked in a child forked meanwhile.)
    """
    made: Any = lease._round.lease_state
    if made is None:
        made = Extensions(lease._round.terms, lease._round.valid_until_ns)
        made = lease._round.keep_lease_state(made)
    if isinstance(made, Extensions):
        return made
    extensions: Extensions = made.to_extensions(lease._round.terms)
    return extensions


class Extensions:
    """Hold the times that the masters were asked for since the lease was taken.

    From its first write on an extension may have reached a master, also where no reply
    comes, and those of several threads may arrive in any order: the lease ends with the
    earliest of all that are under way.

    Threads share this without a lock, in single steps that no other thread can divide.
    A validity is a list of bounds, which holds until the earliest: each extension that
    begins adds its bound to every list that counts now or may count soon, and nothing
    is ever taken out of one.
    """

    __slots__ = (
        "end_notices",
        "kept",
        "longest_terms",
        "stays_until_ns",
        "terms",
        "unanswered",
        "under_way",
        "validity_ns",
    )

    def __init__(self, terms: Terms, valid_until_ns: int) -> None:
        self.terms: Terms = terms  # last asked for
        self.longest_terms: Terms = terms  # how long a key can live, confirmed or not
        self.validity_ns: list[int] = [valid_until_ns]  # the bounds that count now
        self.under_way: dict[object, list[int]] = {}  # those that count if it is won
        self.unanswered: set[Round] = set()
        # Taken out by the one call that notifies an observer of the lease's end.
        self.end_notices: list[bool] = [True]
        self.kept: Any = None  # whether, and how, the lease is kept
        self.stays_until_ns: int = 0  # not released before: `at_least` of a lock

    @property
    def extensions(self) -> Extensions:
        """Itself: a Kept that was there first has it as an attribute."""
        return self

    @property
    def valid_until_ns(self) -> int:
        """The end of the validity, whichever of the bounds comes first."""
        return min(self.validity_ns)

    def released(self) -> None:
        """Take note that the release of the lease has begun."""
        if self.kept is not None:
            self.kept.released()

    def ended(self, release: Round, is_gone: bool) -> None:
        """Take the outcome of a release that was not won."""
        if self.kept is not None:
            self.kept.ended(release, is_gone)

    def begin(self, round: Round, extension: object, now_ns: int) -> None:
        """Count a round that is about to be run."""
        terms = round.terms
        bound_ns = now_ns + terms.ttl_ms * 1_000_000 - terms.drift_ns
        self.terms = terms
        if terms.ttl_ms > self.longest_terms.ttl_ms:
            self.longest_terms = terms
        for old in tuple(self.unanswered):
            if not old.may_hold and (old.is_opened or old.is_finished):
                self.unanswered.discard(old)
        self.unanswered.add(round)
        # In the table before it looks at the others: of two, one sees the other. The
        # bounds that count now come last: an extension that is not in the table any
        # more has written them.
        bounds = self.under_way[extension] = [bound_ns]
        for others in tuple(self.under_way.values()):
            if others is not bounds:
                others.append(bound_ns)
                bounds.append(others[0])
        self.validity_ns.append(bound_ns)
        if self.kept is not None and round is not self.kept.renewal:
            self.kept.nudge()

    def win(self, round: Round, extension: object) -> None:
        """Let a won round count, however late the others arrive.

        A connection that was given up may deliver a command late, after those of its
        successor: a shorter extension would then be the last. It counts where no quorum
        can be made of masters that owe no reply to a shorter one.
        """
        bounds = self.under_way[extension]
        shorter = [
            old
            for old in tuple(self.unanswered)
            if old.may_hold and old.terms.ttl_ms < round.terms.ttl_ms
        ]
        if shorter and not is_firm(round, shorter):
            terms = min((old.terms for old in shorter), key=lambda terms: terms.ttl_ms)
            ttl_ns = terms.ttl_ms * 1_000_000 - terms.drift_ns
            bounds.append(round.opened_ns + ttl_ns)
        self.validity_ns = bounds
        if self.kept is not None and round is not self.kept.renewal:
            self.kept.nudge()

    def lose(self) -> None:
        """Count as lost, by a quorum. Who waits for that is notified at once."""
        self.validity_ns = [0]
        if self.kept is not None:
            self.kept.nudge()


def is_firm(round: Round, shorter: list[Round]) -> bool:
    """Return whether a quorum granted it that owes no reply to a shorter one."""
    awaited = 0
    for old in shorter:
        awaited |= old.may_hold
    votes = round.votes()
    firm = sum(
        vote is Vote.GRANTED and not awaited >> index & 1
        for index, (vote, _, _) in enumerate(votes)
    )
    return firm > len(votes) // 2


# --- kept -----------------------------------------------------------------------------

NEVER_KEPT_NS = 0  # of `until_ns`

_making: dict[tuple[int, str], Any] = {}


def first(owner: object, name: str, new: Any) -> Any:
    """Set an attribute that is None; return the one that was set first.

    Of several threads that come at once all get the same: `setdefault` is one step.
    """
    key = (id(owner), name)
    try:
        made = _making.setdefault(key, new)
        if getattr(owner, name) is None:
            setattr(owner, name, made)
    finally:  # interrupted: a later object may get this id
        _making.pop(key, None)
    return getattr(owner, name)


# Renewals that some masters never answered: they may still be executed there. Fields
# with types would take a millisecond at import.
Past = namedtuple("Past", ("terms", "may_hold", "is_opened"), defaults=(True,))


class Watch(WatchFields):
    """Hold what few kept leases need: who is to be notified, and of what."""

    __slots__ = (
        *("body", "end_notices", "error", "on_lost", "unknown_until_ns", "waiters"),
    )

    extensions: Extensions | None  # None: never extended by hand
    failed: Round | None  # the last renewal, where it was not confirmed
    on_renewal: Callable[[], object] | None  # compat's: a line in a log
    awaited: int  # the masters that never answered a renewal before the last one
    is_lost: bool

    def __init__(self) -> None:
        self.end_notices: list[bool] = [True]
        self.on_lost: Callable[[Any, LeaseLostError], object] | None = None
        self.error: LeaseLostError | None = None  # that was reported
        self.unknown_until_ns: int = 0  # adopted: so long its first renewal may take
        self.waiters: list[Callable[[], object]] = []  # to be called once at its end
        self.body: Any = None  # of an `async with`


class Kept(KeptFields):
    """Refer weakly to one kept lease, by a call, and hold its times.

    They are changed by its keeper, but for `until_ns`. There are thousands of them: so
    what few need is in the Watch.
    """

    __slots__ = ()

    validity_ns: int
    until_ns: int | None
    pace: Pace | None  # of its ttl
    bucket: list[Kept] | None  # of its keeper, in which it waits
    renewal: Round | None  # the last one, until all have answered it
    watch: Watch | None

    def __new__(cls, lease: LeaseFields, extensions: Extensions | None = None) -> Kept:
        """Make the Kept of a lease, which is not kept yet."""
        self = super().__new__(cls, lease)
        self.validity_ns = lease._round.valid_until_ns
        self.until_ns = NEVER_KEPT_NS  # from then on it is not renewed
        if extensions is not None:
            self.watched().extensions = extensions
        return self

    def __init__(self, *_: object) -> None:
        """Do nothing: weak references are made by __new__."""

    @property
    def kept(self) -> Kept:
        """Itself: Extensions that were there first have it as an attribute."""
        return self

    @property
    def extensions(self) -> Extensions | None:
        """Those by hand; None: there were none."""
        return None if self.watch is None else self.watch.extensions

    @property
    def end_notices(self) -> list[bool] | None:
        """As of Extensions; None: neither extended by hand nor lost."""
        return None if self.watch is None else self.watch.end_notices

    @property
    def is_lost(self) -> bool:
        """Whether it counts as lost; once so, it stays so."""
        return self.watch is not None and self.watch.is_lost

    @property
    def terms(self) -> Terms:
        """The times last asked for; for a keeper, which holds the lease meanwhile.

        The lease itself has no need of this: in garbage that is collected, where its
        task still releases it, it is no longer found from here.
        """
        if self.extensions is not None:
            return self.extensions.terms
        lease: LeaseFields = self()  # type: ignore[assignment]
        return lease._round.terms

    @property
    def valid_until_ns(self) -> int:
        """The end of the validity; 0 where it is lost, or was never known."""
        watch = self.watch
        if watch is None:
            return self.validity_ns
        if watch.is_lost:
            return 0
        if watch.extensions is None:
            return self.validity_ns
        return watch.extensions.valid_until_ns

    def watched(self) -> Watch:
        """Return the Watch; the first call makes it."""
        made: Watch = self.watch or first(self, "watch", Watch())
        return made

    # --- extended by hand -------------------------------------------------------------

    def to_extensions(self, acquired: Terms) -> Extensions:
        """Return the Extensions, in which a renewal under way counts as one.

        `acquired`: the times of the acquire, and so of all renewals so far.
        """
        watch = self.watched()
        made = watch.extensions
        if made is None:
            new = Extensions(acquired, self.validity_ns)
            new.kept = self
            made = first(watch, "extensions", new)
        renewal = self.renewal
        if renewal is not None:
            self._count(made, renewal)
        if watch.awaited:
            past = Past(acquired, watch.awaited)
            made.unanswered.add(past)  # type: ignore[arg-type]
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
        lease, watch = self(), self.watch
        notifies = watch is not None and watch.on_lost is not None
        if lease is not None and (notifies or self.until_ns != NEVER_KEPT_NS):
            lease._driver.keep(self)
        self.wake()

    # --- renewals, by the keeper ------------------------------------------------------

    def begin(self, renewal: Round, at_ns: int) -> None:
        """Count a renewal that is about to be run; in Extensions where there are."""
        before = self.renewal
        if before is not None and before is not renewal:
            self.settle(before)
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
            self.watched().awaited |= renewal.may_hold
        if self.renewal is renewal:
            self.renewal = None

    # --- its end ----------------------------------------------------------------------

    def lose(self, error: LeaseLostError) -> bool:
        """Count as lost from now on, and wake who waits; False: it was before."""
        watch, lease = self.watched(), self()
        if first(watch, "error", error) is not error:
            return False
        self.count_lost()
        if watch.extensions is not None:
            watch.extensions.validity_ns = [0]
        self.wake()
        if watch.body is not None and lease is not None and lease._status is None:
            watch.body.cancel()  # a body that releases it has ended its work itself
        return True

    def released(self) -> None:
        """Take note that its release has begun: no renewal any more.

        No report but of a loss before that, of which nobody was notified.
        """
        lease, until_ns = self(), self.valid_until_ns
        if lease is not None and (
            lease._driver.now_ns() >= until_ns
            and (until_ns > 0 or self.is_lost or lease._round.is_opened)
        ):
            self.report(lease)
            self.watched().is_lost = True
        self.until_ns = NEVER_KEPT_NS
        keeper = None if lease is None else lease._driver.keeper
        if keeper is not None:
            keeper.drop(self)
        self.wake()

    def ended(self, release: Round, is_gone: bool) -> None:
        """Take the outcome of a release that was not won: the first one counts."""
        lease = self()
        if is_gone and lease is not None:
            self.report(lease, release)
        if self.watch is not None:
            self.watch.on_lost = None  # gone later, it was deleted by that release

    def report(self, lease: LeaseFields, release: Round | None = None) -> None:
        """Have a loss reported by the keeper: the release has seen it first."""
        if self.watch is not None and self.watch.on_lost is not None:
            with suppress(FastRedlockError):  # no thread can be started
                lease._driver.keep(self).report(self, release)

    def count_lost(self) -> None:
        """Count as lost from now on."""
        self.watched().is_lost = True
        self.validity_ns = 0

    def wake(self) -> None:
        """Wake all that wait for its end."""
        watch = self.watch
        while watch is not None and watch.waiters:
            try:
                wake = watch.waiters.pop()
            except IndexError:  # another thread was at it
                return
            wake()


def kept_of(lease: LeaseFields) -> Kept:
    """Return the lease's Kept; the first call makes it, and keeps nothing yet."""
    made: Kept | Extensions | None = lease._round.lease_state
    if made is None:
        made = lease._round.keep_lease_state(Kept(lease))
    if isinstance(made, Kept):
        return made
    kept: Kept = made.kept or first(made, "kept", Kept(lease, made))
    return kept
