"""Run tests under AddressSanitizer and UndefinedBehaviorSanitizer of gcc.

    python -m tests.fuzz.sanitized [PYTEST ARGUMENT ...]

Builds the extension with them in a temporary copy of the source. A mistake planted in
a library of its own has to be reported first, or nothing is believed. Without arguments
all tests run that call the core, over every driver: threads, asyncio, uvloop,
TLS, forks, batches, a few seconds of chaos, the simulator and the fuzzer. Tests that
run greenlets have a build of their own, without checks of the stack.

CPython never gives all of its memory back, so leaks are not looked for here:
tests.fuzz.leak does that. Exit code: pytest's, or 1 if a sanitizer had something to
say. (Tests that measure time may fail, as
all is some three times slower; a report never is a matter of time.)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("fastredlock", "src_cython", "tests", "bench", "tools", "docs"),
    *("setup.py", "pyproject.toml", "README.md", "LICENSE", "pytest_fastredlock.py"),
)
# A greenlet that is switched copies the stack of its thread, and leaves there what ASan
# has noted of the variables of another: it would report a stray read of each copy, and
# then of variables that are where they should be. (To suppress it by the names of
# greenlet's functions ends in a crash of ASan, which finds no end of such a stack.)
GREEN = ("tests/faults/test_processes.py", "tests/sim")
DEFAULT = (
    *("tests/setups", "tests/fuzz", "tests/unit", "tests/behaviour", "tests/faults"),
    *("tests/chaos", "tests/compat", *GREEN),
)
# Beside ASan, UBSan's log_path ends in ASan's half of the runtime, and what
# UBSan says goes to stderr, where pytest hides it. So each process sets it by hand.
SITE = """
import ctypes, os
ctypes.CDLL({library!r}).__sanitizer_set_report_path({path!r}.encode())
"""
PLANTED = """
#include <stdlib.h>
#include <string.h>
int overflow(int value) { return value + 1; }
int copied(int size) {
    char more[64], *few = malloc(4);
    memcpy(more, few, size);
    free(few);
    return more[0];
}
int outside(int at) { volatile char few[4]; few[0] = 1; return few[at]; }
"""
PLANTED_CALLS = (("overflow", 2**31 - 1), ("copied", 8), ("outside", 5))
ASKED = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
getattr(library, sys.argv[2])(int(sys.argv[3]))
"""


def main() -> int:
    asked = sys.argv[1:] or [each for each in DEFAULT if (ROOT / each).exists()]
    tests = [each for each in asked if (ROOT / each.partition("::")[0]).exists()]
    green = [each for each in tests if each.startswith(GREEN)]
    options = [each for each in asked if each not in tests]
    code = 0
    with TemporaryDirectory(prefix="sanitized-") as name:
        folders = [Path(name, "all"), Path(name, "green")]
        if others := [each for each in tests if each not in green]:
            left_out = [f"--ignore={each}" for each in GREEN]
            code = run(folders[0], (), [*options, *left_out, *others])
        if green:
            flags = ("--param", "asan-stack=0")
            code = run(folders[1], flags, [*options, *green]) or code
    return code


def run(folder: Path, flags: tuple[str, ...], tests: list[str]) -> int:
    """Build with these flags and run the tests; return how that ended."""
    for each in COPIED:
        copy(ROOT / each, folder / each)
    build(folder, flags)
    (folder / "sitecustomize.py").write_text(
        SITE.format(library=library("libubsan.so"), path=str(folder / "report"))
    )
    if not sees_planted_mistakes(folder, flags):
        print("the sanitizers do not report a planted mistake")
        return 1
    return run_tests(folder, tests)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", "_core*.so")
        shutil.copytree(source, target, ignore=ignored)
    else:
        shutil.copy2(source, target)


def build(folder: Path, flags: tuple[str, ...]) -> None:
    environment = {**os.environ, "FASTREDLOCK_SANITIZE": "1", "CFLAGS": " ".join(flags)}
    argv = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"]
    subprocess.run(argv, cwd=folder, env=environment, check=True)


def sees_planted_mistakes(folder: Path, flags: tuple[str, ...]) -> bool:
    """Return whether each mistake is reported where we look; remove these reports."""
    source, built = folder / "planted.c", folder / "planted.so"
    source.write_text(PLANTED)
    options = ("-shared", "-fPIC", "-fsanitize=address,undefined", *flags)
    subprocess.run(["gcc", *options, "-o", str(built), str(source)], check=True)
    seen = []
    for name, value in PLANTED_CALLS[: 2 if flags else 3]:
        argv = [sys.executable, "-c", ASKED, str(built), name, str(value)]
        subprocess.run(argv, env=watched(folder), stderr=subprocess.DEVNULL)
        reports = list(folder.glob("report*"))
        seen.append(any("planted" in report.read_text() for report in reports))
        for report in reports:
            report.unlink()
    return all(seen)


def watched(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose mistakes are reported in the folder."""
    return {
        **os.environ,
        "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
        # A reply may announce 2^32 elements: malloc then says no, and so shall ASan.
        # And a test puts a library of its own before ASan's.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:"
        f"verify_asan_link_order=0:log_path={folder / 'report'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder / 'report'}",
        "PYTHONMALLOC": "malloc",  # else freed objects stay in CPython's arenas
        "PYTHONPATH": str(folder),
    }


def run_tests(folder: Path, tests: list[str]) -> int:
    options = (
        *("-q", "-p", "no:cacheprovider", "-p", "no:faulthandler"),
        *("-W", "ignore:Unknown config option"),  # those of faulthandler
    )
    # What was freed stays with ASan for a while, so memory grows whoever is to blame.
    left_out = (
        "--ignore=tests/fuzz/test_leak.py",
        "--ignore=tests/fuzz/test_raising.py",  # it has a build of its own
    )
    argv = [sys.executable, "-m", "pytest", *options, *left_out, *tests]
    code = subprocess.run(argv, cwd=folder, env=watched(folder)).returncode
    reports = sorted(folder.glob("report*"))
    for report in reports:
        print(report.name, report.read_text(errors="replace")[:4000], sep="\n")
    print(f"sanitizers: {len(reports)} reports")
    return code or (1 if reports else 0)


def library(name: str) -> str:
    asked = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(
        asked, check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
