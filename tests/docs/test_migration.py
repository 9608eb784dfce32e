"""The lines that README's "Coming from …" says to change, run as they stand."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import redis

from .helpers import KEY, load

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
TABLES = README.partition("## Coming from …")[2].partition("\n## ")[0]
IMPORTS = re.findall(r"`(from fastredlock\.compat\S+ import \w+)`", TABLES)
BACKEND = re.search(r'BACKEND = "(.*?)"', TABLES)
LIBRARIES = {"redlock", "pottery", "aioredlock", "redis", "redis_lock"}


def test_every_library_has_its_table_and_import() -> None:
    modules = {line.split()[1].removeprefix("fastredlock.compat.") for line in IMPORTS}
    assert modules == LIBRARIES
    assert "`fastredlock.compat.redis.asyncio`" in TABLES
    assert TABLES.count("\n| change |") == TABLES.count("\n| differs |") == 5


@pytest.mark.parametrize("line", IMPORTS)
def test_import_runs(line: str) -> None:
    exec(line, {})


def test_backend_of_django_is_a_class() -> None:
    load("django_redis")
    assert BACKEND is not None
    module, _, name = BACKEND[1].rpartition(".")
    assert isinstance(getattr(import_module(module), name), type)


def test_lock_of_redis_py_with_the_line_changed_holds(servers: list[Any]) -> None:
    names = {"client": servers[0]}
    changed = re.search(r"→ `(client\.lock\(.*?\))`", TABLES)
    assert changed is not None
    exec("from fastredlock.compat.redis import Lock", names)
    with eval(changed[1], names):
        assert servers[0].exists(KEY)
    assert not servers[0].exists(KEY)


def test_lock_of_a_list_of_clients_holds_on_all(servers: list[redis.Redis]) -> None:
    names: dict[str, Any] = dict(
        zip(("client_a", "client_b", "client_c"), servers, strict=False)
    )
    line = re.search(r"`(Lock\(\[client_a.*?\))`", TABLES)
    assert line is not None
    exec("from fastredlock.compat.redis import Lock", names)
    with eval(line[1], names) as lock:
        assert lock.owned()
