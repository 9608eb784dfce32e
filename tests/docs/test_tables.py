"""The tables of options and errors say what the code does."""

from __future__ import annotations

import inspect
import re

import pytest

import fastredlock
from fastredlock import FastRedlock, FastRedlockError, Retry, errors

from .documents import ROOT, rows

OPTIONS = ROOT / "docs" / "options.md"
ERRORS = ROOT / "docs" / "errors.md"
OPERATIONS = ROOT / "docs" / "operations.md"


def code(cell: str) -> str:
    """Return what stands in backticks in a cell, unescaped."""
    found = re.search(r"`(.*?)`", cell)
    assert found is not None
    return found[1].replace(r"\|", "|")


def source() -> str:
    """Return all of our source, with its literals in one piece each."""
    folders = (ROOT / "src_cython", ROOT / "fastredlock")
    paths = [path for folder in folders for path in folder.rglob("*.py*")]
    text = "\n".join(path.read_text() for path in paths if path.suffix != ".pyc")
    return re.sub(r'"\s*\n\s*f?"', "", text)


def defaults_of(function: object) -> dict[str, str]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return {
        name: repr(parameter.default)
        for name, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


def told_defaults(heading: str) -> dict[str, str]:
    table = rows(OPTIONS, heading)
    return {code(row[0]): row[2].strip("`") for row in table}


def test_options_and_their_defaults_are_those_of_the_constructor() -> None:
    told = {
        name: default.replace('"', "'")
        for name, default in told_defaults("## Of `FastRedlock`").items()
    }
    actual = defaults_of(FastRedlock) | {"retry": "Retry()"}
    assert told == {"masters": "required", **actual}


def test_fields_of_retry_and_their_defaults_are_those_of_the_class() -> None:
    assert told_defaults("## Retry") == defaults_of(Retry)


def test_every_error_has_its_row() -> None:
    told = {code(row[0]) for row in rows(ERRORS) if row[0].endswith("Error`")}
    actual = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, FastRedlockError)
    }
    assert told == actual
    assert actual <= set(fastredlock.__all__)


@pytest.mark.parametrize(
    "text",
    [
        code(row[0])
        for document, heading in [
            (ERRORS, "## Reasons of a lost lease"),
            (ERRORS, "## Texts of votes"),
            (OPERATIONS, "## ping(), health(), stats(), holders()"),
        ]
        for row in rows(document, heading)
    ],
)
def test_text_in_a_table_stands_in_the_source(text: str) -> None:
    ours = source()
    pieces = [piece for piece in text.split("…") if len(piece) > 3]
    assert [piece for piece in pieces if piece not in ours] == []
