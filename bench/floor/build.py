"""Compile the floors on demand, outside the source tree, once per version of each."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_HERE = Path(__file__).parent
FLAGS = ("-O2", "-Wall", "-Wextra")


def floor_program(name: str = "floor") -> Path:
    """Return the compiled `<name>.c`, compiling it first where that was never done.

    Raises:
        FileNotFoundError: There is no C compiler (`$CC`, else `cc`): install one, or
            leave the floor out with `--only`.
        RuntimeError: The compiler refused; its output is the message.
    """
    compiler = _compiler()
    source = _HERE / f"{name}.c"
    recipe = source.read_bytes() + " ".join((compiler, *FLAGS)).encode()
    folder = cache_folder()
    program = folder / f"{name}-{hashlib.sha256(recipe).hexdigest()[:16]}"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(compiler, source, program)
    return program


def _compile(compiler: str, source: Path, program: Path) -> None:
    # Compiled beside its final name, then renamed: a second bench sees all or nothing.
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        output = Path(folder, "floor")
        command = [compiler, *FLAGS, "-o", str(output), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        output.replace(program)


def _compiler() -> str:
    name = os.environ.get("CC", "cc")
    if path := shutil.which(name):
        return path
    raise FileNotFoundError(
        f"the floor needs a C compiler, and {name!r} is not on PATH: install gcc, "
        "set CC, or leave the floor out with --only"
    )


def cache_folder() -> Path:
    """Return where programs of the bench are kept, outside the source tree."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "fastredlock-bench")
