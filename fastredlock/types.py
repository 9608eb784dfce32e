"""The types of public signatures, for annotations of your own.

Nothing here is needed to take a lock, and `import fastredlock` does not load it.
"""

from __future__ import annotations

from collections.abc import Callable

from ._core import MasterState
from ._locking.awaitable import AwaitableRate, Campaign
from ._locking.blocking import Lease, Lock, Lost
from ._locking.slots import Permit, Rate
from ._options.masters import (
    CredentialProvider,
    Credentials,
    Login,
    Master,
    RedisClient,
)
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


#: Called once where a lease that is kept is lost.
OnLost = Callable[[Lease, LeaseLostError], object]
