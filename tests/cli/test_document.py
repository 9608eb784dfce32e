"""What docs/command-line.md shows is what the commands say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from fastredlock._cli import Status
from fastredlock.testing import LocalMasters
from tests.docs.documents import ROOT, blocks, rows
from tests.support.processes import environment_of_children

PAGE = ROOT / "docs" / "command-line.md"
PORTS = (7001, 7002, 7003)  # that the page writes
# What differs from run to run, and what is shown in its place.
CHANGING = [
    (r"\d{4}-\d\d-\d\dT[\d:]+Z", "DATE"),
    (r"\b[0-9a-f]{16}\b", "HASH"),
    (r"(?:web-7|\S+):\d+(?= |\b(?=\s))", "NAME"),
    (r"(?:Redis|Valkey) [\d.]+", "VERSION"),
    (r"\d+\.\d+ (ms|s)", r"TIME \1"),
    (r"up \d+ \w+", "up TIME"),
]


def test_page_shows_what_the_commands_say(tmp_path: Path) -> None:
    shim = tmp_path / "fastredlock"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m fastredlock "$@"\n')
    shim.chmod(0o755)
    told = "".join(blocks(PAGE, "console"))
    script = "".join(f"{line[2:]}\n" for line in told.splitlines() if line[:2] == "$ ")
    shown = "".join(f"{line}\n" for line in told.splitlines() if line[:2] != "$ ")
    with LocalMasters(3) as masters:
        for port, url in zip(PORTS, masters.urls, strict=True):
            script = script.replace(f"redis://localhost:{port}", url)
        environment = environment_of_children()
        environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
        # `run` begins with a quorum: a third master that is slow has no key then.
        said = [said_by(script, environment)]
        while len(said) < 3 and said[-1] != unified(shown):
            said.append(said_by(script, environment))
    assert said[-1] == unified(shown)


def said_by(script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.stderr == ""
    return unified(done.stdout)


def unified(said: str) -> str:
    for pattern, name in CHANGING:
        said = re.sub(pattern, name, said)
    return said


def test_page_lists_the_statuses_of_run() -> None:
    cells = " ".join(row[0] for row in rows(PAGE, "## run"))
    told = {int(number) for number in re.findall(r"\d+", cells)}
    ours = {Status.TAKEN, Status.USAGE, Status.UNREACHABLE, Status.SYSTEM, Status.LOST}
    assert told == ours | {Status.NOT_EXECUTABLE, Status.NOT_FOUND}


# Each of these costs over a millisecond before the command can begin.
HEAVY = {
    *("asyncio", "ssl", "logging", "socket", "subprocess", "threading", "shutil"),
    *("json", "urllib.parse", "concurrent.futures", "tomllib", "inspect", "ctypes"),
}
UNTIL_FORK = """
import os, sys
def fork():
    print(*sys.modules)
    os._exit(0)
os.fork = fork
from fastredlock import cli
cli.main(["run", "name", "--", "true"])
"""


def test_run_until_the_command_begins_loads_nothing_heavy(urls: list[str]) -> None:
    environment = environment_of_children()
    environment |= {"FASTREDLOCK_MASTERS": ",".join(urls[:3]), "PYTHONUNBUFFERED": "1"}
    told = subprocess.run(
        [sys.executable, "-S", "-c", UNTIL_FORK],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "fastredlock._cli.child" in told
    assert {*told} & HEAVY == set()
