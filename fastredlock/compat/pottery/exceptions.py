"""The errors of pottery's locks, under its names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(eq=False)
class PrimitiveError(Exception):
    """Name which lock on which masters; `redis_errors`: one error per failed master."""

    key: str
    masters: Iterable[object] = field(repr=False)  # URLs may hold passwords
    redis_errors: Iterable[Exception] = ()

    _reason: ClassVar[str] = "error"

    def __str__(self) -> str:
        return "; ".join([f"{self.key}: {self._reason}", *map(str, self.redis_errors)])


class QuorumNotAchieved(PrimitiveError, RuntimeError):  # noqa: N818 - its name
    """Report that others hold the lock."""

    _reason = "held by others"


class TooManyExtensions(PrimitiveError, RuntimeError):  # noqa: N818 - its name
    """Report that the lock was extended `num_extensions` times already."""

    _reason = "extended too many times"


class ExtendUnlockedLock(PrimitiveError, RuntimeError):  # noqa: N818 - its name
    """Report that a majority has the lock no more, or did not answer in time."""

    _reason = "not extended"


class ReleaseUnlockedLock(PrimitiveError, RuntimeError):  # noqa: N818 - its name
    """Report that a majority had the lock no more, or could not be asked."""

    _reason = "not released"


class QuorumIsImpossible(PrimitiveError, RuntimeError):  # noqa: N818 - its name
    """Report that a majority of the masters failed."""

    _reason = "a majority of the masters failed"
