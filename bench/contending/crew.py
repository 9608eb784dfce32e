"""Processes that want one lock, seen from the bench: start, run windows, end.

Everything has a time limit: a process that has not ended its part in time, which is
how a lost waiter looks, is killed, and a note names it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from time import monotonic_ns

from bench.contending.clients import OURS
from bench.contending.turns import RECORD, Run, Turn, Window, turns_of
from bench.contending.worker import Job
from bench.contestants.base import TTL
from bench.harness.process import ROOT

_START_TIMEOUT = 60.0  # s; fifty processes on a busy machine
_GRACE = 15.0  # s after a window; the last wait of a library that draws long delays
_END_TIMEOUT = 10.0
_FASTEST = 1_000_000  # turns/s for which there is room; a file without them takes none
_ENDLESS = sys.maxsize
_MEMORY = Path("/dev/shm")


class Crew:
    """Processes of one library with a number of callers each; `close` it.

    Raises RuntimeError if one of them does not come up.
    """

    def __init__(
        self,
        urls: Sequence[str],
        library: str = OURS,
        *,
        processes: int = 1,
        callers: int = 1,
        ttl: float = TTL,
        key: str = "",
    ) -> None:
        self.key = key or new_key()
        self.notes: list[str] = []
        self._callers = callers
        folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(dir=folder)
        self._window = Window(0, 0, 0)
        command = [sys.executable, "-m", "bench.contending.worker", library]
        command += [str(callers), str(ttl), self.key, *urls]
        self._processes: list[subprocess.Popen[str]] = []
        try:
            for _ in range(processes):
                self._processes.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                        cwd=ROOT,
                    )
                )
            self._await_all("ready", time.monotonic() + _START_TIMEOUT)
            if self.notes:
                raise RuntimeError(self.notes[0])
        except BaseException:
            self.close()
            raise

    def run(
        self, seconds: float, hold: float = 0.0, *, lead: float | None = None
    ) -> Run:
        """Have all callers contend for so long; block until all have ended."""
        self.start(self.soon(seconds, lead=lead), hold)
        return self.finish()

    def soon(self, seconds: float, *, lead: float | None = None) -> Window:
        """Return a window that all processes hear of in time.

        Its first part, `lead` s, does not count: who came first has no more weight.
        """
        lead = min(0.3, seconds / 4) if lead is None else lead
        begin_ns = monotonic_ns() + int((0.05 + 0.003 * len(self._processes)) * 1e9)
        start_ns = begin_ns + int(lead * 1e9)
        return Window(begin_ns, start_ns, start_ns + int(seconds * 1e9))

    def start(self, window: Window, hold: float = 0.0, turns: int = _ENDLESS) -> None:
        """Announce a window to all callers; each has so many turns at most."""
        self._window = window
        seconds = (window.end_ns - window.begin_ns) / 1e9
        rows = int(seconds * min(_FASTEST, self._callers / max(hold, 1e-9)))
        rows = min(turns * self._callers, rows + 2 * self._callers)
        _make(self._counter(), 8)
        for i, process in enumerate(self._processes):
            _make(self._log(i), rows * RECORD.size)
            job = Job(
                begin_ns=window.begin_ns,
                end_ns=window.end_ns,
                hold=hold,
                turns=turns,
                log=str(self._log(i)),
                counter=str(self._counter()),
            )
            _write_line(process, json.dumps(asdict(job)))

    def finish(self) -> Run:
        """Wait until all callers have ended; return their turns."""
        until = self._window.end_ns / 1e9 + _GRACE
        self._await_all("done", until)
        return self._result()

    def kill(self) -> Run:
        """End the processes by SIGKILL; return the turns until then."""
        for process in self._processes:
            process.kill()
            process.wait(_END_TIMEOUT)
        return self._result()

    def close(self) -> None:
        """End the processes, and remove their files."""
        for process in self._processes:
            if process.stdin:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        self._folder.cleanup()

    def _result(self) -> Run:
        turns: list[Turn] = []
        for i in range(len(self._processes)):
            turns += turns_of(self._log(i).read_bytes(), i, self._callers)
        return Run(
            window=self._window,
            callers=len(self._processes) * self._callers,
            turns=turns,
            updates=int.from_bytes(self._counter().read_bytes(), sys.byteorder),
            notes=[*self.notes],
        )

    def _await_all(self, word: str, until: float) -> None:
        """Read one line of each process; kill those that write nothing in time."""
        for i, process in enumerate(self._processes):
            line = _read_line(process, until)
            if line == word:
                continue
            if process.poll() is None:
                process.kill()
            process.wait(_END_TIMEOUT)
            what = "did not end in time" if line is None else "failed"
            self.notes.append(f"process {i + 1} of {len(self._processes)} {what}")

    def _counter(self) -> Path:
        return Path(self._folder.name, "counter")

    def _log(self, i: int) -> Path:
        return Path(self._folder.name, f"{i}.log")


def new_key() -> str:
    """Return the name of a lock that no other run uses."""
    return f"bench:contend:{os.urandom(4).hex()}"


def _make(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)  # a hole, and zeros


def _write_line(process: subprocess.Popen[str], line: str) -> None:
    if process.stdin is None:
        raise RuntimeError("the process has no standard input")
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _read_line(process: subprocess.Popen[str], until: float) -> str | None:
    """Return a line, nothing of a process that ended, None when time is up."""
    if process.stdout is None:
        return ""
    left = max(0.0, until - time.monotonic())
    if not select.select([process.stdout], [], [], left)[0]:
        return None
    return process.stdout.readline().rstrip()
