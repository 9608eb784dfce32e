"""The plugin for pytest, in a pytest of its own, beside fixtures of its user's."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from fastredlock.testing import LocalMasters
from tests.docs.documents import blocks

ROOT = Path(__file__).parents[2]
NAME = "pytest_fastredlock"
MODULE_HEAD = """
from fastredlock import FastRedlock

locks = FastRedlock(["redis://127.0.0.1:1"])

@locks.lock("r", timeout=0)
def work():
    return locks.holders("r")[0].remaining_ms

def test_first_leaves_a_lock(redlock_memory):
    assert work() == 10_000
    assert locks.acquire("r").token  # shown: it is left on purpose

def test_second_finds_none_and_moves_the_clock(redlock_memory):
    lease = locks.acquire("r", timeout=0)
    redlock_memory.advance(10)
    assert not lease.is_valid
"""
USER = """
import pytest
from fastredlock import ReleaseStatus

def test_first_leaves_a_lock_and_dead_masters(redlock, redlock_masters):
    assert redlock.acquire("r", ttl=60).token  # shown: it is left on purpose
    redlock_masters.pause(0)
    redlock_masters.stop(1)

def test_second_finds_them_empty_and_running(redlock, redlock_masters):
    with redlock.lock("r", timeout=0) as lease:
        assert [vote.vote.name for vote in redlock.holders("r")] == ["TAKEN"] * 3

def test_third_is_robbed(redlock, redlock_masters):
    lease = redlock.acquire("r")
    redlock_masters.steal("r")
    assert lease.release() is ReleaseStatus.GONE
"""


def run(folder: Path, code: str) -> str:
    (folder / "test_user.py").write_text(code)
    options = ["-q", "-p", "no:cacheprovider", "-W", "error", "-p", NAME]
    command = [sys.executable, "-m", "pytest", *options, "test_user.py"]
    # The plugins of others take seconds to load.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    told = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return told.stdout + told.stderr


def test_fixtures_when_a_test_breaks_the_masters_then_the_next_has_them_whole(
    tmp_path: Path,
) -> None:
    said = run(tmp_path, USER)
    assert "3 passed" in said, said


def test_example_of_the_documents_when_copied_then_passes(tmp_path: Path) -> None:
    page = ROOT / "docs" / "testing.md"
    code = next(each for each in blocks(page, "python") if "redlock_masters" in each)
    said = run(tmp_path, code)
    assert "2 passed" in said, said


def test_decorator_of_a_module_when_imported_as_the_page_says_then_excludes(
    tmp_path: Path,
) -> None:
    code = blocks(ROOT / "docs" / "testing.md", "python")
    (module,) = [each for each in code if "def report() -> str | None" in each]
    (test,) = [each for each in code if "import myprogram.locks" in each]
    (tmp_path / "myprogram").mkdir()
    (tmp_path / "myprogram" / "locks.py").write_text(module)
    said = run(tmp_path, test)
    assert "1 passed" in said, said


def test_fixture_of_memory_when_locks_are_at_a_module_head_then_they_run_in_it(
    tmp_path: Path,
) -> None:
    said = run(tmp_path, MODULE_HEAD)
    assert "2 passed" in said, said


def test_plugin_when_nobody_asks_then_imports_nothing_of_us(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "def test_it():\n"
        f"    assert {NAME!r} in sys.modules\n"
        "    assert 'fastredlock' not in sys.modules\n"
    )
    said = run(tmp_path, code)
    assert "1 passed" in said, said


def test_plugin_is_what_the_package_names_for_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {NAME: NAME}
    assert project["tool"]["setuptools"]["py-modules"] == [NAME]
    assert (ROOT / f"{NAME}.py").exists()


def test_steal_when_a_master_is_stopped_then_the_others_are_robbed() -> None:
    with LocalMasters(2, unix=True) as masters:
        masters.stop(0)
        assert len(masters.steal("r", ttl=1)) == 40
        masters.flush()
