"""The arguments of a constructor as it was called: an unknown one is named as its."""

from __future__ import annotations

from typing import Any

from .settings import Settings

OF_CALLS = ("timeout", "keep_alive", "on_lost")


def settings_of_call(
    kind: str, given: tuple[Any, ...], options: dict[str, Any]
) -> Settings:
    """Return the checked settings of a call of this class's constructor.

    Raises TypeError, in the constructor's name, for arguments that it does not have.
    """
    try:
        return Settings(*given, **options)
    except TypeError as error:
        trace = error.__traceback__
        if trace is None or trace.tb_next is not None:
            raise  # of an iterable or a function that was given
        text = str(error).partition(". Did you mean")[0]  # CPython's, from 3.13 on
    raise TypeError(text.replace("Settings", kind, 1) + advice(options))


def advice(options: dict[str, Any]) -> str:
    """Return what may have been meant by the first unknown option."""
    known = Settings.__init__.__annotations__
    unknown = next((name for name in options if name not in known), "")
    if unknown in OF_CALLS:
        return f": {unknown} is given to acquire() and lock()"
    from difflib import get_close_matches  # for a mistake alone

    near = get_close_matches(unknown, known, 1)
    return f". Did you mean {near[0]!r}?" if near else ""
