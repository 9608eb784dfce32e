"""When a run of pytest is distributed by itself, and that its workers start none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import parallel, stolen_time
from tests.support.parallel import WORKERS
from tests.support.stolen_time import Taken

pytest_plugins = ("pytester",)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a suite whose folder is named by `testpaths`."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):  # of this very run
        monkeypatch.delenv(name, raising=False)
    pytester.makeini("[pytest]\ntestpaths = tests")
    (pytester.mkdir("tests") / "test_it.py").touch()


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        *((each, WORKERS) for each in ("", "-k it", "-x", "--maxfail=3")),
        *((each, None) for each in ("tests/test_it.py", "tests", "--collect-only")),
        *((each, None) for each in ("--pdb", "--trace", "--benchmark-only", "-d")),
        *((each, None) for each in ("--dist=no", "--dist load", "--tx popen")),
        *(("-p no:xdist", None), ("-n0", 0), ("-n1", 1)),
    ],
)
@pytest.mark.usefixtures("suite")
def test_whole_suite_is_distributed_and_what_asks_for_something_else_is_left_alone(
    pytester: pytest.Pytester, arguments: str, workers: int | None
) -> None:
    config = pytester.parseconfig(*arguments.split())
    parallel.pytest_cmdline_main(config)
    assert getattr(config.option, "numprocesses", None) == workers


@pytest.mark.usefixtures("suite")
def test_worker_of_the_whole_suite_starts_no_workers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    config = pytester.parseconfig()
    parallel.pytest_cmdline_main(config)
    assert config.option.numprocesses is None


# --- when a failed test is run again, and that none is which fails by itself


HOOKS = """
from tests.support.stolen_time import (
    pytest_report_teststatus, pytest_runtest_makereport, pytest_runtest_protocol,
    pytest_terminal_summary,
)
"""
# Every test of these begins with this: `run` counts its runs, `steal` lets time pass.
BEGINNING = """
import os
from pathlib import Path
import pytest

def run():
    with open("runs", "a") as runs:
        runs.write("x")
    return len(Path("runs").read_text())

def steal(ticks):
    stat = Path("stat")
    stolen = int(stat.read_text().split()[8]) + ticks
    stat.write_text(f"cpu 0 0 0 0 0 0 0 {stolen} 0 0")

def wait(ms, who="self/task/1"):
    Path(who, "schedstat").write_text(f"5 {ms * 1_000_000} 1")
"""


@pytest.fixture
def stat(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put files in the place of /proc: nothing is taken away but by the test."""
    path, task = pytester.path / "stat", pytester.path / "self" / "task" / "1"
    path.write_text("cpu 0 0 0 0 0 0 0 7 0 0")
    for thread in (task, pytester.path / "2"):
        thread.mkdir(parents=True)
        (thread / "schedstat").write_text("5 0 1")
    (task / "children").write_text("2 3 ")  # the third has just ended
    monkeypatch.setattr(stolen_time, "PROC", pytester.path)
    monkeypatch.setattr(stolen_time, "_TICKS_PER_S", 100)
    monkeypatch.setattr(stolen_time, "MOST_REPEATS", 2)
    pytester.makeconftest(HOOKS)
    return path


# --- pure -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stolen", "waited", "took", "taken"),
    [(60, 0, 9000, 60), (0, 60, 300, 60), (0, 60, 301, 0), (9, 60, 100, 69)],
)
def test_wait_for_the_cpu_counts_if_it_was_a_fifth_of_the_time(
    stolen: float, waited: float, took: float, taken: float
) -> None:
    server, other = Path("7"), Path("8")
    begun = Taken(100.0, {server: 1000.0, other: 3.0}, 5.0)
    waits = {server: 1000.0 + waited, other: 5.0}
    assert begun.until(Taken(100.0 + stolen, waits, 5.0 + took)) == taken


# --- pytest itself --------------------------------------------------------------------


SLOW_ONCE = """
def test_it(tmp_path):
    if run() == 1:
        steal(12)
        assert "slow" == "quick"
"""
WAITED_ONCE = """
def test_it():
    if run() == 1:
        wait(500_000)
        assert False
"""
SERVER_WAITED_ONCE = WAITED_ONCE.replace("500_000", "500_000, '2'")
ALWAYS = """
def test_it():
    run()
    steal(6)
    assert False
"""
ONCE_IN_TEN = """
@pytest.mark.parametrize("number", range(10))
def test_it(number):
    steal(5)
    assert run() != 7
"""
THEIR_BUG = """
@pytest.mark.xfail(strict=True, reason="their bug")
def test_it():
    run()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("stat")
@pytest.mark.parametrize(
    ("test", "outcomes", "runs", "reruns"),
    [
        (SLOW_ONCE, {"passed": 1}, 2, 1),
        (WAITED_ONCE, {"passed": 1}, 2, 1),
        (SERVER_WAITED_ONCE, {"passed": 1}, 2, 1),
        (ALWAYS, {"failed": 1}, 3, 2),
        (ONCE_IN_TEN, {"passed": 9, "failed": 1}, 10, 0),
        (THEIR_BUG, {"failed": 1}, 1, 0),
    ],
    ids=("stolen", "waited", "a server waited", "always", "by chance", "no bug"),
)
def test_test_when_it_fails_then_is_run_again_only_if_time_was_taken_away(
    pytester: pytest.Pytester,
    test: str,
    outcomes: dict[str, int],
    runs: int,
    reruns: int,
) -> None:
    pytester.makepyfile(test_it=BEGINNING + test)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    said = result.parseoutcomes()
    said.pop("warnings", None)  # of a plugin that is here
    assert said.pop("rerun", 0) == reruns  # in pytest's last line
    assert (said, len(Path("runs").read_text())) == (outcomes, runs)
    assert result.ret == ("failed" in outcomes)
    if test is SLOW_ONCE:
        result.stdout.fnmatch_lines(["*::test_it, 120 ms taken away: *'slow'*"])
