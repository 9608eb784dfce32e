"""Processes contend for locks on five real masters that fail, by a seeded schedule.

    python -m tests.chaos [--client NAME|all] [--seconds N] [--seed S]
                          [--restarts-at-once] [--flush]

Exit code 1 if fastredlock broke exclusion where no assumption was broken, if it
had no lease, or if anything of it was left behind, hung or failed.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from .clients import CLIENTS
from .run import COLUMNS, Figures, run
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
    print(f"{'client':12} {'leases/s':>9}  " + "  ".join(COLUMNS))
    failed = False
    for client in CLIENTS if given.client == "all" else [given.client]:
        figures = run(client, given.seconds, given.seed, options)
        print(line_of(figures), flush=True)
        if client == "fastredlock":
            print(*figures.notes, sep="\n", file=sys.stderr)
            failed |= not options.flushes and figures.is_broken
            failed |= figures.leases_per_second == 0
    return 1 if failed else 0


def line_of(figures: Figures) -> str:
    cells = (f"{figures.counts[name]:>{len(name)}}" for name in COLUMNS)
    return f"{figures.client:12} {figures.leases_per_second:9.1f}  " + "  ".join(cells)


if __name__ == "__main__":
    sys.exit(main())
