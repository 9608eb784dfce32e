"""Modules that another thread is importing at this moment: they have no names yet."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from fastredlock import FastRedlock
from fastredlock._core import Engine
from fastredlock._locking import attempt
from fastredlock._locking.driver import new_scripts
from fastredlock._options.masters import Endpoint
from tests.support.rounds import in_child


def new_engine() -> Engine:
    return Engine([Endpoint("master", 6379)], new_scripts(None, False), 1_000_000_000)


def test_wait_when_asyncio_is_being_imported_then_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: AttributeError out of acquire(), in every thread that began to wait."""
    monkeypatch.setitem(sys.modules, "asyncio", ModuleType("asyncio"))
    attempt.before_wait(new_engine())


def test_client_when_multiprocessing_is_being_imported_then_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "multiprocessing.util"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with in_child(), FastRedlock(["redis://localhost:1"]):  # it looks once per process
        pass
