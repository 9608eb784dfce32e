"""The hooks of mkdocs.yml: the pages of docs/, which are read on GitHub, as a site.

Links that lead out of docs/, or to a program, become links to the repository; pictures
of bench/ become files of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
CODE = re.compile(r"`[^`]*`")
OUTSIDE = re.compile(r"^https?:|^mailto:")


def on_config(config: Any) -> Any:
    """Leave out entries of the navigation whose page is not there."""
    config["nav"] = existing(config["nav"])
    return config


def existing(entry: Any) -> Any:
    """Return a part of the navigation without pages that are not there."""
    if isinstance(entry, str):
        return entry if (DOCS / entry).exists() else None
    if isinstance(entry, list):
        return [kept for each in entry if (kept := existing(each))]
    found = {title: existing(inner) for title, inner in entry.items()}
    return {title: inner for title, inner in found.items() if inner}


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pictures of bench/."""
    from mkdocs.structure.files import File

    for path in sorted(ROOT.glob("bench/*.svg")):
        uri = f"pictures/{path.name}"
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Mend the links of one page."""
    folder = posixpath.dirname(page.file.src_uri)

    def mended(found: re.Match[str]) -> str:
        return mend(found[1], folder, config["repo_url"])

    lines = LINK.sub(mended, markdown).split("\n")
    return "\n".join(unescaped(each) if each[:1] == "|" else each for each in lines)


def unescaped(row: str) -> str:
    """Return a row of a table for Python-Markdown, where no pipe in code divides."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row)


def mend(link: str, folder: str, repository: str) -> str:
    """Return where a link of a page in this folder of docs/ leads to."""
    if OUTSIDE.match(link):
        return link
    path = posixpath.normpath(posixpath.join("docs", folder, link))
    if path.startswith("bench/") and path.endswith(".svg"):
        return posixpath.relpath(f"pictures/{posixpath.basename(path)}", folder or ".")
    if path.startswith("docs/") and path.endswith(".md"):
        return link
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{repository}/{kind}/main/{path}"
