"""Does a long-lived process grow?  Memory before and after many pairs.

Exit status 1 when resident memory grew by 1 MiB or more, or when the number of open
file descriptors changed.
"""

from __future__ import annotations

from pathlib import Path

from bench.contestants.tables import OURS
from bench.harness.jobs import run_job
from bench.harness.options import count_of, end_with, new_parser
from bench.harness.servers import local_masters

_WARM_UP_PAIRS = 20_000  # until allocators and buffers have reached their size
_GROWTH_LIMIT_BYTES = 1 << 20


def main() -> int:
    """Run the bench; return the exit status."""
    parser = new_parser("memory", __doc__)
    add = parser.add_argument
    add("--pairs", type=count_of, default=500_000, help="measured pairs")
    add("--masters", type=count_of, default=5, help="the N")
    options = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        parser.exit(2, "this bench reads /proc, which only Linux has\n")
    with local_masters(options.masters) as urls:
        found = run_job(
            "growth", urls, entry=OURS, warm_up=_WARM_UP_PAIRS, pairs=options.pairs
        )
    before, after = found["bytes"]
    fds_before, fds_after = found["fds"]
    print(
        f"{options.pairs:,} pairs, N = {options.masters}: resident "
        f"{before / 1024:,.0f} KiB before, {after / 1024:,.0f} KiB after, "
        f"{(after - before) / 1024:+,.0f} KiB; "
        f"open fds {fds_before} before, {fds_after} after"
    )
    return int(after - before >= _GROWTH_LIMIT_BYTES or fds_after != fds_before)


if __name__ == "__main__":
    end_with(main, "memory")
