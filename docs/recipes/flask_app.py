"""Flask under gunicorn, also with preload: an order is shipped by one worker at a time.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... JOURNAL=... \\
    gunicorn --preload --workers 4 flask_app:app

With `--preload` this module is imported once, and the workers are forked from it. The
locks at its head may even be used before: each worker opens connections of its own.
"""

from __future__ import annotations

import logging
import os
import time

from flask import Flask, Response, jsonify

from fastredlock import FastRedlock, FastRedlockError, ResourceTakenError

log = logging.getLogger(__name__)
locks = FastRedlock.from_env(ttl=10)
app = Flask(__name__)


def write(order: int, step: int) -> None:
    """Do a part of the work."""
    with open(os.environ["JOURNAL"], "a") as lines:
        lines.write(f"{time.monotonic_ns()} {os.getpid()} {step}\n")
    time.sleep(0.05)


@app.post("/orders/<int:order>/ship")
def ship(order: int) -> Response:
    """Ship an order; wait for 5 s at most while another request does."""
    with locks.lock(f"orders:{order}", timeout=5, keep_alive=True) as lease:
        for step in range(3):
            lease.check()  # before each step: this process may have stood still
            write(order, step)
        return jsonify(order=order, pid=os.getpid())


@app.errorhandler(ResourceTakenError)
def taken(error: ResourceTakenError) -> tuple[Response, int, dict[str, str]]:
    """Let the client come again."""
    return jsonify(detail="in progress"), 409, {"Retry-After": "1"}


@app.errorhandler(FastRedlockError)
def failed(error: FastRedlockError) -> tuple[Response, int]:
    """Log the cause; the answer has no address of a master."""
    log.error("%s", error)
    return jsonify(detail="not done: try again later"), 503


with locks.lock("flask_app:start"):  # before the workers are forked, with --preload
    pass
