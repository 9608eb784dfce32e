"""Names that people import from sub-modules stand at the same place."""

from __future__ import annotations

import importlib

import pytest

from tests.support.two_libraries import load

AIOREDLOCK = {
    "algorithm": ["Aioredlock"],
    "errors": [
        "AioredlockError",
        "LockAcquiringError",
        "LockError",
        "LockRuntimeError",
    ],
    "lock": ["Lock"],
    "sentinel": ["Sentinel", "SentinelConfigError"],
}
POTTERY = {
    "aioredlock": ["AIORedlock"],
    "exceptions": [
        *("ExtendUnlockedLock", "PrimitiveError", "QuorumIsImpossible"),
        *("QuorumNotAchieved", "ReleaseUnlockedLock", "TooManyExtensions"),
    ],
    "redlock": ["Redlock", "synchronize"],
}
NAMES = [
    (library, module, name)
    for library, modules in (("aioredlock", AIOREDLOCK), ("pottery", POTTERY))
    for module, names in modules.items()
    for name in names
]


@pytest.mark.parametrize(("library", "module", "name"), NAMES)
def test_name_is_where_theirs_is(library: str, module: str, name: str) -> None:
    load(library)  # or skip
    theirs = importlib.import_module(f"{library}.{module}")
    ours = importlib.import_module(f"fastredlock.compat.{library}.{module}")
    assert hasattr(theirs, name)
    found = getattr(ours, name)
    package = importlib.import_module(f"fastredlock.compat.{library}")
    assert getattr(package, name, found) is found
