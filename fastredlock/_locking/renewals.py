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

All that is due in the same short span, a power of two below a twelfth of the time
between renewals, is in one bucket: so ten thousand leases cost no more wake-ups
than one that is always due, and one write per master each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .._core import Round, Verdict
from .validity import FOREVER_NS, Validity

# --- the pace of one ttl --------------------------------------------------------------

NS_PER_MS = 1_000_000
SHARE = 3  # of a ttl that passes before a renewal, as on the Redlock page's own advice
SPREAD = 10  # a tenth of that time is random; before the first renewal all the rest is
SPANS = 12  # in the time between renewals, at the least
LONGEST_MARGIN_NS = 100_000_000  # a busy machine wakes a thread by then


class Pace(NamedTuple):
    """The times of all leases of one ttl (ns)."""

    valid_ns: int  # the ttl, less the drift
    wait_ns: int  # between renewals, at most
    span_ns: int  # of a bucket
    margin_ns: int  # from that before its end on, it counts as lost


@lru_cache(1000)
def pace_of(ttl_ms: int, drift_ns: int) -> Pace:
    ttl_ns = ttl_ms * NS_PER_MS
    wait_ns = ttl_ns // SHARE
    margin_ns = min(ttl_ns // 100 + 2 * NS_PER_MS, LONGEST_MARGIN_NS, wait_ns // 4)
    return Pace(ttl_ns - drift_ns, wait_ns, wait_ns // SPANS, margin_ns)


def rounded(at_ns: int, span_ns: int) -> int:
    """Return the beginning of its bucket, which is earlier by less than that span."""
    shift = max(span_ns.bit_length() - 1, 0)
    return at_ns >> shift << shift


def reported_ns(end_ns: int, pace: Pace) -> int:
    """Return when a loss is reported: a bit before it, for a wake-up takes its time."""
    return rounded(end_ns - pace.margin_ns // 2, pace.margin_ns // 2)


def end_of(kept: Validity) -> int:
    """Return the end of the validity; of an adopted lease, when it counts as lost."""
    return kept.valid_until_ns or kept.unknown_until_ns


# --- all that are kept ----------------------------------------------------------------

LEAST_WAIT_NS = 5_000_000  # between renewals that fail
LEAST_TIME_NS = 2_000_000  # for a renewal
MOST = 1000  # renewals at a time: a caller's command never waits behind more
STEP = 40_503  # of 65,536: the golden section, which spreads any number evenly


class Bucket(list[Validity]):
    """The leases that are due in one span; each is looked at when it begins."""

    __slots__ = ("soonest_ns",)

    soonest_ns: int  # the earliest end of their validity


class Due(NamedTuple):
    """What is to be done now."""

    renewals: list[Validity]
    time_ns: int  # that each of their rounds may take, twice: to connect, and to reply
    lost: list[Validity]  # by the clock


class Keeping:
    """The kept leases of one FastRedlock, each at the next time that concerns it."""

    __slots__ = ("_buckets", "_draw")

    def __init__(self, seed: int = 0) -> None:
        self._buckets: dict[int, Bucket] = {}  # few: spans of similar ttls are the same
        self._draw = seed

    @property
    def next_ns(self) -> int | None:
        """When something is due; None: nothing is kept."""
        return min(self._buckets, default=None)

    def has_held(self) -> bool:
        """Return whether one is neither released nor dropped: mostly the first is."""
        every = (kept() for bucket in self._buckets.values() for kept in bucket)
        return any(lease is not None and lease._status is None for lease in every)

    def add(self, kept: Validity, now_ns: int) -> None:
        """Look at a lease that is to be kept from now on, or whose times have changed.

        Its first renewal is soon where its validity is not known (it was adopted).
        """
        if kept() is None:
            return  # nobody refers to it any more
        terms = kept.terms
        kept.pace = pace = pace_of(terms.ttl_ms, terms.drift_ns)
        due_ns, end_ns = now_ns, kept.valid_until_ns
        if end_ns != 0:
            wait_ns = pace.wait_ns - self._part(pace.wait_ns - pace.wait_ns // SPREAD)
            due_ns = max(end_ns - pace.valid_ns + wait_ns, now_ns)
            due_ns = rounded(due_ns, pace.span_ns)
        self._put(kept, due_ns)

    def _part(self, span_ns: int) -> int:
        """Draw from 0 to span_ns."""
        self._draw = self._draw + STEP & 0xFFFF
        return self._draw * span_ns >> 16

    def _put(self, kept: Validity, due_ns: int) -> None:
        """Look at it then, or when its loss would be reported."""
        end_ns, pace = end_of(kept), kept.pace
        if due_ns > end_ns - pace.margin_ns:  # else it is before any report
            due_ns = min(due_ns, reported_ns(end_ns, pace))
        bucket = self._buckets.get(due_ns)
        if bucket is None:
            self._buckets[due_ns] = bucket = Bucket()
            bucket.soonest_ns = end_ns
        bucket.append(kept)
        if end_ns < bucket.soonest_ns:
            bucket.soonest_ns = end_ns
        kept.due_ns = due_ns

    # --- due --------------------------------------------------------------------------

    def due(self, now_ns: int, most: int = MOST) -> Due:
        """Return what is to be done now; those to be renewed are given to `end`.

        At most so many renewals, those that end first. The others are still due, and
        losses come first.
        """
        renewals: list[Validity] = []
        lost: list[Validity] = []
        soonest_ns = FOREVER_NS
        for due_ns in [each for each in self._buckets if each <= now_ns]:
            for kept in self._buckets.pop(due_ns):
                lease = kept()
                if kept.due_ns != due_ns or lease is None or lease._status is not None:
                    continue  # it is in another one since, or dropped
                end_ns = end_of(kept)
                if now_ns >= end_ns - kept.pace.margin_ns or kept.is_lost:
                    lost.append(kept)
                elif now_ns >= kept.until_ns:  # its end is reported in any case
                    self._put(kept, FOREVER_NS)
                else:
                    renewals.append(kept)
                    soonest_ns = min(soonest_ns, end_ns)
        time_ns = self._time_ns(now_ns, soonest_ns)
        if len(renewals) > most:
            renewals.sort(key=end_of)
            for kept in renewals[most:]:
                self._put(kept, now_ns)
            del renewals[most:]
        return Due(renewals, time_ns, lost)

    def _time_ns(self, now_ns: int, soonest_ns: int) -> int:
        """Return how long renewals may take that are due now, and end so soon.

        No other one is late by more than a quarter of the validity that it then has,
        and no loss is reported late.
        """
        time_ns = (soonest_ns - now_ns) // 3
        for due_ns, bucket in self._buckets.items():
            latest_ns = due_ns + (bucket.soonest_ns - due_ns) // 4
            time_ns = min(time_ns, (latest_ns - now_ns) // 2)
        return max(time_ns, LEAST_TIME_NS)

    # --- the outcome ------------------------------------------------------------------

    def end(
        self, renewals: list[Validity], rounds: list[Round], now_ns: int
    ) -> list[tuple[Validity, Round]]:
        """Take the outcomes of renewals; return those whose key is gone.

        `rounds`: of the same order. Those that were won count from their own beginning.
        """
        gone: list[tuple[Validity, Round]] = []
        for kept, round in zip(renewals, rounds, strict=True):
            lease, pace = kept(), kept.pace
            if lease is None or lease._status is not None:
                continue
            left_ns = end_of(kept) - now_ns
            is_in_time = round.is_won and round.closed_ns < now_ns + left_ns
            if is_in_time and kept.win_renewal(round):
                due_ns = round.opened_ns + pace.wait_ns
                due_ns -= self._part(pace.wait_ns // SPREAD)
                self._put(kept, rounded(due_ns, pace.span_ns))
            elif round.verdict is Verdict.TAKEN:
                gone.append((kept, round))
            else:
                kept.failed = round
                wait_ns = max(min(pace.wait_ns, left_ns) // 4, LEAST_WAIT_NS)
                wait_ns -= self._part(wait_ns // SPREAD)
                self._put(kept, rounded(now_ns + wait_ns, wait_ns // SPANS))
        return gone
