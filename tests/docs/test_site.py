"""The site: where its links lead; and what stands in its pages is so."""

from __future__ import annotations

import ast
import pkgutil
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from fastredlock import FastRedlock
from fastredlock._locking.keeping.pace import pace_of
from fastredlock._options.settings import Settings
from fastredlock.testing import LocalMasters
from tools import site

from .documents import ROOT, blocks, rows

REPOSITORY = "https://example.test/repo"
COMPOSE = ROOT / "docs" / "compose.yaml"
PRODUCTION = ROOT / "docs" / "production.md"


@pytest.mark.parametrize(
    ("link", "folder", "target"),
    [
        ("keeping.md", "", "keeping.md"),
        ("../keeping.md", "migration", "../keeping.md"),
        ("https://redis.io/x", "", "https://redis.io/x"),
        ("../README.md", "", f"{REPOSITORY}/blob/main/README.md"),
        (
            "../../bench/README.md",
            "migration",
            f"{REPOSITORY}/blob/main/bench/README.md",
        ),
        ("../tests/sim", "", f"{REPOSITORY}/tree/main/tests/sim"),
        ("recipes/cron.py", "", f"{REPOSITORY}/blob/main/docs/recipes/cron.py"),
        ("../bench/pair.svg", "", "pictures/pair.svg"),
        ("../../bench/pair.svg", "migration", "../pictures/pair.svg"),
    ],
)
def test_link_leads_into_the_site_or_to_the_repository(
    link: str, folder: str, target: str
) -> None:
    assert site.mend(link, folder, REPOSITORY) == target


def test_row_of_a_table_keeps_the_pipes_that_divide_it() -> None:
    assert site.unescaped(r"| `a\|b` | c\|d |") == r"| `a|b` | c\|d |"


def test_navigation_has_only_pages_that_are_there() -> None:
    nav = ["ttl.md", "not-yet.md", {"A": ["no.md"]}, {"B": "no.md"}, {"C": ["api.md"]}]
    assert site.existing(nav) == ["ttl.md", {"C": ["api.md"]}]


def test_navigation_names_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = set(re.findall(r"[\w/-]+\.md$", text, re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    assert pages <= named


# --- choosing a ttl ---------------------------------------------------------------


@pytest.mark.parametrize("row", rows(ROOT / "docs" / "ttl.md", "## What is left of it"))
def test_times_of_a_ttl_are_those_of_the_code(row: list[str]) -> None:
    ttl, validity, round_timeout, renewed, outage = map(seconds, row)
    terms = Settings(["redis://a"]).terms(ttl)
    left = ttl - terms.drift_ns / 1e9
    wait = pace_of(terms.ttl_ms, terms.drift_ns).wait_ns / 1e9
    assert validity == pytest.approx(left)
    assert round_timeout == pytest.approx(terms.timeout_ns / 1e9)
    assert renewed == pytest.approx(wait, rel=0.1)
    assert left - wait >= outage > 0.9 * (left - wait)


def seconds(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * {"s": 1, "ms": 1e-3}[unit]


# --- production -------------------------------------------------------------------


@pytest.fixture
def servers() -> Iterator[list[redis.Redis]]:
    with LocalMasters(3, unix=True) as masters, ExitStack() as opened:
        yield [opened.enter_context(redis.Redis.from_url(url)) for url in masters.urls]


def test_rights_of_the_check_list_are_all_that_is_needed(
    servers: list[redis.Redis],
) -> None:
    commands = [
        line for text in blocks(PRODUCTION, "text") for line in text.splitlines()
    ]
    acl = [line for line in commands if line.startswith("ACL SETUSER")]
    assert len(acl) == 4
    masters: list[dict[str, Any]] = []
    for server in servers:
        for line in acl:
            server.execute_command(*shlex.split(line))
        path = server.get_connection_kwargs()["path"]
        login = {"username": "locks", "password": "change-me"}
        masters.append({"unix_socket_path": path, **login})
    with FastRedlock(masters) as locks:
        use_all(locks)
        assert [master.warnings for master in locks.health()] == [()] * 3
        with pytest.raises(Exception, match="NOPERM"):
            locks.acquire("else:42", timeout=0)


def use_all(locks: FastRedlock) -> None:
    lease = locks.acquire("orders:42", ttl=60)
    assert lease is not None
    assert locks.acquire("orders:42", timeout=0.1) is None  # which has waited in turn
    assert locks.stats().waits == 1
    assert lease.extend() > 0
    assert [vote.vote.name for vote in locks.holders("orders:42")] == ["TAKEN"] * 3
    assert lease.release().name == "RELEASED"
    with locks.lock_all(["orders:1", "orders:2"]) as both:
        assert both.extend() > 0
    locks.release_each(locks.acquire_each(["orders:1", "orders:2"]))


def arguments() -> dict[str, list[str]]:
    """Return the options of each server that the compose file starts."""
    services = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    return {name: service["command"] for name, service in services.items()}


def test_compose_file_has_three_masters_on_the_ports_of_the_documents() -> None:
    told = yaml.safe_load(COMPOSE.read_text("utf-8"))
    services = told["services"].values()
    ports = [port for service in services for port in service["ports"]]
    assert ports == [f"127.0.0.1:{port}:6379" for port in (7001, 7002, 7003)]
    volumes = [volume for service in services for volume in service["volumes"]]
    assert volumes == [f"{name}:/data" for name in told["volumes"]]
    assert [command[0] for command in arguments().values()] == ["valkey-server"] * 3


def test_servers_of_the_compose_file_are_fit_for_locks() -> None:
    # As LocalMasters starts them; options that come later override earlier ones.
    options = next(iter(arguments().values()))[1:]
    with (
        LocalMasters(3, unix=True, options=options) as masters,
        FastRedlock(masters.urls) as locks,
    ):
        with locks.lock("orders:42", ttl=60):
            masters.stop(0)
        assert [master.warnings for master in locks.health()[1:]] == [()] * 2
        with redis.Redis.from_url(masters.urls[1]) as server:
            wanted = {"appendonly": "yes", "appendfsync": "always", "save": ""}
            wanted["maxmemory-policy"] = "noeviction"
            assert {name: server.config_get(name)[name] for name in wanted} == wanted


def test_check_list_shows_the_options_of_the_compose_file() -> None:
    shown = next(
        text for text in blocks(PRODUCTION, "text") if text.startswith("valkey-server")
    )
    assert shlex.split(shown.replace("\\\n", " ")) == next(iter(arguments().values()))
    assert Path(COMPOSE).name in PRODUCTION.read_text("utf-8")


# --- the reference --------------------------------------------------------------------


def constants(path: Path) -> dict[str, Any]:
    """Read them from the source: what it imports is there where the site is built."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def constructor_of(kind: type) -> str:
    """Say where the constructor of a class is written, without the package's name."""
    owner = next(each for each in kind.__mro__ if "__init__" in vars(each))
    return f"{owner.__module__}.{owner.__qualname__}".removeprefix("fastredlock.")


def test_reference_names_each_constructor_where_it_is_written() -> None:
    """Seen: one had gone into the core, and no site was built for 90 commits."""
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    found = map(pkgutil.resolve_name, re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    owners = {constructor_of(each) for each in found if isinstance(each, type)}
    private = {each for each in owners if each.startswith(("_core.", "_locking."))}
    named = constants(ROOT / "tools" / "site_api.py")
    assert private == {*named["RETURNED"], named["LOCKS"].removesuffix(".__init__")}
    options = pkgutil.resolve_name(f"fastredlock.{named['OPTIONS']}")
    assert callable(options)
