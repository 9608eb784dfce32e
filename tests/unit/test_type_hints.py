"""Every public callable has types that programs can read: `typing.get_type_hints`.

Dependency injection, command line builders and checkers at run time read them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Iterator

import pytest

import fastredlock.compat

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


def public(name: str) -> Iterator[tuple[str, object]]:
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
    for path, value in public(name):
        try:
            typing.get_type_hints(value)
        except (NameError, TypeError) as error:
            failed.append(f"{path}: {error}")
    assert not failed, "\n".join(sorted({*failed}))
