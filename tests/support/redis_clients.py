"""Clients of redis-py whose settings a lock cannot copy."""

from __future__ import annotations

from typing import Any

import redis


def cluster() -> Any:
    client = redis.RedisCluster.__new__(redis.RedisCluster)
    client.nodes_manager = None  # type: ignore[assignment]
    return client
