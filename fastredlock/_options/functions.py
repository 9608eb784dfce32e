"""Functions that a lock decorates: what runs within their calls, and what does not.

The body of a generator, of a coroutine, and of a context manager of contextlib runs
when the call has returned, and would run without the lock. Such a function is refused
when it is decorated. A wrapper may hide it, and may run it to its end as well (by
asyncio.run, or list), which only the result of its call shows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager
from functools import partial
from types import FunctionType
from typing import Any

from ..errors import ConfigurationError

OUTSIDE = "its body would run without the lock"
INSIDE = "put `{}with locks.lock(...)` into it"
# A result that runs later: what it is called, and what to do. Those of compilers, too:
# these classes know them by their methods.
LATER: dict[type, tuple[str, str]] = {
    Coroutine: ("a coroutine", "use fastredlock.asyncio.FastRedlock, and await it"),
    Generator: ("a generator", INSIDE.format("")),
    AsyncGenerator: ("a generator", INSIDE.format("async ")),
    _GeneratorContextManager: ("a context manager", INSIDE.format("")),
    _AsyncGeneratorContextManager: ("a context manager", INSIDE.format("async ")),
    # Others: a task, a future, what gather() returns. Last, for a coroutine is one.
    Awaitable: ("an awaitable", "await it inside, in an `async def`"),
}
KINDS = tuple(LATER)


def is_coroutine_function(function: object, resource: object) -> bool:
    """Return whether it is awaited; refuse what no lock could be held for."""
    import inspect  # 10 ms where nothing else has

    refusal = None
    if isinstance(function, classmethod | staticmethod | property):
        refusal = f"is a {type(function).__name__}: put that above the lock"
    elif isinstance(function, type) or not callable(function):
        refusal = (
            "is no function: a lock decorates functions, methods and coroutine "
            "functions, as @locks.lock(...), with its parentheses"
        )
    elif is_of(inspect.isgeneratorfunction, function):
        refusal = f"is a generator: {OUTSIDE}; {INSIDE.format('')}"
    elif is_of(inspect.isasyncgenfunction, function):
        refusal = f"is a generator: {OUTSIDE}; {INSIDE.format('async ')}"
    if refusal is not None:
        raise ConfigurationError(f"{name_of(function)} {refusal}")
    if inspect.iscoroutinefunction(resource):
        raise ConfigurationError(
            f"resource of {name_of(function)}: a coroutine function; give a plain one"
        )
    return is_of(inspect.iscoroutinefunction, function)


def is_of(kind: Callable[[object], bool], function: Any) -> bool:
    """Return whether a function, or the call of an object, is of a kind.

    Wrappers of the standard library are looked through: none of them runs a generator
    or a coroutine. Of another wrapper nobody knows.
    """
    while not (kind(function) or kind(type(function).__call__)):
        made_in = getattr(function, "__globals__", {}).get("__name__")
        if made_in is None:  # partial and lru_cache are classes
            made_in = type(function).__module__
        name = "func" if isinstance(function, partial) else "__wrapped__"
        inner = getattr(function, name, None)
        if made_in not in ("contextlib", "functools") or inner is None:
            return False
        function = inner
    return True


def name_methods(owner: type, name: str) -> None:
    """Let the methods of a base have the name of the class that its users know."""
    for method in vars(owner).values():
        if isinstance(method, FunctionType):
            method.__qualname__ = f"{name}.{method.__name__}"


def name_of(function: object) -> str:
    name = getattr(function, "__qualname__", None)
    return f"{name}()" if isinstance(name, str) else repr(function)


def check_result(function: object, result: object, is_awaited: bool = False) -> None:
    """Raise ConfigurationError for a result whose body would run without the lock."""
    if later := closed_later(result, is_awaited):
        what, remedy = later
        raise ConfigurationError(
            f"{name_of(function)} returned {what}: {OUTSIDE}; {remedy}"
        )


def closed_later(result: Any, is_awaited: bool = False) -> tuple[str, str] | None:
    """Close a result that runs later, so that nobody can; return its row of LATER."""
    # By its class: `isinstance` asks lazy objects of others, which then do their work.
    kind = next((each for each in KINDS if issubclass(type(result), each)), None)
    if kind is None:
        return None
    if kind is Awaitable:
        if hasattr(result, "cancel"):  # a task or a future
            result.cancel()
        elif is_awaited:  # a pool or a client, which was awaited when it was made
            return None
    elif hasattr(result, "close"):
        result.close()
    elif hasattr(result, "gen"):  # of a context manager
        closed_later(result.gen)
    else:  # an async generator; not begun, it is closed by the first step of this
        next(result.aclose().__await__(), None)
    return LATER[kind]
