"""Raise at every call of the core that may run Python, while others want the lock.

    python -m tests.fuzz.raising [--seconds 20] [--seed 1] [--only WORD]

Builds the extension with raising.h: a signal handler, a finalizer (before CPython 3.12)
or a lack of memory may come at the k-th such call, and does, for every k. In a process
for each case (raised), threads or tasks contend for one lock, and the main thread is
interrupted again and again. Every acquire with a timeout has to end in time, never do
two hold the lock, and no key is left.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from subprocess import CalledProcessError, TimeoutExpired
from tempfile import TemporaryDirectory

from tests.support.generated import GENERATED, ROOT, own_code

NEW_OBJECT = re.compile(r"\b(__pyx_tp_new_\w+)\((?=\(\(PyTypeObject)")
CASES = (
    *("threads three signals", "threads one signals", "threads fencing signals"),
    *("threads tls signals", "tasks three signals", "tasks fencing signals"),
    *("tasks tls signals", "threads three nested", "threads fencing nested"),
    *("connecting three nested", "threads tls nested"),
)


def build(folder: Path) -> None:
    """Copy the package into the folder, with an extension that raises."""
    ignored = shutil.ignore_patterns("__pycache__", "_core*.so")
    shutil.copytree(ROOT / "fastredlock", folder / "fastredlock", ignore=ignored)
    before, own, after = own_code(GENERATED.read_text("utf-8"))
    own = NEW_OBJECT.sub(r"RAISING_NEW(\1, ", own)
    source = folder / "_core.c"
    source.write_text(
        f'{before}#include "raising.h"\n{own}#undef __Pyx_PyList_Append\n'
        f"#undef __Pyx_PyIter_Next2\n{after}",
        "utf-8",
    )
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    argv = [
        *os.environ.get("CC", "gcc").split(),
        *("-shared", "-fPIC", "-O0", "-g", "-w", "-pthread"),
        *(f"-I{sysconfig.get_path('include')}", f"-I{ROOT / 'src_cython'}"),
        f"-I{ROOT / 'tests/fuzz'}",
        *("-o", str(folder / "fastredlock" / f"_core{suffix}"), str(source)),
    ]
    subprocess.run(argv, check=True)


def run(folder: Path, case: str, seconds: float, seed: int) -> str:
    """Run one case; return what it printed. Raises CalledProcessError."""
    argv = [sys.executable, "-P", "-m", "tests.fuzz.raised", *case.split()]
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [*argv, str(seconds), str(seed)],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=seconds + 60,
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz.raising")
    parser.add_argument("--seconds", type=float, default=20, help="for each case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cases with this word")
    given = parser.parse_args()
    failed, cases = 0, [case for case in CASES if given.only in case]
    with TemporaryDirectory(prefix="raising-") as name:
        build(Path(name))
        for case in cases:
            try:
                print(case, run(Path(name), case, given.seconds, given.seed), sep=": ")
            except (CalledProcessError, TimeoutExpired) as error:
                failed += 1
                print(case, f"FAILED, seed {given.seed}", error.stdout, sep="\n")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
