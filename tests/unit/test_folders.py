"""The files of the core: a function's name tells in which one it stands."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tools import house
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
LONGEST = 900  # lines
VALUE = re.compile(r"^ +(\w+) = ([\d_x<+ ]+)", re.MULTILINE)


def read(file: str) -> str:
    return (SOURCE / file).read_text()


def code_of(file: str) -> str:
    text = re.sub(r'""".*?"""', "", read(file), flags=re.DOTALL)
    return re.sub(r"#.*", "", text)


def prefixes() -> dict[str, list[str]]:
    """Read which prefixes the table of files in docs/design.md gives to each."""
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w/]+\.pyx)` \|.*\| ([\w, ]*)\|$", text, re.MULTILINE)
    return {file: words.replace(",", " ").split() for file, words in rows}


PREFIXES = prefixes()


@pytest.mark.parametrize("file", FILES)
def test_function_with_a_prefix_of_the_table_stands_in_a_file_that_has_it(
    file: str,
) -> None:
    known = {prefix for prefixes in PREFIXES.values() for prefix in prefixes}
    functions = FUNCTION.findall(read(file))
    found = {
        prefix
        for prefix in known
        if any(f"{function}_".startswith(f"{prefix}_") for function in functions)
    }
    assert found == {*PREFIXES[file]}


@pytest.mark.parametrize("file", FILES)
def test_file_of_the_core_is_read_in_one_go(file: str) -> None:
    assert len(read(file).splitlines()) <= LONGEST


def included() -> list[str]:
    return re.findall(r'^include "([\w/]+\.pyx)"', read("_core.pyx"), re.MULTILINE)


def test_tables_of_contents_have_every_file_once() -> None:
    assert sorted(included()) == FILES
    assert [*PREFIXES] == included()


def test_file_of_the_core_calls_no_function_that_is_defined_further_down() -> None:
    assert Core(ROOT).upward() == []


def test_files_of_the_core_when_they_call_each_other_then_not_in_a_circle() -> None:
    assert Core(ROOT).circles() == []


@pytest.mark.parametrize("is_planted", [False, True])
def test_house_when_a_call_upward_is_planted_then_it_ends_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_planted: bool
) -> None:
    """And with a circle, for that file calls the first one in some way."""
    shutil.copytree(SOURCE, tmp_path / "src_cython")
    core = Core(ROOT)
    last = next(name for name, home in core.home.items() if home == core.files[-1])
    if is_planted:
        with (tmp_path / "src_cython" / core.files[0]).open("a") as first:
            first.write(f"\n\ncdef object planted():\n    return {last}()\n")
    monkeypatch.setattr(sys, "argv", ["house", "--tree", str(tmp_path)])
    assert house.main() == is_planted


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
