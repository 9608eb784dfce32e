"""Count what holds the product together: circles, calls upward, classes, modes, lines.

    python -m tools.house [--tree DIR]

A file of `src_cython` may call functions of the files above it in `_core.pyx`. A call
of one below is *upward*; files that can reach each other by calls are a *circle*: the
exit code is 1 if there is either, and they are listed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INCLUDE = re.compile(r'^include "([\w/]+\.p[xy][xi])"', re.M)
FUNCTION = re.compile(
    r"^(?:cdef|cpdef|def|async def)\s+(?!class|enum|struct|extern|packed)"
    r"(?:[\w\[\]*. ]*?[ *])?(\w+)\s*\(",
    re.M,
)
CALL = re.compile(r"(?<![\w.])(?<!def )(\w+)\s*\(")
CLASS = re.compile(r"^\s*(?:@[\w.]+\s+)*(?:cdef )?class (\w+)", re.M)
TAKEN = re.compile(r"(?:Lease|Lock|Acquisition|AcquireCall|ReleaseCall|LeaseFields)$")
MODE = re.compile(
    r"\b(?:by_hand|observer|observing|keeper|kept|fencing|token_source|current)"
    r" is (?:not )?None|\bruns_in_core\b|\bis_green\b|\bis_awaited\b"
)
OF_CALLS = ("src_cython/drivers", "src_cython/calls", "fastredlock/_locking")


class Call(NamedTuple):
    """A call of one file's function in another file."""

    caller: str
    callee: str
    function: str


class Core:
    """The files of the core in the order of their includes, and who calls whom."""

    def __init__(self, root: Path) -> None:
        source = root / "src_cython"
        names = INCLUDE.findall((source / "_core.pyx").read_text())
        self.files = [name for name in names if name.endswith(".pyx")]
        self.texts = {name: _code(source / name) for name in self.files}
        self.home = {
            function: name
            for name in self.files
            for function in FUNCTION.findall(self.texts[name])
        }

    def calls(self) -> set[Call]:
        """Every function of another file that a file calls."""
        return {
            Call(name, self.home[function], function)
            for name in self.files
            for function in CALL.findall(self.texts[name])
            if self.home.get(function, name) != name
        }

    def upward(self) -> list[Call]:
        """The calls of a function that is defined further down."""
        place = {name: at for at, name in enumerate(self.files)}
        return sorted(
            call for call in self.calls() if place[call.callee] > place[call.caller]
        )

    def circles(self) -> list[list[str]]:
        """The files that can reach each other by calls, the largest circle first."""
        below: dict[str, set[str]] = {name: set() for name in self.files}
        for call in self.calls():
            below[call.caller].add(call.callee)
        reached = {name: _reached(name, below) for name in self.files}
        found = {
            frozenset(other for other in reached[name] if name in reached[other])
            for name in self.files
            if name in reached[name]
        }
        return sorted((sorted(circle) for circle in found), key=len, reverse=True)


def lines(root: Path) -> dict[str, int]:
    """The lines of the product, by folder."""
    counted: dict[str, int] = {}
    for path in _product(root):
        folder = path.relative_to(root).parts[0]
        counted[folder] = counted.get(folder, 0) + len(path.read_text().splitlines())
    return counted


def classes(root: Path) -> list[str]:
    """The classes of a lease, a lock, and a call that takes or gives back."""
    return sorted(
        name
        for path in _of_calls(root)
        for name in CLASS.findall(path.read_text())
        if TAKEN.search(name)
    )


def modes(root: Path) -> int:
    """How many tests of a mode the calls make."""
    return sum(len(MODE.findall(_code(path))) for path in _of_calls(root))


def main() -> int:
    """Print the table; return 1 if there is a circle or a call upward."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    core = Core(options.tree)
    circles, upward = core.circles(), core.upward()
    counted = lines(options.tree)
    largest = [len(circle) for circle in circles]
    print(f"circles of files: {largest or 'none'}")
    print(f"calls upward: {len(upward)}")
    print(f"classes of leases, locks and their calls: {len(classes(options.tree))}")
    print(f"tests of a mode in the calls: {modes(options.tree)}")
    print(f"lines: {sum(counted.values()):,} {counted}")
    for circle in circles:
        print("circle:", *circle)
    for call in upward:
        print(f"upward: {call.caller} -> {call.callee}: {call.function}")
    return 1 if circles or upward or not core.files else 0


def _code(path: Path) -> str:
    """The text without comments and texts of documentation."""
    text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
    return re.sub(r"#.*", "", text)


def _reached(name: str, below: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        for callee in below[ahead.pop()] - seen:
            seen.add(callee)
            ahead.append(callee)
    return seen


def _product(root: Path) -> Iterator[Path]:
    for folder in ("src_cython", "fastredlock"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".pyi", ".pyx", ".pxi", ".pxd", ".h"):
                yield path


def _of_calls(root: Path) -> Iterator[Path]:
    for path in _product(root):
        inside = path.relative_to(root).as_posix()
        if inside.startswith(OF_CALLS) or inside in (
            "fastredlock/client.py",
            "fastredlock/asyncio.py",
        ):
            yield path


if __name__ == "__main__":
    sys.exit(main())
