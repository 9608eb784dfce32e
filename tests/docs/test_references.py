"""Whatever a document refers to is there, and its tables say what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import fastredlock
from fastredlock import FastRedlock, FastRedlockError, Retry, errors

from .documents import DOCUMENTS, INSTRUMENTS, README, ROOT, name_of, rows

FOLDERS = (
    *("src_cython", "fastredlock", "tests", "bench", "docs", "tools"),
    *(r"\.ci", r"\.github"),
)
IN_CODE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[^`\s:<>…*]*)")
SOURCE = re.compile(r"`((?:_?\w+/)?\w+\.(?:py|pyx|pxi|c))`(?!\])")  # `round/round.pyx`
LINK = re.compile(r"\]\(([^)\s]+)\)")
MODULE = re.compile(r"python -m ((?:bench|tests|tools|fastredlock)[\w.]*)")
LONGEST_README = 1100  # words
OPTIONS = ROOT / "docs" / "options.md"
ERRORS = ROOT / "docs" / "errors.md"
OPERATIONS = ROOT / "docs" / "operations.md"


def each(pattern: re.Pattern[str]) -> list[object]:
    """List what matches in the documents, each with its document."""
    return [
        pytest.param(document, found, id=f"{name_of(document)}: {found}")
        for document in DOCUMENTS + INSTRUMENTS
        for found in dict.fromkeys(pattern.findall(document.read_text("utf-8")))
    ]


def anchors(document: Path) -> set[str]:
    """List the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize(("document", "path"), each(IN_CODE))
def test_path_in_backticks_exists(document: Path, path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("document", "path"), each(SOURCE))
def test_short_path_of_a_source_exists(document: Path, path: str) -> None:
    rooms = ("src_cython", "fastredlock", "tests")
    bases = (ROOT, *(ROOT / room for room in rooms), document.parent)
    assert any((base / path).exists() for base in bases)


@pytest.mark.parametrize(("document", "link"), each(LINK))
def test_link_leads_somewhere(document: Path, link: str) -> None:
    if link.startswith(("http://", "https://")):
        return
    path, _, anchor = link.partition("#")
    target = document.parent / path if path else document
    assert target.exists()
    assert not anchor or anchor in anchors(target)


@pytest.mark.parametrize(("document", "module"), each(MODULE))
def test_command_names_a_module_that_runs(document: Path, module: str) -> None:
    path = ROOT.joinpath(*module.rstrip(".").split("."))
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_commands_are_run_by_ci_or_a_reason_is_written() -> None:
    """Seen: a site that nobody built, and benchmarks that were red on most servers."""
    said = "".join(each.read_text("utf-8") for each in DOCUMENTS + INSTRUMENTS)
    asked = {found.rstrip(".") for found in MODULE.findall(said)} - {"fastredlock"}
    run = {*MODULE.findall((ROOT / ".ci" / "run").read_text("utf-8"))}
    table = rows(ROOT / "CONTRIBUTING.md", "## What CI runs")
    excused = {found for command, _ in table for found in MODULE.findall(command)}
    assert asked - run == excused


def test_sdist_has_the_documents_and_all_that_they_refer_to() -> None:
    # README.md, pyproject.toml and the sources of the core are in every sdist.
    manifest = (ROOT / "MANIFEST.in").read_text("utf-8").split()
    given = {*FOLDERS} - {"src_cython", "fastredlock"}
    wanted = {folder.replace("\\", "") for folder in given}
    wanted |= {name_of(document) for document in DOCUMENTS if document.parent == ROOT}
    assert wanted - {"README.md"} <= {*manifest}


def test_readme_is_short_and_has_the_two_commands_of_a_newcomer() -> None:
    text = README.read_text("utf-8")
    assert len(text.split()) <= LONGEST_README
    assert "pip install '.[demo]' && fastredlock demo\n" in text
    assert "pip install -e '.[test]' && pytest\n" in text


# --- tables: options and errors are those of the code ---------------------------------


def code(cell: str) -> str:
    """Return what stands in backticks in a cell, unescaped."""
    found = re.search(r"`(.*?)`", cell)
    assert found is not None
    return found[1].replace(r"\|", "|")


def source() -> str:
    """Return all of our source, with its literals in one piece each."""
    folders = (ROOT / "src_cython", ROOT / "fastredlock")
    names = ("*.py*", "*.lua")
    paths = [path for each in folders for name in names for path in each.rglob(name)]
    text = "\n".join(path.read_text() for path in paths if path.suffix != ".pyc")
    return re.sub(r'"\s*\n\s*f?"', "", text)


def defaults_of(function: object) -> dict[str, str]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return {
        name: repr(parameter.default)
        for name, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


@pytest.mark.parametrize(
    ("heading", "function", "others"),
    [
        (
            "## Of `FastRedlock`",
            FastRedlock,
            {"masters": "required", "retry": "Retry()"},
        ),
        ("## Retry", Retry, {}),
    ],
)
def test_options_and_their_defaults_are_those_of_the_code(
    heading: str, function: object, others: dict[str, str]
) -> None:
    table = rows(OPTIONS, heading)
    told = {code(row[0]): row[2].strip("`").replace('"', "'") for row in table}
    assert told == defaults_of(function) | others


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
            (ERRORS, "## Bad arguments"),
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
    missing = [piece for piece in pieces if piece not in ours]
    # What happened and its reason may be put together: "not extended: it was released".
    parts = [part for piece in missing for part in piece.split(": ", 1)]
    assert [part for part in parts if part not in ours] == []
