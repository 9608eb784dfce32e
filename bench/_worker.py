"""One Python contestant in a process of its own: `python -m bench._worker NAME ...`

The other arguments are the key and the masters' URLs.  It speaks the floor's protocol
(floor.c): prints `ready`, then answers every line `run PAIRS` with one line of JSON,
and ends with its standard input.  The garbage collector is left on, as in the services
that the libraries are made for.
"""

from __future__ import annotations

import json
import signal
import sys
from time import perf_counter_ns, process_time_ns

from bench._peers import PEERS, Peer


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: end without a traceback
    name, key, *urls = sys.argv[1:]
    peer = PEERS[name]()
    peer.open(urls, key)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_run_block(peer, int(line.removeprefix("run ")))), flush=True)
    peer.close()


def _run_block(peer: Peer, pairs: int) -> dict[str, int | list[int]]:
    pair = peer.pair
    latencies_ns = [0] * pairs
    cpu_ns = process_time_ns()
    block_start_ns = perf_counter_ns()
    for i in range(pairs):
        start_ns = perf_counter_ns()
        pair()
        latencies_ns[i] = perf_counter_ns() - start_ns
    wall_ns = perf_counter_ns() - block_start_ns
    cpu_ns = process_time_ns() - cpu_ns
    return {
        "pairs": pairs,
        "wall_ns": wall_ns,
        "cpu_ns": cpu_ns,
        "latencies_ns": latencies_ns,
    }


if __name__ == "__main__":
    main()
