"""The types that stand in public signatures, for annotations of your own.

Nothing here is needed to take a lock, and `import fastredlock` does not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ._core import MasterState
from ._locking.blocking import Lease, Lock
from ._locking.keeping.lost import Lost
from ._locking.leading import Campaign
from ._locking.slots import AwaitableRate, Permit, Rate
from ._reports.votes import Resource
from .errors import LeaseLostError

__all__ = [
    "AwaitableRate",
    "Campaign",
    "CredentialProvider",
    "Credentials",
    "Lock",
    "Login",
    "Lost",
    "Master",
    "MasterState",
    "OnLost",
    "Permit",
    "Rate",
    "RedisClient",
    "Resource",
]


class CredentialProvider(Protocol):
    """A provider of redis-py."""

    def get_credentials(self) -> Any:
        """Return the password, or user name and password."""


class RedisClient(Protocol):
    """A client of redis-py, blocking or awaitable; its settings are copied."""

    @property
    def connection_pool(self) -> Any:
        """The pool, which has the settings."""


#: One of `masters`: a URL, (host, port), redis-py's keyword arguments, or its client.
Master = str | tuple[str, int] | Mapping[str, Any] | RedisClient

#: What `credentials` gives: the password, or the user name (or None) and the password.
Login = str | bytes | tuple[str | bytes] | tuple[str | bytes | None, str | bytes]
Credentials = Callable[[], Login] | CredentialProvider

#: Called once where a lease that is kept is lost.
OnLost = Callable[[Lease, LeaseLostError], object]
