"""The mutants: mistakes that lock libraries were made with, put into our source.

They are in catalogue.txt, by machine, as small differences:

    # Round: ROUND                     a machine, and where its mutants are caught
    no roll-back [simulator]           the name; what finds it alone, or, where the
                                       mistake was ours, the commit that cured it
    tests: REPLIES tests/test_x.py     where else it is caught, the likeliest first
    in: engine_roll_back               a place, as `finder` has them
    - what is there                    once
    + what it becomes                  nothing, without such lines

A name in capitals stands for the tests that the first lines of the file give it. A
mutant whose code is gone, or there twice, is stale, and a test fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from .finder import Edit

TEXT = Path(__file__).with_suffix(".txt")


class Mutant(NamedTuple):
    """One mistake; `tests`: where it should be caught, the likeliest first."""

    name: str
    tests: tuple[str, ...]
    found: str
    edits: tuple[Edit, ...]


def parsed(text: str) -> tuple[Mutant, ...]:
    head, *machines = re.split(r"^# ", text, flags=re.MULTILINE)
    named = dict(line.split(" = ") for line in head.strip().splitlines())
    return tuple(
        _mutant(block, named, title.partition(": ")[2])
        for title, _, blocks in (machine.partition("\n") for machine in machines)
        for block in blocks.strip().split("\n\n")
    )


def _mutant(block: str, named: dict[str, str], usual: str) -> Mutant:
    (title, *tests), *edits = (part.splitlines() for part in block.split("\nin: "))
    name, _, found = title.removesuffix("]").partition(" [")
    caught = tests[0].removeprefix("tests: ") if tests else usual
    words = " ".join(named.get(word, word) for word in caught.split())
    return Mutant(name, tuple(words.split()), found, tuple(_edit(*e) for e in edits))


def _edit(place: str, *lines: str) -> Edit:
    old, new = (
        "\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+"
    )
    return Edit(place, old, new)


MUTANTS = parsed(TEXT.read_text())
