"""Distributed locks over independent Redis masters (Redlock), fast and strict.

from fastredlock import FastRedlock

locks = FastRedlock(["redis://a:6379", "redis://b:6379", "redis://c:6379"])
with locks.lock("orders:42", ttl=5, timeout=2) as lease:
    ...  # at most one holder, as long as lease.is_valid
"""

try:
    from ._core import Vote
except ImportError as _error:
    if "interpreter" in str(_error):  # a sub-interpreter's import
        _text = (
            "fastredlock can be imported by the main interpreter of a process alone: "
            "give each site or plugin a process (mod_wsgi: a WSGIDaemonProcess for each"
            ", and WSGIApplicationGroup %{GLOBAL})"
        )
        raise ImportError(_text, name=_error.name) from _error
    if isinstance(_error, ModuleNotFoundError) and _error.name == "fastredlock._core":
        # The source folder came first.
        _text = "fastredlock is not built here: pip install -e . (or leave its folder)"
        raise ModuleNotFoundError(_text, name=_error.name) from None
    raise
from ._locking.blocking import Lease
from ._locking.lease import ReleaseStatus
from ._options.retry import Retry
from ._options.settings import NO_EXPIRY
from ._reports.health import MasterHealth
from ._reports.stats import MasterStats, OperationStats, Stats
from ._reports.votes import MasterVote
from .client import FastRedlock
from .errors import (
    AcquireError,
    ConfigurationError,
    FastRedlockError,
    ForeignKeyError,
    InternalError,
    LeaseLostError,
    NotExtendedError,
    QuorumUnreachableError,
    ReentryError,
    ResourceTakenError,
    TokenReusedError,
    ValidityExhaustedError,
)

__version__ = "0.1.0"

__all__ = [
    "NO_EXPIRY",
    "AcquireError",
    "ConfigurationError",
    "FastRedlock",
    "FastRedlockError",
    "ForeignKeyError",
    "InternalError",
    "Lease",
    "LeaseLostError",
    "MasterHealth",
    "MasterStats",
    "MasterVote",
    "NotExtendedError",
    "OperationStats",
    "QuorumUnreachableError",
    "ReentryError",
    "ReleaseStatus",
    "ResourceTakenError",
    "Retry",
    "Stats",
    "TokenReusedError",
    "ValidityExhaustedError",
    "Vote",
    "__version__",
]
