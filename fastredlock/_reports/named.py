"""Named tuples as `typing.NamedTuple` makes them, without the import of typing.

Checkers know `typing.NamedTuple` alone, and it would take a third of our import. So a
report is written as a subclass of it, and at run time this replaces it.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from typing import Any

    make: Any
make = namedtuple  # a name of its own: checkers know the other as a statement


class Fields(type):
    """Turn the annotations of a class into the fields of a named tuple."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any]
    ) -> Fields:
        if not bases:
            return super().__new__(cls, name, bases, body)
        fields = body["__annotations__"]
        defaults = [body.pop(field) for field in fields if field in body]
        made: Any = make(name, fields, defaults=defaults)
        for key, value in body.items():
            setattr(made, key, value)
        return made  # type: ignore[no-any-return]


class NamedTuple(metaclass=Fields):
    """The base of a report; see `typing.NamedTuple`."""
