"""The arguments of the commands, their masters, and what is said of wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.support.fixtures import Servers
from tests.support.keys import KEY
from tests.support.processes import environment_of_children

from .conftest import Call

WORDS = {
    "run": ["run", KEY, "--", "true"],
    "who": ["who", KEY],
    "list": ["list", "*"],
    "break": ["break", "--yes", KEY],
    "check": ["check"],
}


@pytest.fixture(autouse=True)
def no_environment(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be set where the tests run."""
    monkeypatch.delenv("FASTREDLOCK_MASTERS", raising=False)
    monkeypatch.delenv("FASTREDLOCK_CONFIG", raising=False)


@pytest.mark.parametrize("command", [*WORDS, "servers", "demo"])
def test_help_when_asked_for_then_fits_a_terminal_and_lists_each_status(
    command: str, call: Call
) -> None:
    status, out, _ = call(command, "--help")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 88
    assert "exit status" in out
    assert out.startswith(f"usage: fastredlock {command} ")


def test_command_when_none_or_a_wrong_one_is_given_then_names_them_all(
    call: Call,
) -> None:
    for words in ((), ("rnu", "-n"), ("--rnu",)):
        status, _, err = call(*words)
        assert status == 64
        assert (
            "give run, who, list, break, check, masters, quarantine, servers, demo"
            in err
        )
        assert "Try 'fastredlock --help'." in err
        assert ("'rnu' is no command" in err) == (words[:1] == ("rnu",))
    status, out, _ = call("--help")
    assert (status, "  run " in out) == (0, True)


@pytest.mark.parametrize("command", WORDS)
def test_masters_when_none_are_given_then_says_how_to(command: str, call: Call) -> None:
    status, _, err = call(*WORDS[command])
    assert status == 64
    assert err.startswith(f"fastredlock {command}: no masters: give --masters URL,")
    assert "$FASTREDLOCK_MASTERS" in err
    assert "$FASTREDLOCK_CONFIG" in err


@pytest.mark.parametrize("command", WORDS)
def test_masters_when_a_url_is_wrong_then_says_which_and_not_its_password(
    command: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = "redis://a,redis://:sesame@b:99999,redis://c"
    monkeypatch.setenv("FASTREDLOCK_MASTERS", urls)
    status, _, err = call(*WORDS[command])
    assert status == 64
    assert err.startswith(f"fastredlock {command}: masters[1]: ")
    assert "sesame" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", KEY], "required: COMMAND"),
        (["run", KEY, "--"], "required: COMMAND"),
        (["run", "--bad", KEY, "true"], "unrecognized arguments: --bad"),
        (["run", KEY, "--bad", "--", "true"], "unrecognized arguments: --bad"),
        (["run", "-n", "-w", "1", KEY, "--", "true"], "not allowed with"),
        (["run", "-w", "-1", KEY, "--", "true"], "'-1' is not a number from 0 on"),
        (["run", "-E", "256", KEY, "--", "true"], "'256' is not within 0..255"),
        (["run", "--ttl", "0.5", KEY, "--", "true"], "'0.5' is not a number from 1 on"),
        (["run", "", "--", "true"], "the name is empty"),
        (["run", "--permits", "0", KEY, "--", "true"], "'0' is not within 1..1024"),
        (["run", "--permits", "2.5", KEY, "true"], "'2.5' is not within 1..1024"),
        (["who", "--permits", "1025", KEY], "'1025' is not within 1..1024"),
        (["who"], "required: NAME"),
        (["list", "--most", "0", "*"], "'0' is not a number from 1 on"),
        (["check", "--masters", "redis://a,,redis://b"], "one of the URLs is empty"),
        (["who", "--masters", "redis://a;redis://b", KEY], "write a comma between two"),
        (["who", "--masters", "redis://a redis://b", KEY], "write a comma between two"),
        (["servers", "--count", "0"], "'0' is not within 1..25"),
        (["demo", "--workers", "1"], "'1' is not within 2..64"),
        (["demo", "--seconds", "nan"], "'nan' is not within 1..3600"),
        (["demo", "--pause-ms", "-1"], "'-1' is not within 0..1000"),
        (["demo", "--masters", "redis://a,,redis://b"], "one of the URLs is empty"),
        (["demo", "--colour"], "unrecognized arguments"),
    ],
)
def test_argument_when_wrong_then_is_told_with_what_is_allowed(
    words: list[str], said: str, call: Call
) -> None:
    status, out, err = call(*words)
    first, *rest = err.splitlines()
    assert (status, out, said in first) == (64, "", True)
    assert rest == [f"Try 'fastredlock {words[0]} --help'."]


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        (
            "run",
            ["--kill-after", "4", "--ttl", "9", KEY, "true"],
            "4: allowed is up to",
        ),
        ("run", ["--ttl", "9", "--max-ttl", "5", KEY, "true"], "ttl=9.0: allowed is 0"),
        ("run", ["-s", "--permits", "2", KEY, "true"], "readers have no slots or numb"),
        (
            "run",
            ["--shared", "--fencing", KEY, "true"],
            "beside --permits or --fencing",
        ),
        ("run", ["--owner", "x" * 65, KEY, "true"], "text of up to 64 bytes"),
        ("run", ["fastredlock:voter", "true"], "'fastredlock:voter': a name that"),
        ("who", ["fastredlock:voter"], "'fastredlock:voter': a name that"),
        ("break", ["--yes", "fastredlock:voter"], "'fastredlock:voter': a name that"),
    ],
)
def test_option_when_out_of_its_range_then_nothing_is_asked(
    command: str, words: list[str], said: str, call: Call
) -> None:
    status, _, err = call(command, "--masters", "redis://127.0.0.1:1", *words)
    assert (status, said in err) == (64, True)


