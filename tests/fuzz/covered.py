"""Which lines of the Cython sources were executed, from gcov's counts of the C file.

Cython writes above each piece of C which line it comes from, in a comment.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ORIGIN = re.compile(r'/\* "src_cython/([\w/]+\.pyx)":(\d+)')


class Covered(NamedTuple):
    """How many lines of a source file have code, and how many were executed."""

    file: str
    lines: int
    executed: int


def covered_lines(folders: list[Path]) -> list[Covered]:
    """Read the counters below folders in which one source was built and run."""
    counts = Counter[int]()
    for folder in folders:
        counts.update(counts_of(folder))
    seen: dict[str, dict[int, bool]] = {}
    source_folder = folders[0] / "src_cython"
    for path in sorted(source_folder.rglob("*.pyx")):
        seen[str(path.relative_to(source_folder))] = {}
    origin: tuple[str, int] | None = None
    source = folders[0] / "build/cython/src_cython/_core.c"
    for number, text in enumerate(source.read_text().splitlines(), 1):
        found = ORIGIN.search(text)
        if found:
            origin = found[1], int(found[2])
        if origin is not None and number in counts:
            lines = seen.setdefault(origin[0], {})
            lines[origin[1]] = lines.get(origin[1], False) or counts[number] > 0
    return [
        Covered(file, len(lines), sum(lines.values())) for file, lines in seen.items()
    ]


def counts_of(folder: Path) -> dict[int, int]:
    """Return how often each line of the C file was executed."""
    counts: dict[int, int] = {}
    for data in folder.glob("build/**/*.gcda"):
        argv = ["gcov", "--json-format", "--stdout", str(data)]
        said = subprocess.run(argv, cwd=folder, capture_output=True, check=True).stdout
        for file in json.loads(said)["files"]:
            if not file["file"].endswith("_core.c"):
                continue
            for line in file["lines"]:
                number = line["line_number"]
                counts[number] = counts.get(number, 0) + line["count"]
    return counts
