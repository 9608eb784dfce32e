"""pottery's Redlock and AIORedlock, theirs and ours, behind one blocking face."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tests.compat.face import LoopFace
from tests.support.keys import KEY

THEIRS, OURS = "pottery", "fastredlock.compat.pottery"
THEIRS_ASYNCIO, OURS_ASYNCIO = f"{THEIRS}-asyncio", f"{OURS}-asyncio"
UUID = rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class Face(LoopFace):
    key = f"redlock:{KEY}"

    @property
    def kind(self) -> str:
        return "AIORedlock" if self.is_awaited else "Redlock"

    @cached_property
    def masters(self) -> Any:
        return set(self.clients)

    def lock(self, key: str = KEY, **options: Any) -> Any:
        """Make a Redlock, or an AIORedlock that is driven by the loop."""
        options.setdefault("masters", self.masters)
        return self.usable(getattr(self.module, self.kind)(key=key, **options))
