"""Old and new processes of each library, on one key: a fleet that is half migrated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.redis.face import OURS, OURS_ASYNCIO, THEIRS, THEIRS_ASYNCIO
from tests.support.keys import KEY
from tests.support.two_libraries import load, other_process

COMPAT = "fastredlock.compat."
PAIRS = {
    "aioredlock": ("aioredlock", f"{COMPAT}aioredlock"),
    "pottery": ("pottery", f"{COMPAT}pottery"),
    "pottery-asyncio": ("pottery", f"{COMPAT}pottery"),
    "asyncio": (THEIRS_ASYNCIO, OURS_ASYNCIO),
    "redis-lock": ("redis_lock", f"{COMPAT}redis_lock"),
    "redis-py": (THEIRS, OURS),
    "redlock-py": ("redlock", f"{COMPAT}redlock"),
}
POLLING = "aioredlock", "redlock-py"  # so many tries, and no wait


def load_all(kind: str) -> None:
    """Import what processes of this kind need, or skip the test."""
    needed = ["fastredlock.asyncio"] if kind.endswith("asyncio") else []
    for module in (*PAIRS[kind], *needed):
        load(module)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAIRS)
def test_old_and_new_process_when_they_share_a_lock_then_take_turns_and_lose_no_update(
    kind: str, urls: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "counter"
    path.write_text("0")
    load_all(kind)
    theirs, ours = PAIRS[kind]
    with (
        other_process(kind, theirs, KEY, urls) as old,
        other_process(kind, ours, KEY, urls) as new,
    ):
        for one, other in ((old, new), (new, old)):
            assert [one.say("take"), other.say("take")] == ["True", "False"]
            if kind not in POLLING:
                other.tell("wait")
            assert one.say("release") == "None"
            answer = other.answer() if kind not in POLLING else other.say("take")
            assert [answer, other.say("release")] == ["True", "None"]
        for process in (old, new):
            process.tell(f"count {path} 8")
        assert [old.answer(), new.answer()] == ["None", "None"]
    assert path.read_text() == "16"
