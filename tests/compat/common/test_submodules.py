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
    "redis": ["LockAcquiringError", "LockError", "LockRuntimeError", "Sentinel"],
    "sentinel": ["Sentinel", "SentinelConfigError"],
    "utility": ["clean_password"],
}
POTTERY = {
    "aioredlock": ["AIORedlock"],
    "base": ["logger"],
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


@pytest.mark.parametrize(
    "details",
    [
        {"host": "h", "password": "secret"},
        "redis://:secret@h:1/0",
        [{"host": "h", "password": "secret"}, "rediss://:secret@h:1/0"],
        ("h", 1),
    ],
)
def test_password_is_cleaned_as_by_theirs(details: object) -> None:
    theirs = load("aioredlock.utility")
    ours = importlib.import_module("fastredlock.compat.aioredlock.utility")
    assert ours.clean_password(details) == theirs.clean_password(details)
