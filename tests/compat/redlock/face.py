"""redlock-py and what replaces it."""

from __future__ import annotations

from typing import Any

from tests.compat import face

PAIR = ("redlock", "fastredlock.compat.redlock")
TTL = 10_000  # ms


class Face(face.Face):
    def manager(self, *options: Any, **named: Any) -> Any:
        return self.Redlock(self.urls, *options, **named)

    def sets(self) -> int:
        stats: dict[str, Any] = self.server.info("commandstats")
        return int(stats.get("cmdstat_set", {}).get("calls", 0))
