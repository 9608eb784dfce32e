"""A contestant's process, seen from the bench: start it, have it run blocks, end it."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contestants.node_redlock import node_command
from bench.contestants.tables import FLOOR, NATIVE_FLOOR, NODE
from bench.floor.build import floor_program
from bench.harness.servers import port_of

ROOT = Path(__file__).parents[2]
_END_TIMEOUT = 10.0
_GRACE = 20.0  # s; the longest pair of a library with retries, beyond its block


@dataclass(frozen=True, slots=True)
class Block:
    """The cost of one block of pairs for one contestant."""

    pairs: int
    p50_us: float
    p99_us: float
    pairs_per_s: float
    cpu_us: float  # per pair
    failures: int
    own_syscalls: int | None  # of the whole block, as the floor counts them itself
    servers_cpu_us: float = math.nan  # per pair, of all masters; who runs it counts


class Process:
    """The process of one entry, idle between blocks; `close` it.

    Args:
        entry: As in `bench.contestants.tables`.
        urls: The masters, `redis://127.0.0.1:<port>/0` each.
        prefix: A command to run it under, such as a tracer with its options.

    Raises:
        RuntimeError: The process ended early; its last words are on standard error.
    """

    def __init__(
        self, entry: str, urls: Sequence[str], *, prefix: Sequence[str] = ()
    ) -> None:
        self.entry = entry
        self._process = subprocess.Popen(
            [*prefix, *_command(entry, urls)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            self._read_line()
        except BaseException:
            self.close()
            raise

    def run(self, pairs: int) -> Block:
        """Have it run one block; block until it has."""
        self._write_line(f"run {pairs}")
        return _block_of(self._read_line())

    def attempt(self, pairs: int, seconds: float) -> Block:
        """Have one caller try so many pairs, or so long; a failed one is counted.

        Raises:
            TimeoutError: A pair did not come back; the process was killed.
        """
        self._write_line(f"attempt {pairs} {seconds}")
        answers = [self._process.stdout.fileno()] if self._process.stdout else []
        if not select.select(answers, [], [], seconds + _GRACE)[0]:
            self._process.kill()
            raise TimeoutError(f"{self.entry} hangs")
        return _block_of(self._read_line())

    def close(self) -> None:
        """End it by closing its standard input, or kill it when it does not listen."""
        try:
            self._process.communicate(timeout=_END_TIMEOUT)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()

    def _write_line(self, line: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError("the process has no standard input")
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read_line(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            code = self._process.wait(_END_TIMEOUT)
            raise RuntimeError(f"{self.entry} ended early, with exit status {code}")
        return line


def _block_of(line: str) -> Block:
    answer = json.loads(line)
    latencies_ns = sorted(answer["latencies_ns"] or [math.nan])
    pairs = answer["pairs"]  # more than asked for where only whole batches are done
    return Block(
        pairs=pairs,
        p50_us=latencies_ns[len(latencies_ns) // 2] / 1e3,
        p99_us=latencies_ns[len(latencies_ns) * 99 // 100] / 1e3,
        pairs_per_s=pairs * 1e9 / answer["wall_ns"],
        cpu_us=answer["cpu_ns"] / 1e3 / pairs,
        failures=answer.get("failures", 0),
        own_syscalls=answer.get("syscalls"),
    )


def _command(entry: str, urls: Sequence[str]) -> list[str]:
    # Fixed width, so that no contestant has a shorter key; own keys per process.
    key = f"bench:{os.getpid():07d}:{os.urandom(4).hex()}"
    ports = [str(port_of(url)) for url in urls]
    name, _, size = entry.partition(":")
    if name in (FLOOR, NATIVE_FLOOR):
        native = ["native"] if name == NATIVE_FLOOR else []
        if not size:
            return [str(floor_program()), *native, f"{key}:00000", *ports]
        # of a batch, and so many pairs are in flight
        return [
            str(floor_program("pipeline_floor")), *native, key, size, size, *ports,
        ]  # fmt: skip
    if name == NODE:
        return [*node_command(int(size or 1)), key, *urls]
    return [sys.executable, "-m", "bench.harness.worker", entry, key, *urls]
