"""Old and new processes of each library, on one key: a fleet that is half migrated."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.compat.redis.face import OURS, OURS_ASYNCIO, THEIRS, THEIRS_ASYNCIO
from tests.support.keys import KEY
from tests.support.library_process import KINDS
from tests.support.two_libraries import (
    assert_exclude_each_other,
    load,
    other_process,
)

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


# Each test goes both ways: what one of them does the other does then.


@pytest.mark.parametrize("kind", PAIRS)
def test_old_and_new_processes_exclude_each_other(kind: str, urls: list[str]) -> None:
    load_all(kind)
    here, there = PAIRS[kind]
    with (
        closing(KINDS[kind](load(here), KEY, urls)) as lock,
        other_process(kind, there, KEY, urls) as other,
    ):
        assert_exclude_each_other(lock, other)


@pytest.mark.parametrize("kind", [kind for kind in PAIRS if kind not in POLLING])
def test_waiter_gets_what_the_other_process_releases(
    kind: str, urls: list[str]
) -> None:
    load_all(kind)
    here, there = PAIRS[kind]
    with (
        closing(KINDS[kind](load(here), KEY, urls)) as lock,
        other_process(kind, there, KEY, urls) as other,
    ):
        assert other.say("take") == "True"
        assert not lock.take()
        other.tell("release")
        assert lock.wait()
        assert other.answer() == "None"
        other.tell("wait")
        lock.release()
        assert other.answer() == "True"


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAIRS)
def test_counter_when_old_and_new_processes_share_it_then_loses_no_update(
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
        for process in (old, new):
            process.tell(f"count {path} 20")
        assert [old.answer(), new.answer()] == ["None", "None"]
    assert path.read_text() == "40"
