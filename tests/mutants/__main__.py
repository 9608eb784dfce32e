"""Put each mistake into a copy of the source and see which test fails.

    python -m tests.mutants [--only WORD] [--simulated]

Prints a line per mutant; exit code 1 if one survives or is stale, if there is none,
or if a test fails without any mistake: it is named and left out. Or prints what the
simulator alone says of those that it has to find, with the promise and the seed that
show it; exit code 1 if it says nothing of one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .catalogue import MUTANTS, Mutant
from .workshop import Workshop


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__
    )
    parser.add_argument(
        "--only", default="", help="a word of a name, or of where found"
    )
    parser.add_argument(
        "--simulated", action="store_true", help="by the simulator alone, minutes each"
    )
    given = parser.parse_args()
    chosen = [each for each in MUTANTS if given.only in f"{each.name} {each.found}"]
    with TemporaryDirectory(prefix="mutants-") as folder:
        workshop = Workshop(Path(folder))
        if given.simulated:
            return simulate_each(
                workshop, [m for m in chosen if "simulator" in m.found]
            )
        tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests)
        chosen = workshop.build_together(chosen)
        workshop.leave_out_failing(tuple(tests))
        for test in workshop.left_out:
            print(f"left out, fails without any mutant: {test}", flush=True)
        print(f"{'mutant':52} {'s':>5}  caught by")
        survivors = sum(not is_caught(workshop, mutant) for mutant in chosen)
    print(f"{len(chosen)} mutants, {survivors} survived")
    return 1 if survivors or workshop.left_out or not chosen else 0


def simulate_each(workshop: Workshop, chosen: list[Mutant]) -> int:
    """Say what it finds of each; return 1 if it finds nothing of one."""
    is_blind = not chosen
    for mutant in workshop.build_together(chosen):
        said = workshop.with_mistake(mutant, workshop.simulate)
        print(f"| {mutant.name} | {said} |", flush=True)
        is_blind = is_blind or not said.startswith("seed ")
    return int(is_blind)


def is_caught(workshop: Workshop, mutant: Mutant) -> bool:
    try:
        caught_by, seconds = workshop.try_out(mutant)
    except (ValueError, RuntimeError) as error:
        print(f"{mutant.name:52} {'':>5}  STALE: {error}", flush=True)
        return False
    print(f"{mutant.name:52} {seconds:5.1f}  {caught_by or 'SURVIVED'}", flush=True)
    return caught_by is not None


if __name__ == "__main__":
    sys.exit(main())
