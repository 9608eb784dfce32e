"""Processes contend for locks on five real masters that fail, by a seeded schedule.

    python -m tests.chaos [--client NAME|all] [--seconds N] [--seed S]
                          [--restarts-at-once] [--flush]

Exit code 1 if fastredlock broke exclusion where no assumption was broken.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from .clients import CLIENTS
from .run import Figures, run
from .schedule import Options


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.chaos")
    parser.add_argument("--client", choices=[*CLIENTS, "all"], default="fastredlock")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument(
        "--restarts-at-once",
        action="store_true",
        help="killed masters are back, empty, at once; fastredlock gets its max_ttl",
    )
    parser.add_argument("--flush", action="store_true", help="masters lose their keys")
    given = parser.parse_args()
    options = Options(given.restarts_at_once, given.flush)
    print(f"seed {given.seed}, {given.seconds:g} s, {options}")
    print(f"{'client':12} leases/s  violations  lost updates  (per 1,000 leases)  hung")
    failed = False
    for client in CLIENTS if given.client == "all" else [given.client]:
        figures = run(client, given.seconds, given.seed, options)
        print(line_of(figures), flush=True)
        is_ours = client == "fastredlock" and not options.flushes
        failed |= is_ours and figures.violations + figures.lost_updates > 0
    return 1 if failed else 0


def line_of(figures: Figures) -> str:
    broken, lost = figures.violations, figures.lost_updates
    return (
        f"{figures.client:12} {figures.leases_per_second:8.1f}  {broken:10}  {lost:12}"
        f"  ({figures.per_thousand(broken):.2f}, {figures.per_thousand(lost):.2f})"
        f"  {figures.hung:4}"
    )


if __name__ == "__main__":
    sys.exit(main())
