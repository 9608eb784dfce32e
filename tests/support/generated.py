"""The C file that Cython makes of the core: which calls each of its functions makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "build/cython/src_cython/_core.c"
OWN_CODE = "/* #### Code section: module_code ### */"
OTHER_CODE = "/* #### Code section: module_exttypes ### */"
ORIGIN = re.compile(r'/\* "src_cython/([\w/]+\.pyx)":(\d+)')
FUNCTION = re.compile(
    r"^(?:static|CYTHON_INLINE)[^;]*?\b__pyx_(f|pw|pf|gb)_11fastredlock_5_core_(\w+)\(.*{"
)
CALL = re.compile(r"\b((?:__Pyx|Py)\w*)\(")


class Call(NamedTuple):
    """One call of CPython's functions, or of Cython's."""

    file: str
    line: int
    function: str
    is_c: bool  # a cdef function, not one that Python can call
    called: str

    def source(self) -> str:
        """Return the line of the source that it stands for."""
        lines = (ROOT / "src_cython" / self.file).read_text("utf-8").splitlines()
        return lines[self.line - 1].strip()


def own_code(text: str) -> tuple[str, str, str]:
    """Split it into what comes before the functions of our own, these, and the rest."""
    before, behind = text.split(OWN_CODE)
    own, after = behind.split(OTHER_CODE)
    return before, own, after


def is_current() -> bool:
    """Whether it was made of the sources as they are."""
    made = GENERATED.stat().st_mtime if GENERATED.exists() else 0.0
    sources = [*ROOT.glob("src_cython/**/*.p*")]
    return bool(sources) and made >= max(each.stat().st_mtime for each in sources)


@cache
def calls() -> list[Call]:
    """List all calls in functions of our own."""
    return list(calls_in(own_code(GENERATED.read_text("utf-8"))[1]))


def calls_in(own: str) -> Iterator[Call]:
    origin = function = None
    for text in own.splitlines():
        if found := ORIGIN.search(text):
            origin = found
        if found := FUNCTION.match(text):
            function = found
        elif function is not None and origin is not None and text.startswith(" "):
            for called in CALL.findall(text):
                yield Call(
                    origin[1], int(origin[2]), function[2], function[1] == "f", called
                )
