"""Run schedules, one seed after the other: `python -m tests.sim --seconds 600`.

Prints the seed of a violation and the command that shows it again, event by event.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from .faults import ASSUMPTIONS
from .schedule import Schedule


def main() -> int:
    """Return 1 if a promise was broken, 0 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--schedules", type=int, default=0, help="at the most")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one only, with its story")
    parser.add_argument(
        "--break", dest="broken", action="append", default=[], choices=ASSUMPTIONS,
        help="break an assumption on purpose; a violation is then what is expected",
    )  # fmt: skip
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of masters in even numbers
    broken = frozenset(options.broken)
    if options.seed is not None:
        return show(options.seed, broken)
    began, seed, events, leases = time.monotonic(), options.first, 0, 0
    while True:
        outcome = Schedule(seed, broken).run()
        seed, events, leases = (
            seed + 1,
            events + outcome.events,
            leases + outcome.leases,
        )
        if outcome.violation:
            again = "".join(f" --break {name}" for name in sorted(broken))
            print(f"seed {outcome.seed}: {outcome.violation}")
            print(f"again: python -m tests.sim --seed {outcome.seed}{again}")
            break
        done = seed - options.first
        if options.schedules and done >= options.schedules:
            break
        if time.monotonic() - began > options.seconds:
            break
    took = time.monotonic() - began
    done = seed - options.first
    print(
        f"{done} schedules in {took:.1f} s ({done / took:.0f}/s), {events} events, "
        f"{leases} stretches of validity, "
        f"{'a promise broken' if outcome.violation else 'no promise broken'}"
    )
    return 1 if outcome.violation else 0


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
