"""The documents of the repository, and the code blocks in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [
    *(README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]
INSTRUMENTS = sorted([*ROOT.glob("bench/*.md"), *ROOT.glob("tests/*/*.md")])


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[str]:
    """List the fenced blocks of one language, in order."""
    text = document.read_text("utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for found, code in fenced if found == language]


def rows(document: Path, heading: str = "") -> list[list[str]]:
    """List the cells of all tables below a heading, without the tables' heads."""
    text = document.read_text("utf-8")
    if heading:
        text = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    body = [index for index, row in enumerate(cells) if is_rule(row)]
    heads = {index for rule in body for index in (rule, rule - 1)}
    return [
        [cell.strip() for cell in row]
        for index, row in enumerate(cells)
        if index not in heads
    ]


def is_rule(row: list[str]) -> bool:
    return all(re.fullmatch(r" *:?-+:? *", cell) for cell in row)
