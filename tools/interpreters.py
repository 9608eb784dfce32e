"""The interpreters of this machine, for `tools.matrix`: on PATH, and pyenv's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "matrix"
KEYS = ("3.11", "3.12", "3.13", "3.14", "3.14t", "3.15", "3.15t")
ASKED = "import sys; print(sys.version.split()[0] + sys.abiflags)"
LEFT_OUT = shutil.ignore_patterns(
    *("__pycache__", "build", "dist", "*.so", "*.egg-info"),
    *(".git", ".*_cache", ".hypothesis", ".benchmarks"),
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One CPython, and the source that it tests."""

    key: str  # 3.14t
    name: str  # CPython 3.14.1t
    python: str
    source: Path


def this_one() -> Interpreter:
    """Return the interpreter that runs this, with the source as it stands."""
    from fastredlock._core import is_portable  # the others may have none yet

    name = f"CPython {asked(sys.executable)}{', portable' if is_portable() else ''}"
    return Interpreter("here", name, sys.executable, ROOT)


def found_interpreters(words: list[str]) -> list[Interpreter]:
    """List one interpreter of each version, the oldest first; of words, those named."""
    found = []
    for key in words or KEYS:
        python = newest_of(key)
        if python is not None:
            folder = WORK / key
            name = f"CPython {asked(python)}"
            found.append(Interpreter(key, name, python, folder / "source"))
    return found


def newest_of(key: str) -> str | None:
    """Return pyenv's newest interpreter of a version, else the one on PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for folder in sorted(pyenv.glob(f"{key}.*"), key=patch_of, reverse=True):
        if folder.name.endswith("t") == key.endswith("t"):
            return str(folder / "bin" / "python3")
    return shutil.which(f"python{key}")


def patch_of(folder: Path) -> int:
    digits = "".join(filter(str.isdigit, folder.name.split(".")[-1]))
    return int(digits or 0)


def asked(python: str) -> str:
    """Return the version that an interpreter says it has."""
    return subprocess.check_output([python, "-c", ASKED], text=True).strip()


def copy_source(to: Path) -> None:
    """Copy the source, and the C file of the extension, which is the same for all."""
    shutil.copytree(ROOT, to, ignore=LEFT_OUT, dirs_exist_ok=True)
    translated = Path("build", "cython")
    if (ROOT / translated).exists():
        shutil.copytree(ROOT / translated, to / translated, dirs_exist_ok=True)


def made_ready(interpreter: Interpreter, is_portable: bool) -> Interpreter:
    """Copy the source, build it there without optimisation, install its extra `test`.

    Return the interpreter of the new environment.
    """
    folder = interpreter.source.parent
    copy_source(interpreter.source)
    python = folder / "env" / "bin" / "python"
    if not python.exists():
        argv = [interpreter.python, "-m", "venv", str(folder / "env")]
        subprocess.run(argv, check=True)
    environment = {**os.environ, "FASTREDLOCK_DEBUG": "1"}
    environment["FASTREDLOCK_PORTABLE"] = "1" if is_portable else "0"
    argv = [str(python), "-m", "pip", "install", "-q", "-e", ".[test]"]
    subprocess.run(argv, cwd=interpreter.source, env=environment, check=True)
    name = f"{interpreter.name}, portable" if is_portable else interpreter.name
    return Interpreter(interpreter.key, name, str(python), interpreter.source)
