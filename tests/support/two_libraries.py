"""Two libraries side by side: their surfaces compared, one of them in another process.

`PAIR` is `(theirs, ours)`, two names of modules; the faces of tests/compat drive them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, TypeVar

import pytest

from tests.support import library_process
from tests.support.processes import Child, running

T = TypeVar("T")

MANNERS = ("__enter__", "__exit__", "__aenter__", "__aexit__", "__call__")


def load(name: str) -> ModuleType:
    """Import a library, or skip the test where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # distutils, in aioredlock
        found: ModuleType = pytest.importorskip(
            name, reason=f"{name} is not installed", exc_type=ImportError
        )
        return found


# --- surfaces ---------------------------------------------------------------------


def surface(module: ModuleType, names: list[str]) -> dict[str, str]:
    """Describe public names of a module: signatures, values, bases of exceptions."""
    described: dict[str, str] = {}
    for name in names:
        value = getattr(module, name, None)
        described[name] = "missing" if value is None else signature_of(value)
        if inspect.isclass(value):
            described |= members_of(name, value)
    return described


def members_of(name: str, cls: type) -> dict[str, str]:
    """Describe the public members of a class, and its bases if it is an exception."""
    common = dir(Exception) if issubclass(cls, Exception) else dir(tuple)
    members = {
        f"{name}.{member}": signature_of(inspect.getattr_static(cls, member))
        for member in dir(cls)
        if member in MANNERS or not (member.startswith("_") or member in common)
    }
    if issubclass(cls, Exception):
        members[f"{name}()"] = " < ".join(base.__name__ for base in cls.__mro__)
    return members


def signature_of(value: object) -> str:
    """Describe a function by its parameters, anything else by its value."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if not callable(value):
        return type(value).__name__ if is_descriptor(value) else repr(value)
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception without an __init__ of its own
        return "(*args)"
    plain = signature.replace(
        parameters=[
            each.replace(annotation=inspect.Parameter.empty)
            for each in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )
    return f"async {plain}" if inspect.iscoroutinefunction(value) else str(plain)


def is_descriptor(value: object) -> bool:
    return hasattr(type(value), "__get__")


def differing(theirs: dict[str, str], ours: dict[str, str]) -> set[str]:
    """Return what the two describe differently, as `name: theirs -> ours`."""
    return {
        f"{name}: {theirs.get(name, 'missing')} -> {ours.get(name, 'missing')}"
        for name in theirs.keys() | ours.keys()
        if theirs.get(name) != ours.get(name)
    }


def own_names(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]


# --- another process ------------------------------------------------------------------


def other_process(
    kind: str, module: str, key: str, urls: list[str]
) -> AbstractContextManager[Child]:
    """Run a lock of this kind, of this module, in a process of its own."""
    return running(library_process, kind, module, key, *urls)


# --- others ---------------------------------------------------------------------------


def is_stored(token: bytes, values: Sequence[Any]) -> bool:
    """Return whether a majority stores this, and the others nothing.

    Ours does not wait for a connection that it can do without: on a loaded machine,
    the first lock may not be on all masters.
    """
    return set(values) <= {token, None} and values.count(token) > len(values) // 2


def forbid_sockets(client: Any) -> Any:
    """Return a redis-py client that fails as soon as its connections are used."""
    client.connection_pool.max_connections = 0  # every use of it would raise
    return client
