"""Run the demo's worker processes: start them, hand out jobs, collect, end them.

Every worker runs `worker.main` in a session of its own, so that a Ctrl-C in the
terminal reaches the demo alone, which then ends its workers in order. They end by
themselves when their stdin closes, whatever became of the demo.
"""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from .errors import DemoError, ExitStatus
from .job import Job, Outcome

_PROGRAM = """\
import sys
sys.path[:] = {path!r}
from fastredlock.demo.worker import main
main(*sys.argv[1:])
"""  # not `-m`, which would prefer a fastredlock in the working directory
_GRACE = 2.0  # s; more than a worker gives itself, then it is killed
_READ_BYTES = 1 << 16


class Worker:
    """Hold one worker process, its two pipes and the file for its complaints."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self._complaints = folder / f"worker-{number}.stderr"
        self._received = bytearray()
        program = _PROGRAM.format(path=sys.path)
        with self._complaints.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(number), str(folder)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        assert self._process.stdin is not None  # PIPE, PIPE
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout

    def give(self, job: Job) -> None:
        """Hand the worker its next job; raise `DemoError` if it has died."""
        try:
            self._stdin.write(job.to_line())
        except BrokenPipeError:
            raise self.death() from None

    def read(self) -> Outcome | None:
        """Read the output so far, without waiting; return the outcome once complete."""
        chunk = self.stdout.read(_READ_BYTES)
        if not chunk:
            raise self.death()
        self._received += chunk
        if not self._received.endswith(b"\n"):
            return None
        line = bytes(self._received)
        self._received.clear()
        return Outcome.from_line(line)

    def death(self) -> DemoError:
        """Return the error that says how this worker ended."""
        self.kill()
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        lines = self._complaints.read_text(errors="replace").strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        message = f"worker {self.number} died ({how}){said}"
        return DemoError(message, ExitStatus.WORKER_DIED)

    def dismiss(self) -> None:
        """Close the worker's stdin: it releases its lock and ends."""
        self._stdin.close()

    def wait(self, timeout: float) -> None:
        """Wait for the worker's end, at most `timeout` seconds; then kill it."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.stdout.close()

    def kill(self) -> None:
        """Give a worker a moment to end after its stdout has ended, then kill it."""
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Crew:
    """Run `size` workers as a context manager; none is left when it closes."""

    def __init__(self, size: int, folder: Path) -> None:
        self._size, self._folder = size, folder
        self._workers: list[Worker] = []
        self._busy = selectors.DefaultSelector()
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
            self._busy.register(worker.stdout, selectors.EVENT_READ, worker)

    def wait(self, timeout: float) -> list[Outcome] | None:
        """Wait up to `timeout` seconds; return all outcomes once the last is in."""
        for key, _ in self._busy.select(timeout):
            worker: Worker = key.data
            outcome = worker.read()
            if outcome is not None:
                self._busy.unregister(worker.stdout)
                self._outcomes.append(outcome)
        return None if self._busy.get_map() else self._outcomes

    def close(self) -> None:
        """End every worker: first ask all of them, then wait, at last kill."""
        for worker in self._workers:
            worker.dismiss()
        deadline = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.wait(max(0.0, deadline - time.monotonic()))
        self._workers.clear()
        self._busy.close()
