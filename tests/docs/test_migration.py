"""The lines that docs/migration says to change, run as they stand."""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import redis

from .documents import ROOT, blocks, name_of

FOLDER = ROOT / "docs" / "migration"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})
LIBRARIES = {"redlock", "pottery", "aioredlock", "redis", "redis_lock"}


def changes(page: Path, sign: str) -> list[str]:
    """List the lines that a page takes out ("-") or puts in ("+")."""
    lines = "".join(blocks(page, "diff")).splitlines()
    return [line[1:] for line in lines if line.startswith(sign)]


IMPORTS = [
    pytest.param(line, id=f"{page.stem}: {line}")
    for page in PAGES
    for line in changes(page, "-") + changes(page, "+")
    if line.startswith("from ")
]


def test_every_library_has_its_page() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    modules = set(re.findall(r"from fastredlock\.compat\.(\w+)[\w.]* import", text))
    assert modules == LIBRARIES
    assert {page.name for page in PAGES} == set(
        re.findall(r"\]\(([\w-]+\.md)\)", INDEX.read_text("utf-8"))
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_shows_a_change_an_example_and_the_differences(page: Path) -> None:
    text = page.read_text("utf-8")
    assert changes(page, "-")
    assert changes(page, "+")
    assert blocks(page, "python")
    assert "\n## Better\n" in text
    assert "\n## Different\n" in text
    assert name_of(page).startswith("docs/migration/")


@pytest.mark.parametrize("line", IMPORTS)
def test_import_of_the_old_and_of_the_new_line_runs(line: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # distutils, in aioredlock
        exec(line, {})


def test_backend_of_django_is_a_class() -> None:
    conf = pytest.importorskip("django.conf")
    if not conf.settings.configured:
        conf.settings.configure()
    line = changes(FOLDER / "python-redis-lock.md", "+")[-1]
    module, _, name = re.findall(r'"(.*?)"', line)[0].rpartition(".")
    assert isinstance(getattr(import_module(module), name), type)


def test_lock_of_redis_py_with_the_line_changed_holds(servers: list[Any]) -> None:
    names: dict[str, Any] = {"client": servers[0]}
    exec("from fastredlock.compat.redis import Lock", names)
    for line in changes(FOLDER / "redis-py.md", "-") + changes(
        FOLDER / "redis-py.md", "+"
    ):
        with eval(line, names):
            assert servers[0].exists("orders:42")
        assert not servers[0].exists("orders:42")


def test_lock_of_a_list_of_clients_holds_on_all(servers: list[redis.Redis]) -> None:
    names: dict[str, Any] = dict(
        zip(("client_a", "client_b", "client_c"), servers, strict=False)
    )
    text = (FOLDER / "redis-py.md").read_text("utf-8")
    line = re.search(r"Lock\(\[client_a.*?\)", text)
    assert line is not None
    exec("from fastredlock.compat.redis import Lock", names)
    with eval(line[0], names):
        assert [server.exists("orders:42") for server in servers[:3]] == [1, 1, 1]
