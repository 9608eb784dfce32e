"""Refuse at once what users set or override, and what would not be run here."""

from __future__ import annotations

from typing import Any, ClassVar


class Refusing:
    """The base of what users subclass: nothing that they change is ignored in silence.

    `_NOT_RUN`: names of the library that are not called or read here, so that nobody
    may set or override them. `_READ_ONCE`: those that are read when an object is made,
    and may not be set afterwards: a TypeError. What is not concerned is set as
    fast as ever: each such name is a descriptor of its own.
    """

    __slots__ = ()

    _NOT_RUN: ClassVar[frozenset[str]] = frozenset()
    _READ_ONCE: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.split(".")[0] != "fastredlock":
            for name in sorted(cls._NOT_RUN & vars(cls).keys()):
                raise refused(cls, name)
            return
        for name in cls._NOT_RUN.difference(dir(cls)):
            setattr(cls, name, _NotRun(name))
        for name in cls._READ_ONCE.difference(dir(cls)):
            setattr(cls, name, _ReadOnce(name))


class _NotRun:
    """An attribute that is not there, and cannot be set."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: object, cls: type) -> Any:
        raise AttributeError(f"{cls.__qualname__} has no {self._name}")

    def __set__(self, owner: object, value: object) -> None:
        raise refused(type(owner), self._name)


class _ReadOnce:
    """An attribute that is set once. Without `__get__` it is read as any other."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __set__(self, owner: object, value: object) -> None:
        if self._name in vars(owner):
            raise refused(type(owner), self._name)
        vars(owner)[self._name] = value


def refused(cls: type, name: str) -> TypeError:
    """Return the error of an attribute that was set or overridden in vain."""
    return TypeError(
        f"{cls.__qualname__}.{name} cannot be changed: it would not be run or read "
        "(see the page of this library in docs/migration)"
    )
