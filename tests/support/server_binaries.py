"""The server programs that this machine has: their errors differ."""

from __future__ import annotations

import os
import shutil

import pytest

from fastredlock.testing._local import _EMBEDDED, _find_embedded, _find_program


def _programs() -> list[object]:
    found = {
        "default": _find_program(None),
        **{package: _find_embedded(package, where) for package, where in _EMBEDDED},
        "valkey": shutil.which("valkey-server"),
    }
    distinct = {os.path.realpath(path): name for name, path in found.items() if path}
    return [pytest.param(found[name], id=name) for name in distinct.values()]


PROGRAMS = _programs()
