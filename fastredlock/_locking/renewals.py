"""When each kept lease is renewed, reported lost, kept no longer: policy without I/O.

A keeper (a thread, or a timer of an event loop) asks `due`, runs the renewals that it
names, and gives their outcomes to `end`; it sleeps until `next_ns`. No clock is read
here, nothing is sent, and no thread but the keeper's calls it.

    RENEWED   at a third of the ttl, less a random part, which is larger the first
              time: leases that were taken together are not renewed together
    AGAIN     a renewal that too few masters confirmed: a quarter of a renewal's time
              later, and later a quarter of what is left, as long as it is valid
    LOST      just before the end of the validity, by the clock: whatever the masters
              do, and also where renewals have ended; or at once, where a quorum reports
              that the key is gone
    DROPPED   nobody refers to the lease any more, or it was released

This is the text of these rules. What most leases need, renewed in time and never
extended by hand, the core does for a whole bucket at once (`kept_due` and `kept_end` of
src_cython/calls/fields.pyx); the others it hands back, and they are treated here one by
one. A test runs both over the same leases.

All that is due in the same short span, a power of two below a twelfth of the time
between renewals, is in one bucket: so ten thousand leases cost no more wake-ups
than one that is always due, and one write per master each.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from .._core import Pace, Round, Verdict, kept_due, kept_end
from .validity import Validity

# --- the pace of one ttl --------------------------------------------------------------

NS_PER_MS = 1_000_000
SHARE = 3  # of a ttl that passes before a renewal, as on the Redlock page's own advice
SPREAD = 10  # a tenth of that time is random; before the first renewal all the rest is
SPANS = 12  # in the time between renewals, at the least
LONGEST_MARGIN_NS = 100_000_000  # a busy machine wakes a thread by then


def pace_of(ttl_ms: int, drift_ns: int) -> Pace:
    ttl_ns = ttl_ms * NS_PER_MS
    wait_ns = ttl_ns // SHARE
    margin_ns = min(ttl_ns // 100 + 2 * NS_PER_MS, LONGEST_MARGIN_NS, wait_ns // 4)
    pace = Pace()
    pace.lease_ns = ttl_ns - drift_ns
    pace.wait_ns = wait_ns
    pace.part_ns = wait_ns // SPREAD
    pace.margin_ns = margin_ns
    pace.shift = max((wait_ns // SPANS).bit_length() - 1, 0)
    pace.notice_shift = max((margin_ns // 2).bit_length() - 1, 0)
    return pace


def reported_ns(valid_until_ns: int, pace: Pace) -> int:
    """Return when a loss is reported: a bit before it, for a wake-up takes its time."""
    last_ns = valid_until_ns - pace.margin_ns // 2
    return last_ns >> pace.notice_shift << pace.notice_shift


# --- all that are kept ----------------------------------------------------------------

LEAST_WAIT_NS = 5_000_000  # between renewals that fail
LEAST_TIME_NS = 2_000_000  # for a renewal
EPOCH_NS = 60_000_000_000  # after two of them without it, a short ttl is forgotten
MOST = 1000  # renewals at a time: a caller's command never waits behind more
STEP = 40_503  # of 65,536: the golden section, which spreads any number evenly
TAKEN = Verdict.TAKEN


class Due(NamedTuple):
    """What is to be done now."""

    renewals: list[Validity]
    grants: list[Round]  # the rounds of these leases, in the same order
    lost: list[Validity]  # by the clock


class Keeping:
    """The kept leases of one FastRedlock, each at the next time that concerns it."""

    __slots__ = (
        "_before_ns",
        "_buckets",
        "_draw",
        "_ended",
        "_ends",
        "_epoch_ns",
        "_keys",
        "_paces",
        "_shortest_ns",
        "_soonest_ns",
    )

    def __init__(self, seed: int = 0) -> None:
        self._buckets: dict[int, list[Validity]] = {}
        self._keys: list[int] = []  # of the buckets: a heap
        self._draw = seed
        self._paces: dict[tuple[int, int], Pace] = {}
        self._ends: list[int] = []  # of leases that are not renewed, or not yet
        self._soonest_ns = 0  # the earliest end among those that are due
        self._shortest_ns = EPOCH_NS  # time between renewals, of any ttl here lately,
        self._before_ns = EPOCH_NS  # ...and in the epoch before
        self._epoch_ns = 0  # when this one ends
        self._ended: list[tuple[list[Validity], list[Round]]] = []

    @property
    def next_ns(self) -> int | None:
        """When something is due; None: nothing is kept."""
        return self._keys[0] if self._keys else None

    # --- beginning --------------------------------------------------------------------

    def add(self, kept: Validity, now_ns: int) -> None:
        """Look at a lease that is to be kept from now on, or whose times have changed.

        Its first renewal is soon where its validity is not known (it was adopted).
        """
        lease = kept()
        if lease is None:
            return  # nobody refers to it any more
        pace = self._pace(kept)
        valid_until_ns = kept.valid_until_ns
        if valid_until_ns == 0:
            self._put(kept, now_ns)
            return
        wait_ns = pace.wait_ns - self._part(pace.wait_ns - pace.wait_ns // SPREAD)
        due_ns = max(valid_until_ns - pace.lease_ns + wait_ns, now_ns)
        due_ns = min(due_ns, reported_ns(valid_until_ns, pace))
        self._put(kept, due_ns >> pace.shift << pace.shift)

    def _pace(self, kept: Validity) -> Pace:
        terms = kept.terms
        key = (terms.ttl_ms, terms.drift_ns)
        pace = self._paces.get(key)
        if pace is None:
            if len(self._paces) >= MOST:
                self._paces.clear()
            self._paces[key] = pace = pace_of(*key)
        if pace.wait_ns < self._shortest_ns:
            self._shortest_ns = pace.wait_ns
        kept.pace = pace
        return pace

    def _part(self, span_ns: int) -> int:
        """Draw from 0 to span_ns."""
        self._draw = self._draw + STEP & 0xFFFF
        return self._draw * span_ns >> 16

    def _put(self, kept: Validity, key_ns: int) -> None:
        bucket = self._buckets.get(key_ns)
        if bucket is None:
            self._buckets[key_ns] = bucket = []
            heappush(self._keys, key_ns)
        bucket.append(kept)
        kept.bucket = bucket

    # --- due --------------------------------------------------------------------------

    def due(self, now_ns: int, most: int = MOST) -> Due:
        """Return what is to be done now; those to be renewed are given to `end`.

        At most so many renewals: the others are still due, and losses come first.
        """
        if now_ns >= self._epoch_ns:
            self._before_ns, self._shortest_ns = self._shortest_ns, EPOCH_NS
            self._epoch_ns = now_ns + EPOCH_NS
        renewals: list[Validity] = []
        grants: list[Round] = []
        lost: list[Validity] = []
        soonest_ns = 1 << 63
        while self._keys and self._keys[0] <= now_ns:
            bucket = self._buckets.pop(heappop(self._keys))
            others, end_ns = kept_due(bucket, now_ns, renewals, grants)
            soonest_ns = min(soonest_ns, end_ns)
            for kept in others:
                kept.bucket = None
                lease = kept()
                if lease is None or lease._status is not None:
                    continue
                pace, end_ns = self._pace(kept), end_of(kept)
                if now_ns >= end_ns - pace.margin_ns or kept.is_lost:
                    lost.append(kept)
                elif now_ns < kept.until_ns:
                    renewals.append(kept)
                    grants.append(lease._round)
                    soonest_ns = min(soonest_ns, end_ns)
                else:  # not renewed any more; its end is reported in any case
                    self._put(kept, reported_ns(end_ns, pace))
                    heappush(self._ends, end_ns)
        self._soonest_ns = soonest_ns
        for kept in renewals[most:]:
            self._put(kept, now_ns)
        return Due(renewals[:most], grants[:most], lost)

    def time_for_renewals(self, now_ns: int) -> int:
        """Return how long (ns) renewals may take: no loss may be reported late.

        A round may first wait for connections as long, and then for replies.
        """
        ends = self._ends
        while ends and ends[0] <= now_ns:
            heappop(ends)
        soonest_ns = min(self._soonest_ns, ends[0]) if ends else self._soonest_ns
        shortest_ns = min(self._shortest_ns, self._before_ns)
        time_ns = min((soonest_ns - now_ns) // 3, shortest_ns // 2)
        return max(time_ns, LEAST_TIME_NS)

    # --- the outcome ------------------------------------------------------------------

    def end(
        self, renewals: list[Validity], rounds: list[Round], now_ns: int
    ) -> list[tuple[Validity, Round]]:
        """Take the outcomes of renewals; return those whose key is gone.

        `rounds`: of the same order. Those that were won count from their own beginning.
        """
        gone: list[tuple[Validity, Round]] = []
        self._let_go()
        self._ended.append((renewals, rounds))
        # What `_end_one` does with those that were won.
        others, self._draw, new_keys, shortest_ns = kept_end(
            renewals, rounds, self._buckets, self._draw, STEP
        )
        for key_ns in new_keys:
            heappush(self._keys, key_ns)
        self._shortest_ns = min(self._shortest_ns, shortest_ns)
        for kept, round in others:
            if self._end_one(kept, round, now_ns):
                gone.append((kept, round))
        return gone

    def _end_one(self, kept: Validity, round: Round, now_ns: int) -> bool:
        """Take the outcome of one renewal; return whether its key is gone."""
        lease = kept()
        try:
            if lease is None or lease._status is not None:
                return False
            if round.is_won and round.closed_ns < end_of(kept):
                kept.win_renewal(round)
                self._put_after(kept, round)
            elif round.verdict is TAKEN:
                return True
            else:
                kept.failed = round
                self._again(kept, now_ns)
        finally:
            kept.end_renewal(round)
        return False

    def _put_after(self, kept: Validity, round: Round) -> None:
        """Put a lease at its next renewal, after one that was won."""
        pace = self._pace(kept)
        wait_ns = pace.wait_ns - self._part(pace.part_ns)
        if kept.bounds is not None:  # that may have been shorter
            left_ns = kept.valid_until_ns - round.opened_ns
            wait_ns = min(wait_ns, max(left_ns // SHARE, LEAST_WAIT_NS))
        due_ns = round.opened_ns + wait_ns >> pace.shift << pace.shift
        self._put(kept, min(due_ns, reported_ns(kept.valid_until_ns, pace)))

    def _again(self, kept: Validity, now_ns: int) -> None:
        pace = self._pace(kept)
        end_ns = end_of(kept)
        last_ns = reported_ns(end_ns, pace)
        wait_ns = max(min(pace.wait_ns, end_ns - now_ns) // 4, LEAST_WAIT_NS)
        wait_ns -= self._part(wait_ns // SPREAD)
        shift = max((wait_ns // SPANS).bit_length() - 1, 0)
        due_ns = now_ns + wait_ns >> shift << shift
        heappush(self._ends, last_ns)
        self._put(kept, max(min(due_ns, last_ns), now_ns))

    def _let_go(self) -> None:
        """Let go of the renewals before: most are answered by all masters by now.

        Not sooner: who blocks reads replies that come after the quorum's with those of
        the next renewals.
        """
        ended, self._ended = self._ended, []
        for renewals, rounds in ended:
            for kept, round in zip(renewals, rounds, strict=True):
                kept.let_go(round)


def end_of(kept: Validity) -> int:
    """Return the end of the validity; of an adopted lease, when it counts as lost."""
    return kept.valid_until_ns or kept.unknown_until_ns
