"""A private copy of the package: patched, built and tested in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .catalogue import Edit, Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("fastredlock", "src_cython", "tests", "bench", "setup.py", "pyproject.toml")
LONGEST_RUN = 180.0  # s; a suite that hangs has noticed, too


class Outcome(NamedTuple):
    """What the suite said: `caught_by` is a test, or None where nothing failed."""

    caught_by: str | None
    seconds: float


class Workshop:
    """Hold the copy; every mutant starts from the source as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.html")
                shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, folder / name)

    def try_out(self, mutant: Mutant) -> Outcome:
        """Put the mistake in, build, run its tests, and take it out again."""
        touched = {edit.file for edit in mutant.edits}
        for edit in mutant.edits:
            self._apply(edit)
        try:
            self.build(touched)
            return self.test(mutant.tests)
        finally:
            for file in touched:
                shutil.copy(ROOT / file, self.folder / file)  # new mtime: built again

    def _apply(self, edit: Edit) -> None:
        path = self.folder / edit.file
        path.write_text(patched(path.read_text(), edit))

    def build(self, touched: set[str]) -> None:
        """Build the extension, where a part of it was touched."""
        if not any(file.startswith("src_cython/") for file in touched):
            self._restore_extension()
            return
        done = self._run("setup.py", "-q", "build_ext", "--inplace", "--force")
        if done.returncode:
            raise RuntimeError(f"the mutant does not build:\n{done.stdout[-3000:]}")

    def _restore_extension(self) -> None:
        for built in (ROOT / "fastredlock").glob("_core*.so"):
            shutil.copy2(built, self.folder / "fastredlock" / built.name)

    def test(self, tests: Sequence[str]) -> Outcome:
        """Run these tests as far as they exist, up to the first that fails."""
        there = [test for test in tests if (self.folder / test).exists()]
        began = time.monotonic()
        if not there:
            return Outcome(None, 0.0)
        options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no")
        try:
            done = self._run("-m", "pytest", *options, "-rfE", *there)
        except subprocess.TimeoutExpired:
            return Outcome(f"no end after {LONGEST_RUN:.0f} s", LONGEST_RUN)
        seconds = time.monotonic() - began
        if done.returncode == 0:
            return Outcome(None, seconds)
        named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        if named is None:  # a crash of the interpreter, or pytest itself at a loss
            return Outcome(f"exit code {done.returncode}", seconds)
        return Outcome(named[1].rpartition("/")[2], seconds)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        environment["FASTREDLOCK_DEBUG"] = "1"  # -O0: built in less time
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_RUN,
        )


def patched(source: str, edit: Edit) -> str:
    """Return the source with the mistake in it; ValueError if it does not fit."""
    if source.count(edit.old) != 1:
        found = source.count(edit.old)
        raise ValueError(f"{edit.file} has {found} times, not once: {edit.old!r}")
    return source.replace(edit.old, edit.new)
