"""Count the system calls of a pair from outside the process, with a kernel tracer.

An entry runs twice under the tracer, with a few and with many pairs.  The
difference of the two counts belongs to the pairs alone: start, imports, connecting and
the end cancel out.  All threads are counted.  `perf stat` only counts, so the process
runs at its normal speed; `strace` stops it at every call, so that replies are there
before they are waited for and a few waits less are seen.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.harness.process import Process

_FEW_PAIRS = 100
_PASSES = 5  # the median is shown
_EVENT = "raw_syscalls:sys_enter"


@dataclass(frozen=True, slots=True)
class Tracer:
    """A way to count, or (`name` None) the reason why there is none."""

    name: str | None
    command: tuple[str, ...] = ()  # the file for the counts comes next
    tail: tuple[str, ...] = ()
    parse: Callable[[str], int] = int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SyscallCount:
    """System calls per pair, from outside and, the floor only, by its own count."""

    per_pair: float
    own_per_pair: float | None


def find_tracer() -> Tracer:
    """Return the first tracer that is installed and allowed here, tried out."""
    reasons = []
    for tracer in (_PERF, _STRACE):
        reason = _refusal(tracer)
        if not reason:
            return tracer
        reasons.append(f"{tracer.command[0]}: {reason}")
    return Tracer(None, reason="; ".join(reasons))


def count_syscalls(
    tracer: Tracer, entry: str, urls: Sequence[str], pairs: int
) -> SyscallCount:
    """Run an entry twice under the tracer; `pairs` more the second time."""
    few, few_own = _count_blocks(tracer, entry, urls, [_FEW_PAIRS])
    many, many_own = _count_blocks(tracer, entry, urls, [_FEW_PAIRS, pairs])
    return SyscallCount(
        per_pair=(many - few) / pairs,
        own_per_pair=(many_own - few_own) / pairs if many_own else None,
    )


def count_in_alternation(
    tracer: Tracer, entries: Sequence[str], urls: Sequence[str], pairs: int
) -> dict[str, SyscallCount]:
    """Return the median counts of some passes; nothing without a tracer.

    In alternation too: how many replies come at once differs from run to run.
    """
    if not tracer.name:
        return {}
    passes = [
        {entry: count_syscalls(tracer, entry, urls, pairs) for entry in entries}
        for _ in range(_PASSES)
    ]
    return {
        entry: sorted((counts[entry] for counts in passes), key=_per_pair)[_PASSES // 2]
        for entry in entries
    }


def _per_pair(count: SyscallCount) -> float:
    return count.per_pair


def _count_blocks(
    tracer: Tracer, entry: str, urls: Sequence[str], blocks: Sequence[int]
) -> tuple[int, int]:
    """Return the tracer's count and the process's own (0 when it keeps none)."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "counts")
        prefix = [*tracer.command, str(output), *tracer.tail]
        with closing(Process(entry, urls, prefix=prefix)) as process:
            own = sum(process.run(pairs).own_syscalls or 0 for pairs in blocks)
        return tracer.parse(output.read_text()), own


def _refusal(tracer: Tracer) -> str:
    """Try a tracer on a program that does nothing; return why it fails, or nothing."""
    if not shutil.which(tracer.command[0]):
        return "not on PATH"
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "counts")
        command = [*tracer.command, str(output), *tracer.tail, "true"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=30)
            tracer.parse(output.read_text())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def _parse_perf(text: str) -> int:
    for line in text.splitlines():
        count, _, rest = line.partition(",")
        if _EVENT in rest:
            return int(count)
    raise ValueError("no count in its output")


def _parse_strace(text: str) -> int:
    """Add up the column `calls` of `strace -c`; its own total line differs by version.

    A row is: % time, seconds, usecs/call, calls, errors (or nothing), syscall.
    """
    rows = [line.split() for line in text.splitlines()]
    calls = [
        int(row[3])
        for row in rows
        if len(row) in (5, 6) and row[3].isdigit() and row[-1] != "total"
    ]
    if not calls:
        raise ValueError("no counts in its output")
    return sum(calls)


_PERF = Tracer(
    "perf stat", ("perf", "stat", "-x", ",", "-e", _EVENT, "-o"), ("--",), _parse_perf
)
_STRACE = Tracer("strace", ("strace", "-f", "-c", "-o"), ("--",), _parse_strace)
