"""Does a long-lived process grow?  Memory before and after many pairs.

Exit status 1 when resident memory grew by 1 MiB or more, or when the number of open
file descriptors changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench._memory import open_fds, resident_bytes
from bench._peers import FastRedlockPeer
from bench._servers import local_masters

_WARM_UP_PAIRS = 20_000  # until allocators and buffers have reached their size
_GROWTH_LIMIT_BYTES = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit status."""
    options = _parser().parse_args(arguments)
    if not Path("/proc/self/statm").exists():
        print("this bench reads /proc, which only Linux has", file=sys.stderr)
        return 2
    peer = FastRedlockPeer()
    with local_masters(options.masters) as urls:
        peer.open(urls, "bench:memory")
        _run(peer, _WARM_UP_PAIRS)
        rss_before, fds_before = resident_bytes(), open_fds()
        _run(peer, options.pairs)
        rss_after, fds_after = resident_bytes(), open_fds()
        peer.close()
    growth = rss_after - rss_before
    print(
        f"{options.pairs:,} pairs, N = {options.masters}: resident "
        f"{rss_before / 1024:,.0f} KiB before, {rss_after / 1024:,.0f} KiB after, "
        f"{growth / 1024:+,.0f} KiB; open fds {fds_before} before, {fds_after} after"
    )
    return int(growth >= _GROWTH_LIMIT_BYTES or fds_after != fds_before)


def _run(peer: FastRedlockPeer, pairs: int) -> None:
    for _ in range(pairs):
        peer.pair()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_memory",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--pairs", type=int, default=500_000, help="measured pairs")
    parser.add_argument("--masters", type=int, default=5, help="the N")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
