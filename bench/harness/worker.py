"""The process of one contestant written in Python.

`python -m bench.harness.worker ENTRY KEY URL...` speaks the floor's protocol (floor.c):
prints `ready`, then answers every line `run PAIRS` with one line of JSON, and ends with
its standard input. A line `attempt PAIRS SECONDS` runs a block whose failures are
counted and not fatal. The garbage collector is left on, as in the services that the
libraries are made for.
"""

from __future__ import annotations

import json
import logging
import signal
import sys

from bench.contestants.tables import open_entry
from bench.harness.drivers import Driver, Threads, Timing


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: end without a traceback
    entry, key, *urls = sys.argv[1:]
    driver = open_entry(entry, urls, key)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(driver, line)), flush=True)
    driver.close()


def _answer(driver: Driver, line: str) -> Timing:
    verb, pairs, *seconds = line.split()
    if verb == "run":
        return driver.run(int(pairs))
    if not isinstance(driver, Threads):
        raise TypeError("only a blocking contestant attempts pairs")
    logging.disable()  # redlock-py logs every error of every unlock
    return driver.attempt(int(pairs), float(seconds[0]))


if __name__ == "__main__":
    main()
