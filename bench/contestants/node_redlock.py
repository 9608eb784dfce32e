"""node-redlock with ioredis: a contestant of another language, a program of its own.

It is installed on demand, outside the source tree, from the lock file beside it: once
per version of these files. Where node or npm is missing, it is left out with a note.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from bench.contestants.base import Contestant
from bench.floor.build import cache_folder

LABEL = "node-redlock 5, ioredis (Node.js)"
ONE_CALLER = Contestant(LABEL, None, unit="task", libraries=())
MANY_CALLERS = Contestant(LABEL, None, unit="task", sizes=(1, 200), libraries=())

_FILES = Path(__file__).parent / "node"
_INSTALL = ("ci", "--no-audit", "--no-fund", "--silent", "--fetch-retries=0")


def node_command(callers: int) -> list[str]:
    """Return the command of its process, up to the key.

    Raises:
        FileNotFoundError: There is no node, or no npm to install it with.
        RuntimeError: npm refused; its output is the message.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise FileNotFoundError("it needs node and npm on PATH")
    sources = sorted(each for each in _FILES.iterdir() if each.is_file())
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources))
    folder = cache_folder() / f"node-{digest.hexdigest()[:16]}"
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for each in sources:
            shutil.copy(each, folder)
        done = subprocess.run(
            [npm, *_INSTALL], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"npm ci failed: {done.stderr.strip()[-300:]}")
        (folder / "installed").touch()
    return [node, str(folder / "worker.mjs"), str(callers)]
