"""Run the demo's worker processes: start them, hand out jobs, collect, end them.

Every worker runs `worker.main` in a session of its own, so that a Ctrl-C in the
terminal reaches the demo alone, which then ends its workers in order. They end by
themselves when their connection closes, whatever became of the demo.
"""

from __future__ import annotations

import subprocess
import sys
import time
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import TracebackType

from .errors import DemoError, ExitStatus
from .job import Job, Outcome

_PROGRAM = """\
import sys
sys.path[:] = {path!r}
from fastredlock.demo.worker import main
main(*sys.argv[1:])
"""  # not `-m`, which would prefer a fastredlock in the working directory
_GRACE = 2.0  # s; more than a worker gives itself, then it is killed


class Worker:
    """Hold one worker process, its connection and the file for its complaints."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self._complaints = folder / f"worker-{number}.stderr"
        self.connection: Connection
        self.connection, theirs = Pipe()
        program = _PROGRAM.format(path=sys.path)
        with theirs, self._complaints.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(number), str(folder)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    def give(self, job: Job) -> None:
        """Hand the worker its next job; raise `DemoError` if it has died."""
        try:
            self.connection.send(job)
        except OSError:
            raise self.death() from None

    def outcome(self) -> Outcome:
        """Return the outcome that has come; raise `DemoError` if it has died."""
        try:
            outcome: Outcome = self.connection.recv()
        except (EOFError, OSError):
            raise self.death() from None
        return outcome

    def death(self) -> DemoError:
        """Return the error that describes how this worker ended."""
        self.wait(1.0)
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        lines = self._complaints.read_text(errors="replace").strip().splitlines()
        last = f": {lines[-1]}" if lines else ""
        message = f"worker {self.number} died ({how}){last}"
        return DemoError(message, ExitStatus.WORKER_DIED)

    def dismiss(self) -> None:
        """Close the connection: the worker releases its lock and ends."""
        self.connection.close()

    def wait(self, timeout: float) -> None:
        """Wait for the worker's end, at most `timeout` seconds; then kill it."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Crew:
    """Run `size` workers as a context manager; none is left when it closes."""

    def __init__(self, size: int, folder: Path) -> None:
        self._size, self._folder = size, folder
        self._workers: list[Worker] = []
        self._busy: dict[Connection, Worker] = {}
        self._outcomes: list[Outcome] = []

    def __enter__(self) -> Crew:
        try:
            for number in range(1, self._size + 1):
                self._workers.append(Worker(number, self._folder))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, job: Job, size: int) -> None:
        """Hand `job` to the first `size` workers; all must be idle."""
        self._outcomes = []
        for worker in self._workers[:size]:
            worker.give(job)
            self._busy[worker.connection] = worker

    def wait(self, timeout: float) -> list[Outcome] | None:
        """Wait up to `timeout` seconds; return all outcomes once the last is in."""
        for each in wait([*self._busy], timeout):
            assert isinstance(each, Connection)  # as they were given
            self._outcomes.append(self._busy.pop(each).outcome())
        return None if self._busy else self._outcomes

    def close(self) -> None:
        """End every worker: first ask all of them, then wait, at last kill."""
        for worker in self._workers:
            worker.dismiss()
        deadline = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.wait(max(0.0, deadline - time.monotonic()))
        self._workers.clear()
