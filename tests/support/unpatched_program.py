"""Take locks where a library of greenlets is loaded and has patched nothing.

python -m tests.support.unpatched_program gevent.monkey

A signal handler takes locks as well, as often as it can.
"""

from __future__ import annotations

import signal
import sys
import time
from importlib import import_module

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters

SECONDS = 1.5
EVERY = 0.00037  # s


def main() -> None:
    import_module(sys.argv[1])
    handled = pairs = 0
    is_handling = False
    with LocalMasters(1) as masters, FastRedlock(masters.urls) as locks:
        locks.connect()

        def handle(*_: object) -> None:
            nonlocal handled, is_handling
            if is_handling:  # a busy machine
                return
            is_handling = True
            handled += 1
            lease = locks.acquire("handler's", timeout=0)
            if lease:
                lease.release()
            is_handling = False

        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
        ended = time.monotonic() + SECONDS
        while time.monotonic() < ended:
            with locks.lock("own"):
                pairs += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert pairs > SECONDS
    assert handled > SECONDS


if __name__ == "__main__":
    main()
