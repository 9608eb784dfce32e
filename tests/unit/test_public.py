"""Types and texts of what is public: read by programs, and written to logs.

Types can be imported and read at run time (`typing.get_type_hints`), reports are named
tuples, and no text of an object of ours raises, however half-made it is. The classes
are found in all modules, but for the commands, and those of `compat` whose originals
raise as well.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import sys
import typing
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest

import fastredlock
import fastredlock.asyncio
import fastredlock.compat
import fastredlock.types
from fastredlock import FastRedlock, errors
from fastredlock._locking import attempt
from tests.support.rounds import in_child, new_engine


@pytest.mark.parametrize("kind", [FastRedlock, fastredlock.asyncio.FastRedlock])
def test_types_that_signatures_name_are_exported(kind: type) -> None:
    known = {*fastredlock.__all__, *fastredlock.types.__all__}
    usual = {
        *("Callable", "Iterable", "Coroutine", "Generator", "Any", "TracebackType"),
        "Never",  # what type checkers let nobody give
        *("BaseException", "AnyLease", "AnyLock", "AnyRate"),  # of this FastRedlock
    }
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_"):
            continue
        for told in function.__annotations__.values():
            words = {word for word in inspect.cleandoc(told).replace(".", " ").split()}
            named = {w.strip("[],|()") for word in words for w in word.split("[")}
            classes = {word for word in named if word[:1].isupper()} - {"None"}
            assert classes <= known | usual, (name, told)


NAMES = [
    *("fastredlock", "fastredlock.asyncio", "fastredlock.errors", "fastredlock.types"),
    *("fastredlock.observer", "fastredlock.testing", "fastredlock.testing.asyncio"),
    *("fastredlock.prometheus", "fastredlock.otel"),
]
COMPAT = [
    module.name
    for module in pkgutil.walk_packages(
        fastredlock.compat.__path__, "fastredlock.compat."
    )
    if not any(part.startswith("_") for part in module.name.split("."))
]


def public(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public classes, their methods, and the functions of a module."""
    module = importlib.import_module(name)
    own = [k for k, v in vars(module).items() if getattr(v, "__module__", 0) == name]
    for key in getattr(module, "__all__", own):
        value = getattr(module, key)
        if key.startswith("_") or not callable(value):
            continue
        yield f"{name}.{key}", value
        if inspect.isclass(value):
            for method, function in inspect.getmembers(value):
                shown = not method.startswith("_") or method in ("__init__", "__call__")
                if shown and hasattr(function, "__annotations__"):
                    yield f"{name}.{key}.{method}", function
                if isinstance(function, property) and function.fget and shown:
                    yield f"{name}.{key}.{method}", function.fget


@pytest.mark.parametrize("name", [*NAMES, *COMPAT])
def test_types_of_public_callables_can_be_read_at_run_time(name: str) -> None:
    failed = []
    if "django_valkey" in name:  # it reads Django's settings when it is imported
        conf = pytest.importorskip("django.conf")
        if not conf.settings.configured:
            conf.settings.configure()
    for path, value in public(name):
        try:
            typing.get_type_hints(value)
        except (NameError, TypeError) as error:
            if value.__module__.startswith("fastredlock"):  # not a base of Django's
                failed.append(f"{path}: {error}")
    assert not failed, "\n".join(sorted({*failed}))


OUTER = ("_cli", "cli", "compat", "demo", "__main__")
VOTE = fastredlock.MasterVote("a:1", fastredlock.Vote.TAKEN, None, 1.0)
ODD: list[tuple[Any, ...]] = [
    (),
    ("r",),
    (None,) * 5,
    ("r", [["a:1", 2]], "3", {}, 1),
    (b"\xff", 1, 2, 3, 4),
]
ERRORS = [value for value in vars(errors).values() if isinstance(value, type)]


def classes() -> list[type]:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(fastredlock.__path__, "fastredlock.")
        if found.name.split(".")[1] not in OUTER
    ]
    found = [each for module in modules for each in vars(module).values()]
    ours = [each for each in found if inspect.isclass(each)]
    return [each for each in ours if each.__module__.startswith("fastredlock")]


def test_text_of_an_object_when_it_is_half_made_then_does_not_raise() -> None:
    """Seen: an AsyncioDriver of wrong arguments closed descriptor 0 at its end."""
    made, stdin = 0, os.dup(0)
    for kind in {*classes()}:
        try:
            half = kind.__new__(kind)  # type: ignore[call-overload]
        except TypeError:  # it cannot be half-made
            continue
        assert repr(half)
        str(half)
        made += 1
    assert made > 100
    assert os.path.sameopenfile(0, stdin)
    os.close(stdin)


@pytest.mark.parametrize("error", [each for each in ERRORS if "Error" in each.__name__])
@pytest.mark.parametrize("arguments", ODD)
def test_text_of_an_error_when_made_of_anything_then_does_not_raise(
    error: type[Exception], arguments: tuple[object, ...]
) -> None:
    """Seen: errors out of Celery's JSON results, made of lists, raised in __str__."""
    half = error.__new__(error, *arguments)
    with suppress(TypeError):
        half.__init__(*arguments)
    assert repr(half)
    str(half)


def test_error_when_it_went_through_json_then_tells_what_happened() -> None:
    before = errors.ResourceTakenError("orders:42", (VOTE,), 1, 0.5)
    after = errors.ResourceTakenError(*json.loads(json.dumps(before.args)))
    assert str(after).startswith("held by others: orders:42")


# --- modules that another thread is importing at this moment: they have no names yet


def test_wait_when_asyncio_is_being_imported_then_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: AttributeError out of acquire(), in every thread that began to wait."""
    monkeypatch.setitem(sys.modules, "asyncio", ModuleType("asyncio"))
    attempt.before_wait(new_engine(1))


def test_client_when_multiprocessing_is_being_imported_then_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "multiprocessing.util"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with in_child(), FastRedlock(["redis://localhost:1"]):  # it looks once per process
        pass
