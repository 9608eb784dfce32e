"""The lines that docs/migration says to change, run as they stand."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from tests.support.waiting import settled

from .documents import ROOT, blocks, name_of

FOLDER = ROOT / "docs" / "migration"
INDEX = FOLDER / "README.md"
NEEDS = FOLDER / "needs.md"  # of libraries that no module replaces, too
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX, NEEDS})
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
    assert {page.name for page in (*PAGES, NEEDS)} == set(
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


@pytest.fixture
def django() -> None:
    conf = pytest.importorskip("django.conf")
    if not conf.settings.configured:
        conf.settings.configure()


def test_locks_of_redis_py_with_the_line_changed_hold(
    servers: list[redis.Redis],
) -> None:
    page = FOLDER / "redis-py.md"
    names: dict[str, Any] = {"client": servers[0]}
    names |= zip(("client_a", "client_b", "client_c"), servers, strict=False)
    several = re.search(r"Lock\(\[client_a.*?\)", page.read_text("utf-8"))
    assert several is not None  # of a list of clients: on a majority
    exec("from fastredlock.compat.redis import Lock", names)
    lines = changes(page, "-") + changes(page, "+")
    for line, least in [*((line, 1) for line in lines), (several[0], 2)]:
        with eval(line, names):
            assert sum(server.exists("orders:42") for server in servers[:3]) >= least
        assert settled(lambda: servers[0].exists("orders:42"), 0) == 0


def shop(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Import the page's module of a client as `shop.redis`; return the settings."""
    settings: dict[str, Any] = {}
    for block in blocks(FOLDER / "redis-py.md", "python"):
        if "class Redis(" in block:
            monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
            module = ModuleType("shop.redis")
            exec(block, module.__dict__)
            monkeypatch.setitem(sys.modules, "shop.redis", module)
        if "CACHES" in block:
            exec(block, settings)
    return {**settings["CACHES"]["default"], "module": module}


@pytest.mark.usefixtures("django")
def test_cache_lock_of_django_redis_with_the_settings_of_the_page_is_ours(
    monkeypatch: pytest.MonkeyPatch, urls: list[str], servers: list[redis.Redis]
) -> None:
    caches = pytest.importorskip("django.core.cache")
    pytest.importorskip("django_redis")
    from fastredlock.compat.redis import Lock

    settings = shop(monkeypatch) | {"LOCATION": urls[0]}
    cache = caches.CacheHandler({"default": settings})["default"]
    with cache.lock("orders:42", timeout=5) as lock:
        assert isinstance(lock, Lock)
        assert servers[0].get(":1:orders:42") == lock.local.token
        assert not cache.lock("orders:42").acquire(blocking=False)
        assert not cache.lock("orders:42", blocking_timeout=0.1).acquire()
    assert servers[0].keys() == []
    cache.client.get_client().connection_pool.disconnect()


def test_redbeat_finds_the_client_where_the_page_puts_it(
    monkeypatch: pytest.MonkeyPatch, urls: list[str]
) -> None:
    celery, schedulers = map(pytest.importorskip, ("celery", "redbeat.schedulers"))
    module = shop(monkeypatch)["module"]
    app = celery.Celery("shop", broker="memory://", set_as_current=False)
    app.conf.redbeat_redis_url, app.conf.redbeat_redis_options = urls[0], {}
    line = blocks(FOLDER / "redis-py.md", "text")[0]
    exec(line, {"app": app, "Redis": module.Redis})
    assert type(schedulers.get_redis(app)) is module.Redis
