"""Half a second of each case of the fuzzer that raises at calls that may run Python."""

from __future__ import annotations

import re
from pathlib import Path
from subprocess import CalledProcessError

import pytest

from tests.support.generated import is_current

from .raising import CASES, build, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_current(), reason="no C file of these sources"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("raising")
    build(built)
    return built


@pytest.mark.parametrize("case", CASES)
def test_callers_when_any_call_raises_then_all_end_in_time(
    folder: Path, case: str
) -> None:
    try:
        said = run(folder, case, seconds=0.5, seed=1)
    except CalledProcessError as error:
        pytest.fail(error.stdout)
    found = re.search(r"^(\d+) raised in \S", said, re.MULTILINE)  # behind log lines
    assert found
    assert int(found[1]) > 0
