"""The parent's end of a contestant: start its process, have it run blocks, end it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bench._floor import floor_program
from bench._peers import CONTROL, FLOOR
from bench._servers import port_of

_ROOT = Path(__file__).parent.parent
_END_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Block:
    """What one block of pairs cost one contestant."""

    pairs: int
    p50_us: float
    p99_us: float
    pairs_per_s: float
    cpu_us_per_pair: float
    own_syscalls: int | None  # of the whole block, as the floor counts them itself


class Contestant:
    """A contestant's process, idle between blocks; a context manager.

    Args:
        name: One of `bench._peers.CONTESTANTS`, `CONTROL`, or a player of
            `bench._crowds` such as `asyncio:200`.
        urls: The masters, `redis://127.0.0.1:<port>/0` each.
        prefix: A command to run it under, such as a tracer with its options.

    Raises:
        RuntimeError: The process ended early; its last words are on standard error.
    """

    def __init__(
        self, name: str, urls: Sequence[str], *, prefix: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [*prefix, *_command(name, urls)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        try:
            self._read_line()
        except BaseException:
            self.close()
            raise

    def run(self, pairs: int) -> Block:
        """Have it run one block; block until it has."""
        if self._process.stdin is None:
            raise RuntimeError("the process has no standard input")
        self._process.stdin.write(f"run {pairs}\n")
        self._process.stdin.flush()
        answer = json.loads(self._read_line())
        latencies_ns = sorted(answer["latencies_ns"] or [math.nan])
        pairs = answer["pairs"]  # more than asked for where only whole batches are done
        return Block(
            pairs=pairs,
            p50_us=latencies_ns[len(latencies_ns) // 2] / 1e3,
            p99_us=latencies_ns[len(latencies_ns) * 99 // 100] / 1e3,
            pairs_per_s=pairs * 1e9 / answer["wall_ns"],
            cpu_us_per_pair=answer["cpu_ns"] / 1e3 / pairs,
            own_syscalls=answer.get("syscalls"),
        )

    def close(self) -> None:
        """End it by closing its standard input, or kill it when it does not listen."""
        try:
            self._process.communicate(timeout=_END_TIMEOUT)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read_line(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            code = self._process.wait(_END_TIMEOUT)
            raise RuntimeError(f"{self.name} ended early, with exit status {code}")
        return line


def _command(name: str, urls: Sequence[str]) -> list[str]:
    # Fixed width, so that no contestant has a shorter key; own keys per process.
    key = f"bench:{os.getpid():07d}:{os.urandom(4).hex()}"
    if name in (FLOOR, CONTROL):
        return [str(floor_program()), key, *(str(port_of(url)) for url in urls)]
    if name.startswith(f"{FLOOR}:"):
        size = name.partition(":")[2]  # of a batch, and so many pairs are in flight
        program = str(floor_program("pipeline_floor"))
        return [program, key, size, size, *(str(port_of(url)) for url in urls)]
    return [sys.executable, "-m", "bench._worker", name, key, *urls]
