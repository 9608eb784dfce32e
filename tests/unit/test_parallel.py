"""When a run of pytest is distributed by itself, and that its workers start none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import parallel
from tests.support.parallel import WORKERS

pytest_plugins = ("pytester",)

# Each process of pytest leaves its name; where too many do, it ends at once: workers
# that start workers would otherwise not end.
CONFTEST = """
import os
from pathlib import Path
from tests.support.parallel import pytest_cmdline_main

def pytest_configure(config):
    names = Path(__file__).parent / "processes"
    names.mkdir(exist_ok=True)
    (names / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}").touch()
    if len(list(names.iterdir())) > 20:
        os._exit(1)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(40))
def test_it(number):
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a suite of forty tests, named by `testpaths`."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):  # of this very run
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeini("[pytest]\ntestpaths = tests")
    folder = pytester.mkdir("tests")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    return folder


@pytest.mark.slow
def test_whole_suite_when_nothing_is_asked_for_then_each_worker_is_one_process(
    suite: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others' take seconds
    options = ("-p", "xdist", "-p", "no:cacheprovider")
    outcome = pytester.runpytest_subprocess(*options, timeout=60)
    outcome.assert_outcomes(passed=40)
    names = sorted(each.name.split("-")[0] for each in (suite / "processes").iterdir())
    assert names == [*(f"gw{i}" for i in range(WORKERS)), "main"]


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
def test_whole_suite_is_distributed_and_what_asks_for_something_else_is_left_alone(
    suite: Path, pytester: pytest.Pytester, arguments: str, workers: int | None
) -> None:
    assert numprocesses(pytester, *arguments.split()) == workers


def test_worker_starts_no_workers(
    suite: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert numprocesses(pytester) is None


def numprocesses(pytester: pytest.Pytester, *arguments: str) -> int | None:
    """Return how many workers our hook asks for, None if it does nothing."""
    config = pytester.parseconfig(*arguments)
    parallel.pytest_cmdline_main(config)
    return getattr(config.option, "numprocesses", None)
