"""Compile and link the core for macOS, on any machine: nothing here can run it.

    python -m tools.macos [aarch64|x86_64 ...]

Needs the packages cython and ziglang: zig has the headers and the symbols of macOS. The
Python headers are this machine's, with another pyconfig.h: CPython asks for the names
of POSIX alone on Linux, and for all of Darwin's on macOS. Python's own symbols are
looked up when the extension is loaded; every other one must be in a library of macOS,
which the symbol table of the result tells.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

from .mach_o import Library, library_of
from .zig import compile_with_zig

ROOT = Path(__file__).resolve().parents[1]
OLDEST = "11.0"  # the first macOS on arm64
NO_RUNTIMES = ("-fno-sanitize=all", "-fno-stack-protector")  # zig's, without -O
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
POSIX_ALONE = re.compile(r"^#define _(?:POSIX_C|XOPEN)_SOURCE.*$", re.MULTILINE)


def main() -> int:
    with TemporaryDirectory(prefix="macos-") as name:
        folder = Path(name)
        source = translated()
        headers = python_headers(folder / "python")
        for machine in sys.argv[1:] or ["aarch64", "x86_64"]:
            built = folder / f"_core-{machine}.so"
            build(machine, source, headers, built)
            print(f"macOS {machine}: {report(machine, library_of(built))}")
    return 0


def translated() -> Path:
    """Return the C file of the extension; setup.py brings it up to date."""
    argv = [sys.executable, "setup.py", "-q", "--name"]
    subprocess.run(argv, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return ROOT / "build" / "cython" / "src_cython" / "_core.c"


def python_headers(folder: Path) -> Path:
    """Copy the Python headers; return their folder, where they are those of macOS."""
    shutil.copytree(sysconfig.get_path("include"), folder)
    config = Path(sysconfig.get_config_h_filename()).read_text()
    darwin = POSIX_ALONE.sub("", config) + "\n#define _DARWIN_C_SOURCE 1\n"
    (folder / "pyconfig.h").write_text(darwin)
    return folder


def build(machine: str, source: Path, headers: Path, built: Path) -> None:
    """Compile and link; raise CalledProcessError where the compiler complains."""
    arguments = ["-shared", "-fPIC", "-O0", "-undefined", "dynamic_lookup", *WARNINGS]
    arguments += [*NO_RUNTIMES, f"-I{headers}", f"-I{ROOT / 'src_cython'}"]
    target = f"{machine}-macos.{OLDEST}"
    compile_with_zig(target, [*arguments, "-o", str(built), str(source)])


def report(machine: str, library: Library) -> str:
    """Say how many symbols it needs; raise SystemExit where macOS lacks one of them."""
    if library.machine != machine:
        raise SystemExit(f"it is for {library.machine}, not for {machine}")
    missing = [
        name for name in library.looked_up if not name.lstrip("_").startswith("Py")
    ]
    if missing:
        raise SystemExit(f"macOS has no {', '.join(missing)}")
    return (
        f"compiled and linked; {len(library.looked_up)} symbols of Python, "
        f"{len(library.linked)} of macOS"
    )


if __name__ == "__main__":
    sys.exit(main())