# --- the file -------------------------------------------------------------------------


@pytest.fixture
def config(
    no_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    path = tmp_path / "locks.toml"
    monkeypatch.setenv("FASTREDLOCK_CONFIG", str(path))
    return path


def test_file_when_named_then_gives_masters_and_options(
    config: Path,
    call: Call,
    urls: list[str],
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config.write_text(f"masters = {urls[:3]}\nmax_ttl = 5\n")
    servers[0].set(KEY, "value", px=4000)
    status, out, _ = call("who", KEY)
    assert (status, "no token has a quorum" in out) == (1, True)
    monkeypatch.setenv("FASTREDLOCK_MASTERS", urls[0])
    assert call("who", KEY).status == 0
    status, _, err = call("run", "--ttl", "9", KEY, "--", "true")
    assert (status, "allowed is 0.003 to 5 s (max_ttl)" in err) == (64, True)


@pytest.mark.parametrize("command", ["who", "run"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("masters = [redis://:sesame@a]", "is not TOML (at line 1, column 12"),
        ('password = "sesame"', "has an unknown option 'password'; known are masters,"),
        ("ttl = 5", "no masters"),
        ('masters = ["redis://a"]\nttl = "5"', "ttl is no number"),
        (None, "$FASTREDLOCK_CONFIG: '{config}': No such file"),
    ],
)
def test_file_when_wrong_then_is_told_without_its_secrets(
    config: Path, text: str | None, said: str, call: Call, command: str
) -> None:
    if text is not None:
        config.write_text(text)
    status, _, err = call(*WORDS[command])
    assert (status, said.format(config=config) in err) == (64, True)
    assert "sesame" not in err


# --- the output -----------------------------------------------------------------------


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("check",), ("who", KEY), ("--version",)])
def test_output_when_it_cannot_be_written_then_no_answer_is_told_by_the_status(
    words: tuple[str, ...], unbuffered: str
) -> None:
    environment = {**environment_of_children(), "PYTHONUNBUFFERED": unbuffered}
    environment["FASTREDLOCK_MASTERS"] = "redis://localhost:1"

    def ended(stdout: IO[bytes] | int) -> tuple[int, bytes]:
        words_ = [sys.executable, "-m", "fastredlock", *words]
        done = subprocess.run(
            words_, stdout=stdout, stderr=subprocess.PIPE, env=environment
        )
        return done.returncode, done.stderr

    with open("/dev/full", "wb") as full:
        said = b"fastredlock: [Errno 28] No space left on device\n"
        assert ended(full) == (71, said)
    reading, writing = os.pipe()
    os.close(reading)
    assert ended(writing) == (141, b"")
    os.close(writing)
