"""The arguments of the commands, their masters, and what is said of wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
import redis

from fastredlock import cli
from tests.support.keys import KEY
from tests.support.processes import environment_of_children

COMMANDS = ("run", "who", "list", "break", "check")
WORDS = {
    "run": ["run", KEY, "--", "true"],
    "who": ["who", KEY],
    "list": ["list", "*"],
    "break": ["break", "--yes", KEY],
    "check": ["check"],
}


def call(*words: str) -> int:
    """Run a command in this process; return its status."""
    try:
        return cli.main(words)
    except SystemExit as ended:
        return int(str(ended.code))


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be set where the tests run."""
    monkeypatch.delenv("FASTREDLOCK_MASTERS", raising=False)
    monkeypatch.delenv("FASTREDLOCK_CONFIG", raising=False)


@pytest.mark.parametrize("command", [*COMMANDS, "servers", "demo"])
def test_help_when_asked_for_then_fits_a_terminal_and_lists_each_status(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(command, "--help") == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 88
    assert "exit status" in text
    assert text.startswith(f"usage: fastredlock {command} ")


def test_command_when_none_or_a_wrong_one_is_given_then_names_them_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call() == call("rnu", "-n") == call("--rnu") == 64
    said = capsys.readouterr().err
    assert said.count("give run, who, list, break, check, servers, demo") == 3
    assert said.count("Try 'fastredlock --help'.") == 3
    assert "'rnu' is no command" in said
    assert call("--help") == 0
    assert all(f"  {name} " in capsys.readouterr().out for name in ["run"])


@pytest.mark.parametrize("command", COMMANDS)
def test_masters_when_none_are_given_then_says_how_to(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*WORDS[command]) == 64
    said = capsys.readouterr().err
    assert said.startswith(f"fastredlock {command}: no masters: give --masters URL,")
    assert "$FASTREDLOCK_MASTERS" in said
    assert "$FASTREDLOCK_CONFIG" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_masters_when_a_url_is_wrong_then_says_which_and_not_its_password(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = "redis://a,redis://:sesame@b:99999,redis://c"
    monkeypatch.setenv("FASTREDLOCK_MASTERS", urls)
    assert call(*WORDS[command]) == 64
    said = capsys.readouterr().err
    assert said.startswith(f"fastredlock {command}: masters[1]: ")
    assert "sesame" not in said


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
        (["servers", "--count", "0"], "'0' is not within 1..25"),
        (["demo", "--workers", "1"], "'1' is not within 2..64"),
    ],
)
def test_argument_when_wrong_then_is_told_with_what_is_allowed(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == 64
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[0]
    assert lines[1:] == [f"Try 'fastredlock {words[0]} --help'."]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--kill-after", "4", "--ttl", "9"],
            "4: allowed is up to a third",
        ),
        (
            ["--ttl", "9", "--max-ttl", "5"],
            "ttl=9.0: allowed is 0.003 to 5.0 s",
        ),
        (["--owner", "x" * 65], "text of up to 64 bytes"),
    ],
)
def test_option_when_out_of_its_range_then_nothing_is_asked(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    masters = ["--masters", "redis://127.0.0.1:1"]
    assert call("run", *masters, *words, KEY, "--", "true") == 64
    assert said in capsys.readouterr().err


# --- the file -------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "locks.toml"
    monkeypatch.setenv("FASTREDLOCK_CONFIG", str(path))
    return path


def test_file_when_named_then_gives_masters_and_options(
    config: Path, urls: list[str], capsys: pytest.CaptureFixture[str],
    servers: list[redis.Redis], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    config.write_text(f"masters = {urls[:3]}\nmax_ttl = 5\n")
    servers[0].set(KEY, "value", px=4000)
    assert call("who", KEY) == 1
    assert "no token has a quorum" in capsys.readouterr().out
    monkeypatch.setenv("FASTREDLOCK_MASTERS", urls[0])
    assert call("who", KEY) == 0
    assert call("run", "--ttl", "9", KEY, "--", "true") == 64
    assert "allowed is 0.003 to 5 s (max_ttl)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('masters = "redis://a"', "masters must be an iterable"),
        ("masters = [redis://:sesame@a]", "is not TOML (at line 1, column 12"),
        ('password = "sesame"', "has an unknown option 'password'; known are masters,"),
        ("ttl = 5", "no masters"),
        ('masters = ["redis://a"]\nttl = "5"', "ttl is no number"),
    ],
)
def test_file_when_wrong_then_is_told_without_its_secrets(
    config: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(text)
    for command in ("who", "run"):
        assert call(*WORDS[command]) == 64
        told = capsys.readouterr().err
        assert said in told
        assert "sesame" not in told


def test_file_when_it_cannot_be_read_then_is_named(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("who", KEY) == 64
    assert f"$FASTREDLOCK_CONFIG: '{config}': No such file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "who", "break"])
def test_name_when_it_is_one_of_fastredlock_itself_then_is_a_wrong_argument(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace(KEY, "fastredlock:voter") for word in WORDS[command]]
    masters = "redis://localhost:1"
    assert call(words[0], "--masters", masters, *words[1:]) == 64
    assert "'fastredlock:voter': a name that" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("check",), ("who", KEY), ("--version",)])
def test_output_when_it_cannot_be_written_then_no_answer_is_told_by_the_status(
    words: tuple[str, ...], unbuffered: str
) -> None:
    environment = {**environment_of_children(), "PYTHONUNBUFFERED": unbuffered}
    environment["FASTREDLOCK_MASTERS"] = "redis://localhost:1"

    def ended(stdout: IO[bytes] | int) -> tuple[int, str]:
        run = [sys.executable, "-m", "fastredlock", *words]
        done = subprocess.run(
            run, stdout=stdout, stderr=subprocess.PIPE, env=environment, text=True
        )
        return done.returncode, done.stderr

    with open("/dev/full", "wb") as full:
        said = "fastredlock: [Errno 28] No space left on device\n"
        assert ended(full) == (71, said)
    reading, writing = os.pipe()
    os.close(reading)
    assert ended(writing) == (141, "")
    os.close(writing)
