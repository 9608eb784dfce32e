"""One Python contestant in a process of its own: `python -m bench._worker NAME ...`

NAME is a contestant of `_peers` or, as in `asyncio:200`, a player of `_crowds` or, as
in `pottery/ours:1`, of `_swaps`. The other arguments are the key and the masters' URLs.
It speaks the floor's protocol (floor.c): prints `ready`, then answers every line `run
PAIRS` with one line of JSON, and ends with its standard input. The garbage collector is
left on, as in the services that the libraries are made for.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence

from bench._crowds import open_crowd
from bench._drivers import Driver, Single
from bench._peers import PEERS
from bench._swaps import open_swap


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: end without a traceback
    name, key, *urls = sys.argv[1:]
    driver = _open(name, key, urls)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(driver.run(int(line.removeprefix("run ")))), flush=True)
    driver.close()


def _open(name: str, key: str, urls: Sequence[str]) -> Driver:
    if "/" in name:
        return open_swap(name, urls, key)
    if ":" in name:
        return open_crowd(name, urls, key)
    return Single(PEERS[name](), urls, key)


if __name__ == "__main__":
    main()
