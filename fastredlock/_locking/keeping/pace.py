"""The pace of keeping: when leases of one ttl are renewed, and when reported lost."""

from __future__ import annotations

from ..._core import Pace

NS_PER_MS = 1_000_000
SHARE = 3  # of a ttl that passes before a renewal, as on the Redlock page's own advice
SPREAD = 10  # a tenth of that time is random; before the first renewal all the rest is
SPANS = 12  # in the time between renewals, at the least
LONGEST_MARGIN_NS = 100_000_000  # a busy machine wakes a thread by then


def pace_of(ttl_ms: int, drift_ns: int) -> Pace:
    """Return the times of a ttl."""
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
