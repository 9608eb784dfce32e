"""Children of this process, and its open files."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from fastredlock._core import is_portable
from tests.support.waiting import PATIENCE


def environment_of_children() -> dict[str, str]:
    """Return an environment in which Python finds the modules of this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def python(program: ModuleType | str, *options: str) -> list[str]:
    """Return the first words of a program: a module, its name in `tests`, or code."""
    name = program if isinstance(program, str) else program.__name__
    return [sys.executable, *options, "-m" if name.startswith("tests.") else "-c", name]


def run_to_its_end(
    program: ModuleType | str,
    *words: str,
    options: Sequence[str] = (),
    within: float = 60.0,
    preload: str = "",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends, for at most so many seconds.

    `options`: Python's; `preload`: a library that is loaded before all others; `env`:
    what is added to the environment.
    """
    environment = environment_of_children() | dict(env or {})
    if preload:
        environment["LD_PRELOAD"] = f"{preload} {os.environ.get('LD_PRELOAD', '')}"
    return subprocess.run(
        [*python(program, *options), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=within,
    )


class Child(subprocess.Popen[str]):
    """A program in a process of its own; it reads lines, and answers by lines."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(
            words,
            env=environment_of_children(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self.stdin is not None
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def answer(self) -> str:
        assert self.stdout is not None
        return self.stdout.readline().strip()

    def say(self, line: str) -> str:
        self.tell(line)
        return self.answer()


@contextmanager
def running(program: ModuleType | str, *words: str) -> Iterator[Child]:
    """Run a program until the block ends."""
    with Child([*python(program), *words]) as child:
        try:
            yield child
        finally:
            child.kill()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def beside_connections(driver: str) -> int:
    """Say how many descriptors an engine has open beside its connections.

    One that wakes its leader, or one that a loop watches. Without the calls of Linux a
    pipe wakes it, and a loop watches the connections themselves.
    """
    if not is_portable():
        return 1
    return 2 if driver == "blocking" else 0


class Fork:
    """Run work in a forked child of this process; `result()` is what it returned."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
            self._pid = os.fork()
        if self._pid == 0:
            try:
                told = {"result": work()}
            except BaseException:
                told = {"error": traceback.format_exc()}
            with suppress(OSError):
                os.write(writer, json.dumps(told, default=repr).encode())
            os._exit(0)
        os.close(writer)

    def result(self) -> Any:
        """Wait for the child; a child that hangs is killed."""
        try:
            if not select.select([self._reader], [], [], PATIENCE)[0]:
                os.kill(self._pid, signal.SIGKILL)
            told = json.loads(os.read(self._reader, 65536) or '{"error": "hung"}')
        finally:
            os.close(self._reader)
            os.waitpid(self._pid, 0)
        assert "error" not in told, told["error"]
        return told["result"]
