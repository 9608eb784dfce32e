"""The programs, their processes, and the journal in which each notes its steps.

A line is the time (ns, of one clock for all), the process and the number of the step. A
run that another one has followed must have made its last step: so no two were inside at
once, as far as the programs themselves can tell.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fastredlock.testing import LocalMasters
from tests.docs.documents import ROOT
from tests.support.processes import environment_of_children
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

FOLDER = ROOT / "docs" / "recipes"
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
        """Read all that is written in whole lines."""
        lines = self.path.read_text().split("\n")[:-1]
        return [Step(*map(int, line.split())) for line in lines]

    def pid(self) -> int:
        """Return the process that has written last."""
        return self.steps()[-1].pid

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


@contextmanager
def program(
    name: str, *words: str, urls: Sequence[str]
) -> Iterator[subprocess.Popen[str]]:
    """Run a program of the folder; end it at last."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", f"{name}.py", *words],
        cwd=FOLDER,
        env=environment_of(urls),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ending(process):
        yield process


def environment_of(urls: Sequence[str], **more: str) -> dict[str, str]:
    """Return the environment of a program, which leaves no cache in its folder."""
    masters = {"FASTREDLOCK_MASTERS": ",".join(urls), **more}
    return {**environment_of_children(), "PYTHONDONTWRITEBYTECODE": "1", **masters}


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process and its children at the end, stopped ones as well."""
    with process:
        try:
            yield
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def celery_worker(
    app: str, environment: dict[str, str], *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a worker of this program; end it at last, with its pool."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", app, "worker", *options, *quiet],
        cwd=FOLDER,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with ending(process):
        yield process


@contextmanager
def cut_off_later(masters: LocalMasters) -> Iterator[list[Proxy]]:
    """Yield a way to each of the masters that can be cut."""
    with ExitStack() as opened:
        yield [opened.enter_context(Proxy(url)) for url in masters.urls]


def cut(proxies: list[Proxy]) -> None:
    """Swallow from now on what is sent to a quorum: no reply, and no error either."""
    for proxy in proxies[:2]:
        proxy.set(swallows=True)


def heal(proxies: list[Proxy]) -> None:
    """Let it through again: on new connections, for the old ones have lost bytes."""
    for proxy in proxies:
        proxy.heal()
        proxy.reset()


def stop(pid: int) -> None:
    """Let a process stand still: its connections stay, its lease does not."""
    os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Let it go on, as if nothing had been."""
    os.kill(pid, signal.SIGCONT)
