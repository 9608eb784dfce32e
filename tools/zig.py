"""The C compiler of the ziglang package: it has the C libraries of all its targets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def compiler(target: str) -> list[str]:
    """Return the command of a compiler for a target, such as aarch64-macos.11.0."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def compile_with_zig(target: str, arguments: Sequence[str]) -> None:
    """Run the compiler; raise CalledProcessError where it finds errors."""
    subprocess.run([*compiler(target), *arguments], check=True)
