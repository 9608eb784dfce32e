"""How aioredlock shows a connection."""

from __future__ import annotations

from typing import Any

from ._connections import without_password


def clean_password(details: Any, cast: Any = str) -> Any:
    """Return a connection, or a list of them, without the passwords; cast by `cast`."""
    if isinstance(details, list):
        return cast([clean_password(each, cast=type(each)) for each in details])
    return cast(without_password(details))
