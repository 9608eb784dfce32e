"""What does an acquire and release cost while one of five masters is out of order?

Each contestant has one process per condition, and they play in turns: healthy, paused,
black-holed, refusing, healthy, ... A pair that fails or is not granted is counted and
timed as well: that is what its caller sees. The peers get socket timeouts (their own
default is none, with which a paused master stops them for ever), and a block ends after
`--seconds`; a process that does not end in time is killed and shown as hanging.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter_ns

from bench._machine import machine_line, versions_line
from bench._peers import LABELS, PEERS, is_installed
from bench._servers import server_version

HEALTHY = "all healthy"
CONDITIONS = (HEALTHY, "paused", "black-holed", "refusing")
PLAYERS = ("fastredlock", "redlock-py", "pottery")
PEER_OPTIONS = "?socket_timeout=0.2&socket_connect_timeout=0.2"
GRACE = 20.0  # s; the longest pair of a peer with retries, and then it is killed
_ROOT = Path(__file__).parent.parent


class Player:
    """One contestant under one condition, in a process of its own."""

    def __init__(self, name: str, urls: Sequence[str]) -> None:
        if name != "fastredlock":
            urls = [url + PEER_OPTIONS for url in urls]
        key = f"degraded:{os.urandom(4).hex()}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--worker", name, key, *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
        )
        self.latencies_ns: list[list[int]] = []
        self.failures = 0
        self.hangs = False

    def play(self, pairs: int, seconds: float, is_timed: bool = True) -> None:
        """Run one block; kill the process where it does not come back."""
        stdin, stdout = self.process.stdin, self.process.stdout
        if self.hangs or stdin is None or stdout is None:
            return
        stdin.write(f"{pairs} {seconds}\n".encode())
        stdin.flush()
        if not select.select([stdout], [], [], seconds + GRACE)[0]:
            self.process.kill()
            self.hangs = True
            return
        told = json.loads(stdout.readline())
        if is_timed:
            self.latencies_ns.append(sorted(told["latencies_ns"]))
            self.failures += told["failures"]

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


def work(name: str, key: str, urls: Sequence[str]) -> None:
    """Answer each line `PAIRS SECONDS` with what those pairs took."""
    import logging

    logging.disable()  # redlock-py logs every error of every unlock
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    peer = PEERS[name]()
    peer.open(urls, key)
    for line in sys.stdin:
        pairs, seconds = int(line.split()[0]), float(line.split()[1])
        latencies_ns: list[int] = []
        failures = 0
        end_ns = perf_counter_ns() + int(seconds * 1e9)
        while len(latencies_ns) < pairs and perf_counter_ns() < end_ns:
            start_ns = perf_counter_ns()
            try:
                peer.pair()
            except Exception:  # whatever a peer raises, its caller has no lock
                failures += 1
            latencies_ns.append(perf_counter_ns() - start_ns)
        told = {"latencies_ns": latencies_ns, "failures": failures}
        print(json.dumps(told), flush=True)


@contextmanager
def _black_hole() -> Iterator[str]:
    """Yield a URL that swallows the SYN: the accept queue is full (listen(2))."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            select.select([], [filler], [], 0.05)
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def measure(
    names: Sequence[str], pairs: int, blocks: int, seconds: float
) -> tuple[dict[tuple[str, str], Player], str]:
    """Return the players by (name, condition), and the server's version."""
    from fastredlock.testing import LocalMasters

    players: dict[tuple[str, str], Player] = {}
    with ExitStack() as opened:
        for condition in CONDITIONS:
            masters = opened.enter_context(LocalMasters(5))
            urls = list(masters.urls)
            if condition == "black-holed":
                urls[0] = opened.enter_context(_black_hole())
            for name in names:
                players[name, condition] = Player(name, urls)
                opened.callback(players[name, condition].close)
                if condition in (HEALTHY, "paused"):
                    players[name, condition].play(20, seconds, is_timed=False)
            if condition == "paused":
                masters.pause(0)
            elif condition == "refusing":
                masters.stop(0)
        version = server_version(urls[1])
        for block in range(blocks + 1):  # the first one is the warm-up
            print(f"block {block} of {blocks} ...", file=sys.stderr, flush=True)
            for player in players.values():
                player.play(pairs, seconds, is_timed=block > 0)
    return players, version


def table(names: Sequence[str], players: dict[tuple[str, str], Player]) -> str:
    """Return the Markdown table; ratios are medians of the ratios within a block."""
    lines = [
        "| contestant | one of five is | p50 µs | p99 µs | p50 / healthy "
        "| p99 / healthy | pairs | failed |",
        "|:--|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for name in names:
        base = players[name, HEALTHY].latencies_ns
        for condition in CONDITIONS:
            player = players[name, condition]
            timed = player.latencies_ns
            if player.hangs or not timed:
                lines.append(f"| {LABELS[name]} | {condition} | hangs | | | | | |")
                continue
            cells = [f"{median(_at(each, q) for each in timed):,.0f}" for q in (50, 99)]
            cells += [
                f"{median(map(_ratio, timed, base, [q] * len(timed))):.2f}x"
                for q in (50, 99)
            ]
            count = sum(map(len, timed))
            lines.append(
                f"| {LABELS[name]} | {condition} | {' | '.join(cells)} "
                f"| {count:,} | {player.failures:,} |"
            )
    return "\n".join(lines)


def _at(latencies_ns: Sequence[int], percent: int) -> float:
    return latencies_ns[len(latencies_ns) * percent // 100] / 1e3


def _ratio(ours: Sequence[int], base: Sequence[int], percent: int) -> float:
    return _at(ours, percent) / _at(base, percent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; return 0."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] == "--worker":
        work(arguments[1], arguments[2], arguments[3:])
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m bench.bench_degraded", description=__doc__
    )
    parser.add_argument("--pairs", type=int, default=500, help="pairs in a block")
    parser.add_argument("--blocks", type=int, default=7, help="blocks per condition")
    parser.add_argument("--seconds", type=float, default=2, help="longest block, s")
    options = parser.parse_args(arguments)
    names = [name for name in PLAYERS if is_installed(name)]
    players, version = measure(names, options.pairs, options.blocks, options.seconds)
    print(table(names, players))
    print(f"\n- Machine: {machine_line(version)}.\n- Versions: {versions_line(names)}.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
