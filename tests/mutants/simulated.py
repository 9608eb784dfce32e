"""Plant each bug in a private copy and tell the seed of the simulator that shows it.

    python -m tests.mutants.simulated [--only WORD] [--seconds 120]

They are mutants of the catalogue, which have tests of every kind against them; here the
simulator is alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .catalogue import MUTANTS
from .workshop import Workshop

SCHEDULES = 1500
BUGS = tuple(mutant for mutant in MUTANTS if "simulator" in mutant.found)


def main() -> int:
    """Return 0: which bugs the simulator alone finds is for the reader."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.simulated", description=__doc__
    )
    parser.add_argument("--only", default="", help="a part of the bugs' names")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each bug")
    options = parser.parse_args()
    chosen = [bug for bug in BUGS if options.only in bug.name]
    with TemporaryDirectory(prefix="planted-") as folder:
        workshop = Workshop(Path(folder))
        for bug in workshop.build_together(chosen):
            found = workshop.with_mistake(
                bug, lambda: simulate(workshop, options.seconds)
            )
            print(f"| {bug.name} | {found} |", flush=True)
    return 0


def simulate(workshop: Workshop, seconds: float) -> str:
    """Run schedules in the copy; return what the first violation says."""
    argv = [sys.executable, "-m", "tests.sim", "--count", str(SCHEDULES), "--compiled"]
    done = subprocess.run(
        [*argv, "--seconds", str(seconds)],
        cwd=workshop.folder,
        env=workshop.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
