"""The site: where its links lead; and what stands in its pages is so."""

from __future__ import annotations

import pkgutil
import re
import runpy
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import redis
import yaml

import fastredlock.asyncio
import fastredlock.testing.asyncio
from fastredlock import FastRedlock, FastRedlockError, testing
from fastredlock._locking.renewals import pace_of
from fastredlock._locking.slots import rate_terms
from fastredlock._options.settings import Settings
from fastredlock.testing import LocalMasters
from tests.setups.test_native import program_with
from tools import screens

from .documents import ROOT, blocks, rows

CONF = runpy.run_path(str(ROOT / "docs" / "conf.py"))
REPOSITORY = CONF["REPOSITORY"]
COMPOSE = ROOT / "docs" / "compose.yaml"
PRODUCTION = ROOT / "docs" / "production.md"
API = (ROOT / "docs" / "api.md").read_text("utf-8")
DRAWINGS = sorted(ROOT.glob("docs/pictures/*.svg"))


@pytest.mark.parametrize(
    ("link", "folder", "target"),
    [
        ("keeping.md", "", "keeping.md"),
        ("../keeping.md", "migration", "../keeping.md"),
        ("https://redis.io/x", "", "https://redis.io/x"),
        ("../README.md", "", f"{REPOSITORY}/blob/main/README.md"),
        ("../../bench/a.md", "migration", f"{REPOSITORY}/blob/main/bench/a.md"),
        ("../tests/sim", "", f"{REPOSITORY}/tree/main/tests/sim"),
        ("recipes/cron.py", "", f"{REPOSITORY}/blob/main/docs/recipes/cron.py"),
        ("../bench/pair.svg", "", "../bench/pair.svg"),
        ("pictures/round.svg", "", "pictures/round.svg"),
    ],
)
def test_link_leads_into_the_site_or_to_the_repository(
    link: str, folder: str, target: str
) -> None:
    assert CONF["mended"](link, folder) == target
    assert CONF["mend"](f"[a]({link}#b)", folder) == f"[a]({target}#b)"


def test_navigation_names_every_page() -> None:
    docs = ROOT / "docs"
    named = {line.strip() for line in (docs / "index.md").read_text("utf-8").split()}
    pages = {str(path.relative_to(docs))[:-3] for path in docs.glob("**/*.md")}
    assert pages - named == {"README", "index"}  # the home, and the navigation


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_drawing_is_text_in_two_themes_and_is_read_on_a_phone(drawing: Path) -> None:
    root = ElementTree.parse(drawing).getroot()
    width = int(root.attrib["viewBox"].split()[2])
    assert width <= 400  # so that 13 units are 12 px on a phone
    space = {"svg": "http://www.w3.org/2000/svg"}
    assert root.findtext("svg:desc", namespaces=space)
    assert root.findall("svg:text", space)
    assert "prefers-color-scheme: dark" in root.findtext("svg:style", "", space)


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


@pytest.mark.parametrize("row", rows(ROOT / "docs" / "slots.md", "## Rates"))
def test_times_of_a_rate_are_those_of_the_code(row: list[str]) -> None:
    per, again, share, begin = (
        seconds(cell) for cell in (*row[:2], f"{row[2]} s", row[3])
    )
    terms = rate_terms(Settings(["redis://a"]), per)
    assert terms.ttl_ms / 1e3 == again
    assert share == round(per / again, 2)
    assert terms.timeout_ns / 1e9 == begin


def seconds(cell: str) -> float:
    number, unit = cell.split()
    return float(number) * {"s": 1, "ms": 1e-3}[unit]


# --- production -------------------------------------------------------------------


ACL = {
    line.split()[1]: line.split()[2:]
    for text in blocks(PRODUCTION, "text")
    for line in text.splitlines()
    if line.startswith("user ")
}


@pytest.fixture
def servers() -> Iterator[list[redis.Redis]]:
    with LocalMasters(3, unix=True) as masters, ExitStack() as opened:
        yield [opened.enter_context(redis.Redis.from_url(url)) for url in masters.urls]


def logins(servers: list[redis.Redis], user: str, rules: list[str]) -> list[Any]:
    """Give a user these rights on each server; return what to log in with."""
    for server in servers:
        server.execute_command("ACL", "SETUSER", user, "reset", *rules)
    paths = [server.get_connection_kwargs()["path"] for server in servers]
    login = {"username": user, "password": "change-me"}
    return [{"unix_socket_path": path, **login} for path in paths]


def test_rights_of_the_check_list_are_all_that_is_needed(
    servers: list[redis.Redis],
) -> None:
    with FastRedlock(logins(servers, "locks", ACL["locks"])) as locks:
        use_all(locks)
        assert [master.warnings for master in locks.health()] == [()] * 3
        with pytest.raises(Exception, match="NOPERM"):
            locks.acquire("else:42", timeout=0)


