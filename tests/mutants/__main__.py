"""Put each mistake into a copy of the source and see which test fails.

    python -m tests.mutants [--only WORD]

Prints a line per mutant; exit code 1 if one survives or is stale. Tests that fail
without any mistake are named and left out.
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
    only = parser.parse_args().only
    chosen = [mutant for mutant in MUTANTS if only in f"{mutant.name} {mutant.found}"]
    with TemporaryDirectory(prefix="mutants-") as folder:
        workshop = Workshop(Path(folder))
        tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests)
        chosen = workshop.build_together(chosen)
        workshop.leave_out_failing(tuple(tests))
        for test in workshop.left_out:
            print(f"left out, fails without any mutant: {test}", flush=True)
        print(f"{'mutant':52} {'s':>5}  caught by")
        survivors = sum(not is_caught(workshop, mutant) for mutant in chosen)
    print(f"{len(chosen)} mutants, {survivors} survived")
    return 1 if survivors else 0


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
