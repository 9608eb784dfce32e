"""Check that an sdist has every file of the repository: its tests must run from it.

And that its description, the README, has no relative link and none to a branch: an
index shows it.

python -m tools.sdist FILE.tar.gz
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELATIVE = re.compile(r"\]\((?!https?:|#)([^)]+)\)")
MOVES = re.compile(r"\]\(([^)]+/blob/main/[^)]+)\)")


def main() -> int:
    sdist = Path(sys.argv[1])
    found = [f"not in the sdist: {name}" for name in tracked() - contained(sdist)]
    found += [f"a relative link: {link}" for link in RELATIVE.findall(described(sdist))]
    found += [f"a link of a branch: {link}" for link in MOVES.findall(described(sdist))]
    print(*sorted(found), sep="\n", end="\n" if found else "")
    return 1 if found else 0


def tracked() -> set[str]:
    """List the files that git knows here."""
    said = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    return {name for name in said.split("\0") if name and (ROOT / name).exists()}


def contained(sdist: Path) -> set[str]:
    """List the files of an sdist, without its first folder."""
    with tarfile.open(sdist) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def described(sdist: Path) -> str:
    """Return the metadata of an sdist, which ends with its description."""
    with tarfile.open(sdist) as opened:
        member = next(
            name
            for name in opened.getnames()
            if name.count("/") == 1 and name.endswith("/PKG-INFO")
        )
        file = opened.extractfile(member)
        assert file is not None
        return file.read().decode()


if __name__ == "__main__":
    sys.exit(main())