def test_line_for_one_of_many_applications_reaches_its_own_names_alone(
    servers: list[redis.Redis],
) -> None:
    """Seen: one could quarantine all others, and raise their numbers."""
    rights = [word for word in ACL["locks"] if word.startswith("+")]
    rules = [*ACL["orders"], *rights, "-client|kill"]
    masters = logins(servers, "orders", rules)
    for master in masters:
        with redis.Redis(**master) as user:
            for words in (
                ("SET", "fastredlock:quarantine", "1"),
                ("ZADD", "fastredlock:fence:a", "9", "f"),
                ("ZADD", "other:fastredlock:queue:a", "9", "f"),
                ("PUBLISH", "fastredlock:waiter:a", "!fastredlock:"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    user.execute_command(*words)
    with FastRedlock(masters, key_prefix="orders:", fencing=True) as locks:
        use_all(locks)
        assert [master.warnings for master in locks.health()] == [()] * 3


@pytest.mark.parametrize("right", ["eval", "evalsha", "publish", "pubsub"])
def test_line_for_a_tenant_has_no_right_to_stop_or_to_watch_a_master(
    right: str,
) -> None:
    assert f"+{right}" not in ACL["tenant"]
    assert f"+{right}" in ACL["locks"]


def test_line_for_a_tenant_is_enough_where_the_server_deletes_by_value() -> None:
    program = program_with("DELIFEQ")
    if program is None:
        pytest.skip("no server with DELIFEQ on this machine")
    with LocalMasters(3, unix=True, server=program) as masters, ExitStack() as opened:
        servers = [opened.enter_context(redis.Redis.from_url(u)) for u in masters.urls]
        users = logins(servers, "tenant", ACL["tenant"])
        locks = opened.enter_context(FastRedlock(users))
        lease = locks.acquire("orders:42", ttl=60)
        assert lease is not None
        assert lease.extend() > 0
        assert locks.acquire("orders:42", timeout=0.1) is None
        assert lease.release().name == "RELEASED"
        assert locks.acquire("orders:42", timeout=0) is not None


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


def test_compose_file_has_three_masters_that_are_fit_for_locks() -> None:
    told = yaml.safe_load(COMPOSE.read_text("utf-8"))
    services = told["services"].values()
    ports = [port for service in services for port in service["ports"]]
    assert ports == [f"127.0.0.1:{port}:6379" for port in (7001, 7002, 7003)]
    volumes = [volume for service in services for volume in service["volumes"]]
    assert volumes == [f"{name}:/data" for name in told["volumes"]]
    words, *others = [service["command"] for service in services]
    assert [command[0] for command in (words, *others)] == ["valkey-server"] * 3
    shown = [text for text in blocks(PRODUCTION, "text") if "valkey-server" in text]
    assert shlex.split(shown[0].replace("\\\n", " ")) == words
    assert Path(COMPOSE).name in PRODUCTION.read_text("utf-8")
    # As LocalMasters starts them; options that come later override earlier ones.
    with (
        LocalMasters(3, unix=True, options=words[1:]) as masters,
        FastRedlock(masters.urls) as locks,
    ):
        with locks.lock("orders:42", ttl=60):
            masters.stop(0)
        assert [master.warnings for master in locks.health()[1:]] == [()] * 2
        with redis.Redis.from_url(masters.urls[1]) as server:
            wanted = {"appendonly": "yes", "appendfsync": "always", "save": ""}
            wanted["maxmemory-policy"] = "noeviction"
            assert {name: server.config_get(name)[name] for name in wanted} == wanted


# --- the reference --------------------------------------------------------------------


def test_reference_names_all_public_classes_and_functions() -> None:
    """Seen: one had gone elsewhere, and no site was built for 90 commits."""
    named = re.findall(r"^(?:   |\.\. autodata:: )((?:\w+\.)*\w+)$", API, re.MULTILINE)
    there = {id(pkgutil.resolve_name(name)) for name in named}
    assert "fastredlock.errors" in named  # which has all of them
    there |= {id(each) for each in vars(fastredlock.errors).values() if is_error(each)}
    modules = (fastredlock, fastredlock.asyncio, testing, testing.asyncio)
    public = [getattr(module, name) for module in modules for name in module.__all__]
    assert [each for each in public if callable(each) and id(each) not in there] == []


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, FastRedlockError)


# --- the screens ----------------------------------------------------------------------


def test_screens_when_there_is_no_browser_then_end_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert screens.main(tmp_path) == 1
