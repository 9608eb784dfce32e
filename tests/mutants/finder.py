"""Find the code that an edit names in the product, wherever it is and however laid out.

Code is compared by its tokens: white space, line breaks, comments and a comma before a
closing bracket do not count. A place is the name of a function, class or struct, with
those around it (`Lease.release`) or a part of the path (`locks.py:release`) where that
is needed; `*` is the whole product, `lua` the text of all scripts, `text` the product
as words, for what is in a string. The code must be there exactly once.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PYTHON = re.compile(
    r"""(?P<skipped>\#[^\n]*|\\\n|[ \t\f]+)
    |(?P<string>[rRbBuUfF]{0,2}(?:'''(?:\\.|[^\\])*?'''|\"""(?:\\.|[^\\])*?\"""
        |'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
    |(?P<newline>\n)
    |(?P<other>\w+|\*\*|//|<<|>>|->|[<>=!:+*/%&|^@-]=|.)""",
    re.VERBOSE | re.DOTALL,
)
LUA = re.compile(
    r"""(?P<skipped>--[^\n]*|\s+)
    |(?P<string>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")
    |(?P<newline>(?!))
    |(?P<other>\w+|\.\.|[<>=~]=|.)""",
    re.VERBOSE | re.DOTALL,
)
MARK = "\0"  # between the tokens of a text that is searched


class Edit(NamedTuple):
    """In `place`, `old` becomes `new`; nothing, where `new` is empty."""

    place: str
    old: str
    new: str


class Token(NamedTuple):
    """A part of a text; `ends`: a statement may end behind it."""

    text: str
    start: int
    end: int
    begins: bool = False
    ends: bool = False


class Found(NamedTuple):
    path: Path
    start: int
    end: int
    is_statement: bool = False


def tokens(text: str, pattern: re.Pattern[str] = PYTHON) -> list[Token]:
    """Return the tokens that count; each knows whether a statement begins or ends."""
    result: list[Token] = []
    depth, begins = 0, True
    for match in pattern.finditer(text):
        part = match.group()
        if match["newline"] and depth == 0:
            begins = True
            if result:
                result[-1] = result[-1]._replace(ends=True)
        if match["newline"] or match["skipped"]:
            continue
        depth += (part in "([{") - (part in ")]}") if len(part) == 1 else 0
        if part in (")", "]", "}") and result and result[-1].text == ",":
            result.pop()
        result.append(Token(part, match.start(), match.end(), begins))
        begins = False
    if result:
        result[-1] = result[-1]._replace(ends=True)
    return result


def occurrences(wanted: list[Token], among: list[Token]) -> Iterator[int]:
    """Return the places at which one list of tokens begins in another."""
    needle = MARK.join(["", *(token.text for token in wanted), ""])
    hay = MARK.join(["", *(token.text for token in among), ""])
    at = hay.find(needle)
    while at >= 0:
        yield hay.count(MARK, 0, at)
        at = hay.find(needle, at + 1)


class Source:
    """A file of the product: its tokens, and the definitions in them."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_text()
        self.is_lua = path.suffix == ".lua"
        self.tokens = tokens(self.text, LUA if self.is_lua else PYTHON)
        self.definitions: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for each in () if self.is_lua else self._definitions():
            self.definitions[each[0].rpartition(".")[2]].append(each)

    def _definitions(self) -> list[tuple[str, int, int]]:
        """Return (name with those around it, its first token, the one behind it)."""
        result: list[tuple[str, int, int]] = []
        open_: list[tuple[int, str, int]] = []  # indentation, name, first token
        starts = [at for at, token in enumerate(self.tokens) if token.begins]
        for start, stop in zip(starts, [*starts[1:], len(self.tokens)], strict=True):
            first = self.tokens[start].start
            indent = first - self.text.rfind("\n", 0, first) - 1
            while open_ and open_[-1][0] >= indent:
                _, name, begun = open_.pop()
                result.append((name, begun, start))
            if defined := _defined([token.text for token in self.tokens[start:stop]]):
                around = open_[-1][1] + "." if open_ else ""
                open_.append((indent, around + defined, start))
        result += [(name, begun, len(self.tokens)) for _, name, begun in open_]
        return result

    def find(self, place: str, wanted: list[Token]) -> Iterator[Found]:
        """Return where the place has the code."""
        named = self.definitions.get(place.rpartition(".")[2], ())
        spans = [span for name, *span in named if f".{name}".endswith(f".{place}")]
        for begun, behind in [[0, len(self.tokens)]] if place == "*" else spans:
            for at in occurrences(wanted, self.tokens[begun:behind]):
                first, last = _ends(self.tokens, begun + at, len(wanted))
                is_statement = first.begins and last.ends
                yield Found(self.path, first.start, last.end, is_statement)

    def find_text(self, wanted: str) -> Iterator[Found]:
        pattern = r"\s+".join(map(re.escape, wanted.split()))
        for match in re.finditer(pattern, self.text):
            yield Found(self.path, match.start(), match.end())

    def find_lua(self, wanted: list[Token]) -> Iterator[Found]:
        """Return where a script has the code."""
        if self.is_lua:
            for at in occurrences(wanted, self.tokens):
                first, last = _ends(self.tokens, at, len(wanted))
                yield Found(self.path, first.start, last.end)


def _ends(among: list[Token], first: int, count: int) -> tuple[Token, Token]:
    return among[first], among[first + count - 1]


def _defined(statement: list[str]) -> str | None:
    """Return the name of what a statement defines, if it does."""
    if statement[:1] == ["async"]:
        statement = statement[1:]
    if statement[-1] != ":" or statement[0] not in (
        *("def", "class", "cdef", "cpdef", "ctypedef"),
    ):
        return None
    for kind in ("class", "struct", "enum"):
        if kind in statement[:3]:
            name = statement[statement.index(kind) + 1]
            return name if name.isidentifier() else None
    return statement[statement.index("(") - 1] if "(" in statement else None


class Product:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = [
            path
            for suffix in (
                "src_cython/**/*.p[yx]*",
                "fastredlock/**/*.py",
                "fastredlock/**/*.lua",
            )
            for path in sorted(folder.glob(suffix))
        ]
        self.sources = [Source(path) for path in paths]

    def find(self, edit: Edit) -> Found:
        """Return where the code of an edit is; ValueError unless that is one place."""
        file, _, place = edit.place.rpartition(":")
        wanted = tokens(edit.old, LUA if place == "lua" else PYTHON)
        found: set[Found] = set()
        for source in self.sources:
            if file and file not in str(source.path.relative_to(self.folder)):
                continue
            if place == "text":
                found.update(source.find_text(edit.old))
            elif place == "lua":
                found.update(source.find_lua(wanted))
            else:
                found.update(source.find(place, wanted))
        if len(found) != 1:
            raise ValueError(
                f"{edit.place} has {len(found)} times, not once: {edit.old!r}"
            )
        return found.pop()

    def is_core(self, edits: tuple[Edit, ...]) -> bool:
        return any("src_cython" in self.find(edit).path.parts for edit in edits)

    def patched(self, edits: tuple[Edit, ...]) -> dict[Path, str]:
        """Return the files with a mistake in them."""
        found = [(self.find(edit), edit) for edit in edits]
        found.sort(key=lambda one: one[0].start, reverse=True)
        texts = {source.path: source.text for source in self.sources}
        result = {each.path: texts[each.path] for each, _ in found}
        for each, edit in found:
            result[each.path] = replaced(result[each.path], each, edit.new)
        return result


def replaced(text: str, found: Found, new: str) -> str:
    """Return a text in which new code is where the found code was."""
    before, behind = text[: found.start], text[found.end :]
    if not new and found.is_statement:
        new = "pass"
    line = before.rpartition("\n")[2]
    indent = line[: len(line) - len(line.lstrip())]
    return before + textwrap.indent(new, indent).lstrip() + behind
