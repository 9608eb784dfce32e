"""One process of callers that all want one lock.

`python -m bench.contending.worker LIBRARY CALLERS TTL KEY URL...` has so many threads,
or tasks where the library is `asyncio`. It prints `ready` when it has been connected,
answers every line, a `Job` in JSON, with `done`, and ends with its standard input.
Stamps and the counter under the lock are in files that it maps into memory: they are
there even if it is killed. The garbage collector is left on.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic_ns
from typing import NoReturn

from bench.contending.clients import (
    ASYNCIO,
    LIBRARIES,
    AwaitingCaller,
    Caller,
    open_tasks,
)

_REST = 0.02  # s; the loop reads what is late before it stops


@dataclass(frozen=True, slots=True)
class Job:
    """From `begin_ns` take the lock, hold it, again and again, until `end_ns`.

    `turns`: after so many a caller has done. `log` and `counter` are files.
    """

    begin_ns: int
    end_ns: int
    hold: float
    turns: int
    log: str
    counter: str

    def seconds_to_begin(self) -> float:
        """Return the time until the beginning, 0 when it is over."""
        return max(0, self.begin_ns - monotonic_ns()) / 1e9


class Notes:
    """The log and the counter of a job; each row of the log is one turn's."""

    def __init__(self, job: Job) -> None:
        self._stamps = _mapped(job.log)
        self._counter = _mapped(job.counter)
        self._rows = count()

    def want(self, caller: int, wanted_ns: int) -> int:
        """Note that a caller begins to wait; return its place in the log."""
        at = 4 * next(self._rows)
        self._stamps[at + 1] = wanted_ns
        self._stamps[at] = caller + 1
        return at

    def begin(self, at: int) -> int:
        """Note the grant; return the counter."""
        self._stamps[at + 2] = monotonic_ns()
        return self._counter[0]

    def end(self, at: int, counter: int) -> None:
        """Raise the counter, and note the end of the turn."""
        self._counter[0] = counter + 1
        self._stamps[at + 3] = monotonic_ns()


class Threads:
    """A thread for each caller; one caller is the main thread."""

    def __init__(self, callers: Sequence[Caller]) -> None:
        self._callers = callers
        self._error: BaseException | None = None
        callers[0].release(callers[0].acquire())  # connected

    def run(self, job: Job) -> None:
        notes = Notes(job)
        others = [
            threading.Thread(target=self._guarded, args=(job, notes, i), daemon=True)
            for i in range(1, len(self._callers))
        ]
        for thread in others:
            thread.start()
        self._call(job, notes, 0)
        for thread in others:
            thread.join()
        if self._error:
            raise self._error

    def _guarded(self, job: Job, notes: Notes, i: int) -> None:
        try:
            self._call(job, notes, i)
        except BaseException as error:
            self._error = error
            raise

    def _call(self, job: Job, notes: Notes, i: int) -> None:
        acquire, release = self._callers[i]
        hold, end_ns = job.hold, job.end_ns
        time.sleep(job.seconds_to_begin())
        for _ in range(job.turns):
            if (wanted_ns := monotonic_ns()) >= end_ns:
                break
            at = notes.want(i, wanted_ns)
            lease = acquire()
            counter = notes.begin(at)
            if hold:
                time.sleep(hold)
            notes.end(at, counter)
            release(lease)


class Tasks:
    """A task for each caller, in one loop that lives on."""

    def __init__(self, open_all: Callable[[], Sequence[AwaitingCaller]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._callers = self._loop.run_until_complete(self._open(open_all))

    def run(self, job: Job) -> None:
        self._loop.run_until_complete(self._run(job))

    async def _open(
        self, open_all: Callable[[], Sequence[AwaitingCaller]]
    ) -> Sequence[AwaitingCaller]:
        callers = open_all()
        await callers[0].release(await callers[0].acquire())  # connected
        return callers

    async def _run(self, job: Job) -> None:
        notes = Notes(job)
        await asyncio.sleep(job.seconds_to_begin())
        await asyncio.gather(
            *(self._call(job, notes, i) for i in range(len(self._callers)))
        )
        await asyncio.sleep(_REST)

    async def _call(self, job: Job, notes: Notes, i: int) -> None:
        acquire, release = self._callers[i]
        hold, end_ns = job.hold, job.end_ns
        for _ in range(job.turns):
            if (wanted_ns := monotonic_ns()) >= end_ns:
                break
            at = notes.want(i, wanted_ns)
            lease = await acquire()
            counter = notes.begin(at)
            if hold:
                await asyncio.sleep(hold)
            notes.end(at, counter)
            await release(lease)


def main() -> NoReturn:
    """Run jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: end without a traceback
    library, callers, ttl, key, *urls = sys.argv[1:]
    crew: Threads | Tasks
    if library == ASYNCIO:
        crew = Tasks(lambda: open_tasks(urls, key, int(callers), float(ttl)))
    else:
        opening = LIBRARIES[library].open
        crew = Threads(opening(urls, key, int(callers), float(ttl)))
    print("ready", flush=True)
    for line in sys.stdin:
        crew.run(Job(**json.loads(line)))
        print("done", flush=True)
    sys.exit(0)


def _mapped(path: str) -> memoryview:
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")


if __name__ == "__main__":
    main()
