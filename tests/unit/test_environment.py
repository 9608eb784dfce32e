"""`FastRedlock.from_env`: the masters and options that the environment names."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fastredlock
from fastredlock import ConfigurationError, MasterHealth, Retry
from fastredlock import asyncio as awaitable
from fastredlock._core import MasterState
from fastredlock.testing import in_memory

FastRedlock = type[fastredlock.FastRedlock] | type[awaitable.FastRedlock]
URLS = "redis://a, redis://:sesame@b:7001,redis://c"
both = pytest.mark.parametrize("kind", [fastredlock.FastRedlock, awaitable.FastRedlock])


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a file that is not there, and no masters."""
    path = tmp_path / "locks.toml"
    monkeypatch.delenv("FASTREDLOCK_MASTERS", raising=False)
    monkeypatch.setenv("FASTREDLOCK_CONFIG", str(path))
    monkeypatch.delitem(sys.modules, "pytest_fastredlock")
    return path


def names(health: tuple[MasterHealth, ...]) -> list[str]:
    return [each.master for each in health]


@both
def test_from_env_when_the_variable_has_masters_then_connects_to_none_yet(
    kind: FastRedlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTREDLOCK_CONFIG")
    monkeypatch.setenv("FASTREDLOCK_MASTERS", URLS)
    locks = kind.from_env("orders", ttl=5)
    assert type(locks) is kind
    assert names(locks.health()) == ["a:6379", "b:7001", "c:6379"]
    assert {each.state for each in locks.health()} == {MasterState.CLOSED}
    settings = locks._driver.settings
    assert (settings.resource, settings.default_terms.ttl_ms) == ("orders", 5000)


@both
@pytest.mark.parametrize("begin", [b"", b"\xef\xbb\xbf\r\n"])  # a byte order mark
def test_from_env_when_a_file_is_named_then_has_its_options_unless_others_are_given(
    kind: FastRedlock, config: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    config.write_bytes(
        begin + b'masters = ["redis://d"]\nmax_ttl = 20\nkey_prefix = "app:"\nttl = 7\n'
        b"unreachable_tries = 9\n"
    )
    assert names(kind.from_env().health()) == ["d:6379"]
    settings = kind.from_env()._driver.settings
    assert (settings.max_ttl, settings.key_prefix) == (20, b"app:")
    assert settings.retry == Retry(unreachable_tries=9)
    assert settings.default_terms.ttl_ms == 7000
    monkeypatch.setenv("FASTREDLOCK_MASTERS", URLS)  # comes before the file's
    locks = kind.from_env(max_ttl=30, retry=Retry())
    settings = locks._driver.settings
    assert names(locks.health()) == ["a:6379", "b:7001", "c:6379"]
    assert (settings.max_ttl, settings.retry) == (30, Retry())


FILE = 'masters = ["redis://d", "redis://e"]\nchanging_to = ["redis://f"]\n'


@pytest.mark.parametrize(
    ("masters", "changing_to", "given", "expected"),
    [
        ("", "", {}, "d e f"),
        ("", "redis://g", {}, "d e g"),
        ("redis://a", "", {}, "a"),  # the file's belongs to the file's masters
        ("redis://a", "redis://a,redis://b", {}, "a b"),
        ("redis://a", "redis://b", {"masters": ["redis://c"]}, "c"),
        ("redis://a", "", {"changing_to": ["redis://b"]}, "a b"),
    ],
)
def test_from_env_when_the_list_changes_then_the_new_one_comes_with_the_old_one(
    masters: str, changing_to: str, given: dict[str, Any], expected: str,
    config: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    config.write_text(FILE)
    monkeypatch.setenv("FASTREDLOCK_MASTERS", masters)
    monkeypatch.setenv("FASTREDLOCK_CHANGING_TO", changing_to)
    locks = fastredlock.FastRedlock.from_env(**given)
    assert names(locks.health()) == [f"{each}:6379" for each in expected.split()]


@both
def test_from_env_when_variables_have_ttls_then_they_come_before_the_file(
    kind: FastRedlock, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('masters = ["redis://d"]\nttl = 7\nmax_ttl = 8\n')
    monkeypatch.setenv("FASTREDLOCK_MAX_TTL", "5")
    monkeypatch.setenv("FASTREDLOCK_TTL", "2.5")
    settings = kind.from_env()._driver.settings
    assert (settings.max_ttl, settings.default_terms.ttl_ms) == (5, 2500)
    assert kind.from_env(ttl=1)._driver.settings.default_terms.ttl_ms == 1000
    with pytest.raises(ConfigurationError, match=r"allowed is 0.003 to 5.0 s \(max"):
        kind.from_env().lock("r", ttl=60)


@pytest.mark.parametrize(
    ("text", "said"),
    [("5s", "'5s': no number; allowed is above 0"), ("0", "0.0: allowed is above 0")],
)
@pytest.mark.parametrize("name", ["FASTREDLOCK_TTL", "FASTREDLOCK_MAX_TTL"])
def test_from_env_when_a_variable_has_no_time_then_names_it(
    name: str, text: str, said: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('masters = ["redis://d"]\n')
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigurationError) as caught:
        fastredlock.FastRedlock.from_env()
    assert str(caught.value).startswith(f"${name}={said}")


def test_from_env_when_a_variable_is_not_read_then_one_warning_names_it(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config.write_text('masters = ["redis://d"]\n')
    for name in ("MAXTTL", "KEY_PREFIX", "TOKEN", "SLOT", "DEBUG"):
        monkeypatch.setenv(f"FASTREDLOCK_{name}", "5")
    for _ in range(2):
        fastredlock.FastRedlock.from_env()
    said = "FASTREDLOCK_KEY_PREFIX, FASTREDLOCK_MAXTTL: not read, no such variable"
    assert [record.getMessage() for record in caplog.records] == [said]


@both
@pytest.mark.parametrize("text", ["", "ttl = 5", "masters = []"])
def test_from_env_when_no_masters_are_named_then_says_how_to_at_once(
    kind: FastRedlock, config: Path, text: str
) -> None:
    config.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        kind.from_env()
    assert str(caught.value) == (
        "no masters: set $FASTREDLOCK_MASTERS to URL,URL,URL, or name a TOML file "
        "with `masters = [...]` by $FASTREDLOCK_CONFIG"
    )


@pytest.mark.parametrize(
    ("urls", "text", "said"),
    [
        ("redis://:sesame@a,", "", "$FASTREDLOCK_MASTERS: one of the URLs is empty"),
        ("redis://:sesame@a:x", "", "masters[0]: "),
        ("", 'password = "sesame"', "has an unknown option 'password'; known are"),
        ("", "masters = [redis://:sesame@a]", "TOML (at line 1, column 12, masters)"),
        ("", "masters = [\n 'redis://:sesame@a'\nttl=", "(at line 3, column 1, ttl)"),
        ("", "masters = [\n 'redis://:sesame@a'\n 'b'", "column 2, masters)"),
        ("", "x = 'a\nsesame", "is not TOML (at end of document)"),
        ("redis://a", "ttl = 0", "locks.toml': ttl=0: allowed is"),
        ("redis://a", "ttl = 'sesame'", "locks.toml': ttl is no number"),
        ("redis://a", "unreachable_tries = 1.5", "locks.toml': unreachable_tries=1.5"),
        ("redis://a", "drift_factor = true", "locks.toml': drift_factor is no number"),
        ("", "masters = ['redis://:sesame@a:x']", "locks.toml': masters[0]: URL has a"),
        ("", "masters = 'redis://a'", "locks.toml': masters must be an iterable"),
        ("", None, "locks.toml': No such file"),
    ],
)
def test_from_env_when_something_is_wrong_then_raises_without_secrets(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    urls: str,
    text: str | None,
    said: str,
) -> None:
    monkeypatch.setenv("FASTREDLOCK_MASTERS", urls)
    if text is not None:
        config.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        fastredlock.FastRedlock.from_env()
    assert said in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_from_env_when_an_option_is_unknown_then_is_the_constructors_error(
    monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    config.touch()
    monkeypatch.setenv("FASTREDLOCK_MASTERS", URLS)
    with pytest.raises(TypeError, match="Did you mean 'max_ttl'"):
        fastredlock.FastRedlock.from_env(max_tll=5)


@both
def test_from_env_when_a_program_is_tested_then_needs_no_masters(
    kind: FastRedlock, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: from_env() at a module's head, as advised, ended the collection."""
    config.touch()
    with in_memory():
        assert len(kind.from_env().health()) == 3
    with pytest.raises(ConfigurationError, match="no masters"):
        kind.from_env()
    monkeypatch.setitem(sys.modules, "pytest_fastredlock", ModuleType("x"))
    locks = kind.from_env()
    assert names(locks.health())[0] == "use-redlock-memory-0.invalid:6379"
