"""Build the one extension module; everything else stands in pyproject.toml.

Switches for developers, read from the environment: FASTREDLOCK_DEBUG=1 (no
optimisation, symbols), FASTREDLOCK_SANITIZE=1 (AddressSanitizer and UBSan of gcc) and
FASTREDLOCK_PORTABLE=1 (on Linux, the system calls of other systems: system/portable.h).
"""

import os
import re
import sys
import tomllib
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

RELATIVE = re.compile(r"\]\((?!https?:|#)([^)]+)\)")
DRAWING = re.compile(r"(?<=\.svg)\)")


def long_description() -> str:
    """Return the README with links that work on a package index: of this version."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    source = Path("fastredlock/__init__.py").read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', source, re.M)
    base = f"{project['urls']['Repository']}/blob/v{version}"
    text = DRAWING.sub("?raw=true)", Path("README.md").read_text("utf-8"))
    return RELATIVE.sub(rf"]({base}/\1)", text)


compile_args = ["-O2", "-g0", "-Wall", "-Wextra", "-Wno-unused-parameter"]
compile_args += ["-Wno-missing-field-initializers"]  # Cython's types, on 3.15
link_args: list[str] = []
macros: list[tuple[str, str | None]] = []
if os.environ.get("FASTREDLOCK_DEBUG") == "1":
    compile_args += ["-O0", "-g"]
elif sys.platform == "linux" and os.environ.get("FASTREDLOCK_SANITIZE") != "1":
    link_args += ["-s"]  # no symbols: of each wheel, whoever builds it
if os.environ.get("FASTREDLOCK_SANITIZE") == "1":
    sanitizers = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    compile_args += [*sanitizers, "-O1", "-g1"]  # a third of the time of -O2 -g
    link_args += sanitizers

if os.environ.get("FASTREDLOCK_PORTABLE") == "1":
    macros.append(("FASTREDLOCK_PORTABLE", "1"))

core = Extension(
    "fastredlock._core",
    ["src_cython/_core.pyx"],
    depends=sorted(glob("src_cython/**/*.[ph]*", recursive=True)),
    include_dirs=["src_cython"],
    define_macros=macros,
    extra_compile_args=compile_args,
    extra_link_args=link_args,
)

setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    ext_modules=cythonize(
        [core],
        include_path=["src_cython"],
        build_dir="build/cython",
        compiler_directives={
            "auto_pickle": False,  # a socket cannot be pickled
            "autotestdict": False,
            "language_level": 3,
            "embedsignature": True,
            "embedsignature.format": "clinic",
        },
    ),
)
