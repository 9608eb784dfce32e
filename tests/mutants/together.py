"""All mutants of the core in one build; MUTANT, a number, names the one that acts.

A function that a mutant changes is copied with the mistake in it, under another name,
and begins with a jump to that copy. What is outside of functions, or in a signature, is
built by itself: LookupError.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from .catalogue import Mutant
from .finder import Edit, Found, Product, Source, replaced

NUMBER = """
import os as _os

cdef int mutant_number = int(_os.environ.get("MUTANT", "0"))
"""
Insertion = tuple[Path, int, str]  # into a file, at a place, this text


def together(
    product: Product, mutants: Iterable[Mutant]
) -> tuple[dict[Path, str], dict[str, int]]:
    """Return the files of a core that has all mutants, and their numbers."""
    core = product.folder / "src_cython/_core.pyx"
    insertions = [(core, core.read_text().index("\ninclude "), NUMBER)]
    numbers: dict[str, int] = {}
    for mutant in mutants:
        try:
            insertions += copies(product, mutant, len(numbers) + 1)
        except LookupError:
            continue
        numbers[mutant.name] = len(numbers) + 1
    texts = {path: path.read_text() for path, *_ in insertions}
    for path, at, more in sorted(insertions, reverse=True):
        texts[path] = texts[path][:at] + more + texts[path][at:]
    return texts, numbers


def copies(product: Product, mutant: Mutant, number: int) -> list[Insertion]:
    """Return what is added for a mutant: in each function, and before it."""
    sources = {source.path: source for source in product.sources}
    functions: dict[tuple[Path, tuple[int, int]], list[tuple[Found, Edit]]]
    functions = defaultdict(list)
    for edit in mutant.edits:
        found = product.find(edit)
        span = function_around(sources[found.path], found)
        functions[found.path, span].append((found, edit))
    return [
        insertion
        for (path, span), edits in functions.items()
        for insertion in copied(sources[path], span, edits, number)
    ]


def function_around(source: Source, found: Found) -> tuple[int, int]:
    """Return the first token of the innermost function, and the one behind it."""
    around = [
        (begun, behind)
        for named in source.definitions.values()
        for _, begun, behind in named
        if source.tokens[begun].start < found.start
        and found.end <= source.tokens[behind - 1].end
        and source.path.suffix == ".pyx"
    ]
    if not around:
        raise LookupError(found)
    return max(around)


def copied(
    source: Source, span: tuple[int, int], edits: list[tuple[Found, Edit]], number: int
) -> Iterator[Insertion]:
    """Yield the copy with the mistake, and the jump to it."""
    begun, behind = span
    end = next(at for at in range(begun, behind) if source.tokens[at].ends)
    head = source.tokens[begun : end + 1]
    words = [token.text for token in head]
    start = source.text.rfind("\n", 0, head[0].start) + 1
    indent = source.text[start : head[0].start]
    function = source.text[start : source.tokens[behind - 1].end]
    is_odd = "(" not in words or len(indent) not in (0, 4) or "yield" in function
    if is_odd or any(found.start < head[-1].end for found, _ in edits):
        raise LookupError(words)
    for found, edit in sorted(edits, key=lambda each: -each[0].start):
        moved = found._replace(start=found.start - start, end=found.end - start)
        function = replaced(function, moved, edit.new)
    at = head[words.index("(") - 1]
    name = f"mutant{number}_{at.text.strip('_')}"
    function = function[: at.start - start] + name + function[at.end - start :]
    given = list(arguments(words[words.index("(") + 1 :]))
    call = f"{given.pop(0)}.{name}" if indent else name
    call += f"({', '.join(given)})"
    call = f"await {call}" if words[0] == "async" else call
    is_void = not {"void", "__init__"}.isdisjoint(words[: words.index("(")])
    jump = f"{call}; return" if is_void else f"return {call}"
    above = source.text[:start].rstrip("\n").rfind("\n") + 1
    is_decorated = source.text[above:start].lstrip().startswith("@")
    yield source.path, above if is_decorated else start, f"{function}\n\n\n"
    yield (
        source.path,
        head[-1].end,
        f"\n{indent}    if mutant_number == {number}: {jump}",
    )


def arguments(words: list[str]) -> Iterator[str]:
    """Yield the names of a function's arguments, as a call gives them."""
    depth, part = 0, list[str]()
    for word in words:
        if depth == 0 and word in (",", ")"):
            named = " ".join(part).partition("=")[0].removesuffix(" not None")
            if named.startswith("*"):
                yield named.replace(" ", "")
            elif names := re.findall(r"[A-Za-z_]\w*", named.partition(" :")[0]):
                yield names[-1]
            part = []
            if word == ")":
                return
            continue
        depth += (word in ("(", "[")) - (word in (")", "]"))
        part.append(word)
