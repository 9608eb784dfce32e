"""The programs, their processes, and the journal in which each notes its steps.

A line is the time (ns, of one clock for all), the process and the number of the step. A
run that another one has followed must have made its last step: so no two were inside at
once, as far as the programs themselves can tell.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.docs.documents import ROOT
from tests.support.processes import environment_of_children
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

FOLDER = ROOT / "docs" / "recipes"
Process = subprocess.Popen[str]
PATIENCE = 20.0  # s; for what takes a ttl and a start of Python, or of Celery


class Step(NamedTuple):
    """One line of a journal."""

    at_ns: int
    pid: int
    number: int


class Journal:
    """What the processes of a test have written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def steps(self) -> list[Step]:
        lines = self.path.read_text().split("\n")[:-1]
        return [Step(*map(int, line.split())) for line in lines]

    def pid(self) -> int:
        return self.steps()[-1].pid

    def lasts(self, seconds: float) -> int:
        """Wait until the steps of this time are there; return whose is the last."""
        end = self.steps()[-1].at_ns + int(seconds * 1e9)
        assert wait_until(lambda: self.steps()[-1].at_ns > end, PATIENCE)
        return self.pid()

    def has(self, count: int) -> bool:
        return wait_until(lambda: len(self.steps()) == count, PATIENCE)

    def until_new(self, *but: int) -> int:
        """Wait for a step from now on, of none of these processes; return whose."""
        seen = len(self.steps())

        def found() -> list[int]:
            return [s.pid for s in self.steps()[seen:] if s.pid not in but]

        assert wait_until(found, PATIENCE), f"no step of any process but {but}"
        return found()[-1]

    def ends_and_beginnings(self) -> list[tuple[Step, Step]]:
        """Return the last step of each run with the first step of the next one."""
        return [pair for pair in pairwise(self.steps()) if pair[1].number == 0]

    def check(self) -> list[int]:
        """Check that no run has gone on after the next one began; return their pids."""
        pids: list[int] = []
        before: Step | None = None
        for step in self.steps():
            if before is None or step.number == 0:
                pids.append(step.pid)
                assert step.number == 0, step
            else:
                assert (step.pid, step.number) == (before.pid, before.number + 1)
            before = step
        return pids


def program(
    name: str, *words: str, urls: Sequence[str]
) -> AbstractContextManager[Process]:
    """Run a program of the folder; end it at last."""
    command = [sys.executable, "-W", "error", f"{name}.py", *words]
    return running(command, environment_of(urls), stderr=subprocess.PIPE)


def celery_worker(
    app: str, environment: dict[str, str], *options: str
) -> AbstractContextManager[Process]:
    """Run a worker of this program; end it at last, with its pool."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    command = [sys.executable, "-m", "celery", "-A", app, "worker", *options, *quiet]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return running(command, environment, **silent)


@contextmanager
def running(
    command: list[str], environment: dict[str, str], **files: int
) -> Iterator[Process]:
    """Run a process; kill it and its children at the end, stopped ones as well."""
    process = subprocess.Popen(
        command,
        cwd=FOLDER,
        env=environment,
        text=True,
        start_new_session=True,
        **files,  # type: ignore[call-overload]
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def answer_of(code: str, environment: dict[str, str]) -> tuple[Any, str]:
    """Run code in the folder; return what it answers in JSON, and its log."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout or "null"), run.stderr


def environment_of(urls: Sequence[str], **more: str) -> dict[str, str]:
    """Return the environment of a program, which leaves no cache in its folder."""
    masters = {"FASTREDLOCK_MASTERS": ",".join(urls), **more}
    return {**environment_of_children(), "PYTHONDONTWRITEBYTECODE": "1", **masters}


class Trouble:
    """A process that stands still, or whose way to a quorum is cut; and goes on later.

    Where it is cut there is no reply, and no error either. It gets new connections
    later: the old ones have lost bytes.
    """

    def __init__(self, kind: str, urls: Sequence[str], opened: ExitStack) -> None:
        self.is_cut = kind == "cut off"
        ways = [Proxy(url) for url in urls] if self.is_cut else []
        self._ways = [opened.enter_context(way) for way in ways]
        self.urls = [way.url for way in self._ways] or list(urls)

    def begin(self, pid: int) -> None:
        if not self.is_cut:
            os.kill(pid, signal.SIGSTOP)
        for way in self._ways[:2]:
            way.set(swallows=True)

    def end(self, pid: int) -> None:
        if not self.is_cut:
            os.kill(pid, signal.SIGCONT)
        for way in self._ways:
            way.heal()
            way.reset()
