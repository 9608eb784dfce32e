"""The folders of the core: a function's name tells where it stands."""

import re
from pathlib import Path

import pytest

from tools.house import Core

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src_cython"
FILES = sorted(
    path.relative_to(SOURCE).as_posix()
    for path in SOURCE.rglob("*.pyx")
    if path.name != "_core.pyx"
)
FUNCTION = re.compile(r"^(?:cdef|def|async def) (?:[\w.]+ )*?\**(\w+)\(", re.MULTILINE)
ENUM = re.compile(r"^cdef enum\b.*:\n((?: .*\n|\n(?= ))+)", re.MULTILINE)
VALUE = re.compile(r"^ +(\w+) = ([\d_x<+ ]+)", re.MULTILINE)


def read(file: str) -> str:
    return (SOURCE / file).read_text()


def code_of(file: str) -> str:
    text = re.sub(r'""".*?"""', "", read(file), flags=re.DOTALL)
    return re.sub(r"#.*", "", text)


def homes(function: str) -> list[str]:
    """List the files in which a function of this name may stand; none: in any."""
    word = function.split("_")[0]
    return [file for file in FILES if word in (Path(file).parent.name, stem(file))]


def stem(file: str) -> str:
    return Path(file).stem.split("_")[0]


@pytest.mark.parametrize("file", FILES)
def test_function_stands_in_the_folder_or_the_file_of_its_first_word(file: str) -> None:
    for function in FUNCTION.findall(read(file)):
        assert file in (homes(function) or [file]), function


def included() -> list[str]:
    return re.findall(r'^include "([\w/]+\.pyx)"', read("_core.pyx"), re.MULTILINE)


def test_table_of_contents_has_every_file_once() -> None:
    assert sorted(included()) == FILES


def test_file_of_the_core_calls_no_function_that_is_defined_further_down() -> None:
    assert Core(ROOT).upward() == []


def test_files_of_the_core_when_they_call_each_other_then_not_in_a_circle() -> None:
    assert Core(ROOT).circles() == []


def test_every_folder_of_tests_is_run(pytestconfig: pytest.Config) -> None:
    given = {ROOT / path for path in pytestconfig.getini("testpaths")}
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert [path for path in folders if given.isdisjoint({path, *path.parents})] == []


def test_values_of_an_enum_fit_into_an_int() -> None:
    """A larger one makes its whole enum unsigned, and negative times compare as huge.

    Of some compilers, not of all: clang says so, gcc is silent.
    """
    values = [
        (file, name, eval(value))
        for file in FILES
        for body in ENUM.findall(code_of(file))
        for name, value in VALUE.findall(body)
    ]
    assert len(values) > 80
    assert [value for value in values if value[2] >= 2**31] == []
