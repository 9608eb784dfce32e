"""Settings of three masters that no test connects to."""

from collections.abc import Iterable
from typing import Any

from fastredlock import Retry
from fastredlock._options.settings import Settings

MASTERS = ["redis://a", "redis://b", "redis://c"]


def new_settings(masters: Iterable[Any] = MASTERS, **options: Any) -> Settings:
    defaults: dict[str, Any] = {
        "resource": "r",
        "ttl": 10.0,
        "retry": Retry(),
        "drift_factor": 0.01,
        "round_timeout": None,
        "connect_timeout": 1.0,
        "max_ttl": None,
        "new_token": None,
    }
    return Settings(masters, **(defaults | options))
