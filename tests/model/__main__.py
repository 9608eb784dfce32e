"""Run the model: `python -m tests.model [--long] [--most STATES] [--only WORD]`."""

from __future__ import annotations

import argparse
import sys
import time

from .cases import CASES, Case
from .fencing import search


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("--long", action="store_true", help="those that take minutes")
    parser.add_argument("--most", type=int, default=0, help="states of each; 0: all")
    parser.add_argument("--only", default="", help="a word in the name of a case")
    asked = parser.parse_args()
    cases = [
        case
        for case in CASES
        if asked.only in case.name and (asked.long or not case.is_long)
    ]
    wrong = sum(not run(case, asked.most) for case in cases)
    return 1 if wrong or not cases else 0


def run(case: Case, most: int) -> bool:
    """Search one case; return whether it came out as it should."""
    began = time.monotonic()
    found = search(case.world, case.rules, most)
    took = time.monotonic() - began
    said = found.violation or ("no violation" if not most else "none so far")
    print(f"{case.name}: {said} ({found.states:,} states, {took:.0f} s)", flush=True)
    for step in found.trace:
        print(f"    {step}")
    return bool(found.violation) is case.is_violated


if __name__ == "__main__":
    sys.exit(main())
