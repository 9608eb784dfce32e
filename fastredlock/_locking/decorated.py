"""Functions that a lock decorates: the body has to run between enter and exit."""

from __future__ import annotations

from ..errors import ConfigurationError

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable

OUTSIDE = "its body would run without the lock"


def check_decorated(function: object, resource: object, *, is_awaited: bool) -> None:
    """Raise ConfigurationError where a call would not hold the lock for its body."""
    refusal = refusal_of(function, is_awaited)
    if refusal is not None:
        raise ConfigurationError(f"{name_of(function)} {refusal}")
    import inspect  # 10 ms where nothing else has

    if inspect.iscoroutinefunction(resource):
        raise ConfigurationError(
            f"resource of {name_of(function)}: a coroutine function; give a plain one"
        )


def refusal_of(function: object, is_awaited: bool) -> str | None:
    """Return why a lock cannot be held for the calls of it, None where it can."""
    import inspect

    if isinstance(function, classmethod | staticmethod | property):
        return f"is a {type(function).__name__}: put that above the lock"
    if isinstance(function, type) or not callable(function):
        return (
            "is no function: a lock decorates functions, methods and coroutine "
            "functions, as @locks.lock(...), with its parentheses"
        )
    if is_of(inspect.isgeneratorfunction, function):
        return f"is a generator: {OUTSIDE}; put `with locks.lock(...)` into it"
    if is_of(inspect.isasyncgenfunction, function):
        return f"is a generator: {OUTSIDE}; put `async with locks.lock(...)` into it"
    is_coroutine = is_of(inspect.iscoroutinefunction, function)
    if is_coroutine and not is_awaited:
        return (
            f"is a coroutine function: {OUTSIDE}; use fastredlock.asyncio.FastRedlock"
        )
    if is_awaited and not is_coroutine:
        return (
            "is no coroutine function: use fastredlock.FastRedlock, or make it one "
            "(async def)"
        )
    return None


def is_of(kind: Callable[[object], bool], function: object) -> bool:
    """Return whether a function, or the call of an object, is of a kind."""
    return kind(function) or kind(type(function).__call__)


def name_of(function: object) -> str:
    """Return a function's name, for a message."""
    name = getattr(function, "__qualname__", None)
    return f"{name}()" if isinstance(name, str) else repr(function)
