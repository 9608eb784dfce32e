"""Put the figures of a run where a document says that they belong."""

from __future__ import annotations

import os
from pathlib import Path


def fill_with_picture(
    path: Path, name: str, text: str, picture: Path | None, caption: str
) -> None:
    """Do as `fill`, the picture, if there is one, below the text."""
    if picture:
        text += f"\n\n![{caption}]({os.path.relpath(picture, path.parent)})"
    fill(path, name, text)


def fill(path: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name: begin -->` and `<!-- name: end -->`.

    Raises RuntimeError where the document has no such place; it is unchanged then.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise RuntimeError(f"{path} has no {begin} ... {end}")
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")
