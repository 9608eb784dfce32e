"""Run redis-py's own tests of its Lock on ours: only the import is another.

    python -m tools.suites [redis]

The tests come from the library's sdist, of the version that is installed here; pip
fetches it. They need pytest-asyncio, which is installed beside them, so that it is no
plugin of our own tests. Ends with 1 where another test fails than those below.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from fastredlock.testing import LocalMasters
from fastredlock.testing._local import _EMBEDDED, _find_embedded

# They replace the clock of the library's module, and look at it.
FAKE_CLOCK = {
    "tests.test_lock.TestLock.test_blocking_timeout",
    "tests.test_lock.TestLock.test_context_manager_blocking_timeout",
    "tests.test_asyncio.test_lock.TestLock.test_blocking_timeout[single]",
    "tests.test_asyncio.test_lock.TestLock.test_blocking_timeout[pool]",
}
EXPECTED: dict[str, set[str]] = {"redis": FAKE_CLOCK, "valkey": set()}
FILES = "tests/test_lock.py", "tests/test_asyncio/test_lock.py"


def main() -> None:
    """Run the suites that are named, by default all."""
    fails = [name for name in sys.argv[1:] or EXPECTED if not runs(name)]
    sys.exit(f"other tests failed than expected: {fails}" if fails else 0)


def runs(library: str) -> bool:
    """Return whether only those tests fail that are expected to."""
    server = _find_embedded(*_EMBEDDED[0]) if library == "valkey" else None
    with TemporaryDirectory() as name, LocalMasters(1, server=server) as masters:
        folder = fetched(library, Path(name))
        for file in FILES:
            swap(folder / file, library)
        report = folder / "report.xml"
        command = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "pytest_asyncio"]
        options = [f"--{library}-url={masters.urls[0]}", f"--junitxml={report}"]
        subprocess.run(
            [sys.executable, *command, *options, *FILES],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{Path.cwd()}:{name}/plugin"},
            check=False,
        )
        return is_expected(library, report)


def fetched(library: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "-q"]
    place = f"{library}=={version(library)}"
    sdist = ["download", "--no-deps", "--no-binary", library, "-d", str(folder), place]
    plugin = ["install", "--no-deps", "--target", f"{folder}/plugin", "pytest-asyncio"]
    for arguments in (sdist, plugin):
        subprocess.run([*pip, *arguments], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def swap(file: Path, library: str) -> None:
    text, swaps = re.subn(
        rf"^from {library}(\.asyncio)?\.lock import Lock$",
        r"from fastredlock.compat.redis\1 import Lock",
        file.read_text(),
        flags=re.MULTILINE,
    )
    if swaps != 1:
        raise ValueError(f"{file} imports Lock {swaps} times")
    file.write_text(text)


def is_expected(library: str, report: Path) -> bool:
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if any(each.tag in ("failure", "error") for each in case)
    }
    print(
        f"{library}-py {version(library)}: {len(cases) - len(failed)} of {len(cases)}"
    )
    for each in sorted(failed):
        print("failed:", each)
    return bool(cases) and failed == EXPECTED[library]


if __name__ == "__main__":
    main()
