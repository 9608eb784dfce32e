"""Functions that a lock decorates: the body has to run between enter and exit."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConfigurationError

OUTSIDE = "its body would run without the lock"


def check_function(function: object, resource: object) -> None:
    """Raise ConfigurationError where a call would not hold a blocking lock."""
    import inspect  # 10 ms where nothing else has

    check_decorated(function, resource)
    if is_of(inspect.iscoroutinefunction, function):
        raise ConfigurationError(
            f"{name_of(function)} is a coroutine function: {OUTSIDE}; use "
            "fastredlock.asyncio.FastRedlock"
        )


def check_coroutine_function(function: object, resource: object) -> None:
    """Raise ConfigurationError where a call would not hold an awaitable lock."""
    import inspect

    check_decorated(function, resource)
    if not is_of(inspect.iscoroutinefunction, function):
        raise ConfigurationError(
            f"{name_of(function)} is no coroutine function: use "
            "fastredlock.FastRedlock, or make it one (async def)"
        )


def check_decorated(function: object, resource: object) -> None:
    """Raise ConfigurationError where no lock could be held for the calls of it."""
    import inspect

    refusal = None
    if isinstance(function, classmethod | staticmethod | property):
        refusal = f"is a {type(function).__name__}: put that above the lock"
    elif isinstance(function, type) or not callable(function):
        refusal = (
            "is no function: a lock decorates functions, methods and coroutine "
            "functions, as @locks.lock(...), with its parentheses"
        )
    elif is_of(inspect.isgeneratorfunction, function):
        refusal = f"is a generator: {OUTSIDE}; put `with locks.lock(...)` into it"
    elif is_of(inspect.isasyncgenfunction, function):
        refusal = f"is a generator: {OUTSIDE}; put `async with locks.lock(...)` into it"
    if refusal is not None:
        raise ConfigurationError(f"{name_of(function)} {refusal}")
    if inspect.iscoroutinefunction(resource):
        raise ConfigurationError(
            f"resource of {name_of(function)}: a coroutine function; give a plain one"
        )


def is_of(kind: Callable[[object], bool], function: object) -> bool:
    """Return whether a function, or the call of an object, is of a kind."""
    return kind(function) or kind(type(function).__call__)


def name_of(function: object) -> str:
    """Return a function's name, for a message."""
    name = getattr(function, "__qualname__", None)
    return f"{name}()" if isinstance(name, str) else repr(function)
