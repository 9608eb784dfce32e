"""Which objects may observe, and what a FastRedlock without one does not pay."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fastredlock
from fastredlock import ConfigurationError, FastRedlock
from fastredlock._core import Round
from fastredlock._locking.blocking import Lease
from fastredlock._locking.observing import Observing
from fastredlock.observer import EVENTS, Observer

MASTERS = ["redis://127.0.0.1:1"]
ROOT = Path(fastredlock.__file__).parents[1]


class Awaited:
    async def acquired(self, *_: object) -> None:
        """Do nothing."""


class Data:
    released = 5


@pytest.mark.parametrize(
    ("observer", "words"),
    [
        (5, "observer of type int"),
        (Observer, "observer of type type"),
        (print, "builtin_function_or_method"),
        (Awaited(), "acquired of the observer of type Awaited: .* not awaited"),
        (Data(), "released of the observer of type Data"),
    ],
)
def test_observer_when_it_cannot_be_told_then_is_refused(
    observer: object, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        FastRedlock(MASTERS, observer=observer)


def test_base_class_has_every_event_and_may_observe() -> None:
    methods = {name for name in vars(Observer) if not name.startswith("_")}
    assert methods == {*EVENTS, "attach"}
    FastRedlock(MASTERS, observer=Observer())


def test_observer_when_it_has_one_method_then_is_enough() -> None:
    class Counting:
        def lost(self, *_: object) -> None:
            """Do nothing."""

    FastRedlock(MASTERS, observer=Counting())


def test_observer_when_it_wants_then_knows_its_locks() -> None:
    class Attached(Observer):
        __slots__ = ("locks",)

        def attach(self, locks: Any) -> None:
            self.locks = locks

    observer = Attached()
    assert FastRedlock(MASTERS, observer=observer) is observer.locks


def test_names_of_the_values_are_those_of_the_documents() -> None:
    names = {
        event: [*inspect.signature(getattr(Observer, event)).parameters][1:]
        for event in EVENTS
    }
    assert names["acquired"] == names["taken"] == ["resource", "waited", "attempts"]
    assert names["released"] == ["resource", "held"]


# ---- the cost without


def test_fastredlock_without_an_observer_loads_nothing_of_it() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import fastredlock, fastredlock.asyncio\n"
        "for kind in (fastredlock.FastRedlock, fastredlock.asyncio.FastRedlock):\n"
        f"    kind({MASTERS!r})\n"
        "print(*(name for name in sys.modules if 'obser' in name or 'otel' in name\n"
        "        or 'prometheus' in name or 'opentelemetry' in name))"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.split() == []


def test_lease_without_an_observer_is_no_larger_for_what_it_tells() -> None:
    # `attempts` and `waited` are read from the round; its fields fill no further block
    # of the allocator (16 bytes, with those of the collector).
    assert "__dict__" not in dir(Lease)
    assert Lease.__basicsize__ - object.__basicsize__ <= 5 * 8
    assert Round.__basicsize__ - object.__basicsize__ <= 224


def test_observer_when_a_method_is_the_bases_then_it_is_not_called() -> None:
    class Counting(Observer):
        def acquired(self, *_: object) -> None:
            """Do nothing."""

    hooks = Observing(Counting())
    assert list(hooks.methods) == ["acquired"]
