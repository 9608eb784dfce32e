"""Run schedules, one seed after the other: `python -m tests.sim --count 300000`.

Prints the seed of a violation and the command that shows it again, event by event;
ends with `N schedules, M violations, T s`. Exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from . import compiled
from .faults import ASSUMPTIONS
from .runner import Plan, run
from .schedule import Schedule


def main() -> int:
    """Return 1 if a promise was broken, 0 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0, help="at the most")
    parser.add_argument("--count", type=int, default=0, help="how many schedules")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", help="A-B, both run, in place of both of these")
    parser.add_argument("--jobs", type=int, default=1, help="processes beside another")
    parser.add_argument("--seed", type=int, help="this one only, with its story")
    parser.add_argument(
        "--compiled", action="store_true", help="build it first: twice as fast"
    )
    parser.add_argument(
        "--violations", type=int, default=1, help="stop after so many of them"
    )
    parser.add_argument(
        "--break", dest="broken", action="append", default=[], choices=ASSUMPTIONS,
        help="break an assumption on purpose; a violation is then what is expected",
    )  # fmt: skip
    options = parser.parse_args()
    if options.compiled and not compiled.is_compiled():
        compiled.run_again(sys.argv[1:])
    logging.disable(logging.WARNING)  # of masters in even numbers
    broken = frozenset(options.broken)
    if options.seed is not None:
        return show(options.seed, broken)
    first, count, seconds = options.first, options.count, options.seconds
    if options.seeds:
        first, last = (int(seed) for seed in options.seeds.split("-"))
        count = last - first + 1
    if not (count or seconds):
        seconds = 10.0
    plan = Plan(first, count, seconds, options.jobs, options.violations, broken)
    total = run(plan)
    took = max(time.monotonic() - total.began, 1e-9)
    print(
        f"{total.schedules / took:.0f} schedules/s, {total.events} events, "
        f"{total.leases} stretches of validity, digest {total.digest:016x}"
    )
    for excuse, times in sorted(total.excuses.items()):
        print(f"excused {times} times: {excuse}")
    print(total.text())
    return 1 if total.violations else 0


def show(seed: int, broken: frozenset[str]) -> int:
    """Tell the story of one seed."""
    schedule = Schedule(seed, broken)
    schedule.world.log = []
    try:
        outcome = schedule.run()
    finally:
        print("\n".join(schedule.world.log))
    print(outcome)
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
