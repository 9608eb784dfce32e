"""The simulator as an extension module: the same source, the same runs, in less time.

`python -m tests.sim --compiled` copies the simulator to build/sim-<digest of it>,
compiles it there (some minutes, once) by the types of its .pxd files, and starts again
from there. One seed is one run in both; the digest at the end of a run tells.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from hashlib import sha1
from pathlib import Path
from typing import NoReturn

from . import world

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MODULES = (
    *("calls", "driver", "faults", "judge", "network", "orphans", "process"),
    *("question", "schedule", "server", "worker", "world"),
)
DIRECTIVES = ("annotation_typing=False", "binding=False", "overflowcheck=True")

# Of the packages in build/sim-<digest>; the rest of them stays in the source.
REST_OF_PACKAGE = """
from pathlib import Path
__path__.append(str(Path(__file__).parents[{}] / "{}"))
"""


def is_compiled() -> bool:
    return not world.__file__.endswith(".py")


def run_again(arguments: list[str]) -> NoReturn:
    """Go on as the compiled simulator, which is built where it is not there yet."""
    folder = build()
    paths = str(ROOT), os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    os.chdir(folder)  # comes first for -m
    argv = [sys.executable, "-m", "tests.sim", *arguments]
    os.execve(sys.executable, argv, environment)


def sources() -> list[Path]:
    compiled = [HERE / f"{module}.py" for module in MODULES]
    return [*compiled, *sorted(HERE.glob("*.pxd"))]


def folder_of_build() -> Path:
    """Return where the simulator of this source is built."""
    made = [*sources(), Path(__file__)]  # and how it is made
    text = b"".join(source.read_bytes() for source in made)
    digest = sha1(text + sys.version.encode()).hexdigest()[:12]
    return ROOT / "build" / f"sim-{digest}"


def build() -> Path:
    """Compile the simulator of this source; return the folder with its package."""
    folder = folder_of_build()
    if folder.exists():
        return folder
    if importlib.util.find_spec("Cython") is None:
        sys.exit("--compiled needs Cython: pip install -e '.[test]' --group dev")
    print(f"building {folder}", file=sys.stderr)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    package = unfinished / "tests" / "sim"
    package.mkdir(parents=True)
    for parents, name in ((3, "tests"), (4, "tests/sim")):
        rest = REST_OF_PACKAGE.format(parents, name)
        (unfinished / name / "__init__.py").write_text(rest)
    for source in sources():
        shutil.copy2(source, package)
    options = ["-i", "-3", "-q", "-j", str(os.cpu_count() or 1)]
    options += [f"-X{directive}" for directive in DIRECTIVES]
    files = [f"tests/sim/{module}.py" for module in MODULES]
    subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", *options, *files],
        cwd=unfinished,
        env={**os.environ, "CFLAGS": "-O2 -w"},
        stdout=sys.stderr,
        check=True,
    )
    os.rename(unfinished, folder)
    return folder
