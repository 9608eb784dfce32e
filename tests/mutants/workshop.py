"""A private copy of the package: patched, built and tested in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, TypeVar

from .catalogue import Mutant
from .finder import Product
from .together import together

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("fastredlock", "src_cython", "tests", "bench"),
    *("setup.py", "pyproject.toml", "README.md"),
)
T = TypeVar("T")
LONGEST_RUN = 600.0  # s; a suite that hangs has noticed, too
LONGEST_UNHARMED = 3600.0  # builds and tests that do not hang: the machine may be busy


class Outcome(NamedTuple):
    """What the suite said: `caught_by` is a test, or None where nothing failed."""

    caught_by: str | None
    seconds: float


class Workshop:
    """Hold the copy; every mutant starts from the source as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left_out: list[str] = []  # tests that fail without any mistake
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.html")
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, folder / name)
        self.product = Product(folder)
        self.numbers: dict[str, int] = {}  # of the mutants that the build has
        self.acting = 0  # the number of one

    def try_out(self, mutant: Mutant) -> Outcome:
        """Run the mutant's tests where its mistake has been made."""
        return self.with_mistake(mutant, lambda: self.confirmed(mutant.tests))

    def with_mistake(self, mutant: Mutant, look: Callable[[], T]) -> T:
        """Put the mistake in, build where that is needed, look, and take it out."""
        self.acting = self.numbers.get(mutant.name, 0)
        mistaken = {} if self.acting else self.product.patched(mutant.edits)
        before = {path: path.read_text() for path in mistaken}
        for path, text in mistaken.items():
            path.write_text(text)
        try:
            if any("src_cython" in path.parts for path in mistaken):
                self._build()
            return look()
        finally:
            self.acting = 0
            for path, source in before.items():
                path.write_text(source)

    def build_together(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Build a core that has all; list them, those to be built alone at the end."""
        of_core = [mutant for mutant in mutants if self.product.is_core(mutant.edits)]
        texts, self.numbers = together(self.product, of_core)
        for path, text in texts.items():
            path.write_text(text)
        if self.numbers:
            self._build()
        alone = [each for each in of_core if each.name not in self.numbers]
        return [*(each for each in mutants if each not in alone), *alone]

    def _build(self) -> None:
        argv = ("setup.py", "-q", "build_ext", "--inplace", "--force")
        done = self._run(*argv, longest=LONGEST_UNHARMED)
        if done.returncode:
            raise RuntimeError(f"it does not build:\n{done.stdout[-3000:]}")

    def leave_out_failing(self, tests: Sequence[str]) -> None:
        """Run the tests without any mistake; those that fail prove nothing later."""
        self.left_out = self._failing(tests, longest=LONGEST_UNHARMED)

    def confirmed(self, tests: Sequence[str]) -> Outcome:
        """Return the first test that fails twice: once may be chance."""
        began, chance = time.monotonic(), list(self.left_out)
        while failing := self._failing(tests, "-x", *deselected(chance)):
            if "::" not in failing[0] or self._failing(failing):
                seconds = time.monotonic() - began
                return Outcome(failing[0].rpartition("/")[2], seconds)
            chance += failing
        return Outcome(None, time.monotonic() - began)

    def simulate(self) -> str:
        """Run schedules in the copy; return what the first violation says."""
        argv = ("-m", "tests.sim", "--compiled", "--count", "1500", "--seconds", "120")
        said = self._run(*argv).stdout.rstrip()
        found = re.search(r"^seed \d+: .*", said, re.MULTILINE)
        return found[0] if found else said.rpartition("\n")[2]

    def _failing(
        self, tests: Sequence[str], *more: str, longest: float = LONGEST_RUN
    ) -> list[str]:
        """Run tests as far as they exist; name those that fail, or how it ended."""
        there = [test for test in tests if (self.folder / test.split("::")[0]).exists()]
        if not there:
            return []
        options = ("-q", "--no-header", "-p", "no:cacheprovider", "--tb=no", "-rfE")
        try:
            argv = ("-m", "pytest", *options, *more, *there)
            done = self._run(*argv, longest=longest)
        except subprocess.TimeoutExpired:
            return [f"no end after {longest:.0f} s"]
        if done.returncode == 0:
            return []
        named = re.findall(r"^(?:FAILED|ERROR) ([^\n]+?)(?: - .*)?$", done.stdout, re.M)
        # No name: a crash of the interpreter, or pytest itself at a loss.
        return named or [f"exit code {done.returncode}"]

    def environment(self) -> dict[str, str]:
        """Return the variables with which a mutant is run and built."""
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "FASTREDLOCK_DEBUG": "1",  # -O0: built in less time
            "MUTANT": str(self.acting),
            "TESTS_RUN_AGAIN": "0",  # `confirmed` does so, where it counts
        }

    def _run(
        self, *arguments: str, longest: float = LONGEST_RUN
    ) -> subprocess.CompletedProcess[str]:
        with TemporaryFile("w+") as output:  # a pipe waits for what a mutant left, too
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=longest,
            )
            output.seek(0)
            return subprocess.CompletedProcess(
                done.args, done.returncode, output.read()
            )


def deselected(tests: Sequence[str]) -> list[str]:
    return [f"--deselect={test}" for test in tests]
