"""RedBeat, a scheduler of Celery, on the lock: one beat at a time, and a standby."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec

import pytest

from tests.compat.redis.face import OURS
from tests.support.fixtures import Servers
from tests.support.processes import environment_of_children
from tests.support.waiting import SLACK, wait_until

TIMEOUT, TICK = 2, 0.4  # s
KEY = "redbeat::lock"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("redbeat") is None, reason="not installed"),
]


@contextmanager
def beat(module: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """Run `celery beat` with RedBeat's scheduler, and locks of this module."""
    settings = {"URL": url, "LOCK": module, "TIMEOUT": str(TIMEOUT), "TICK": str(TICK)}
    argv = ("-A", "tests.support.redbeat_app", "beat", "-S", "redbeat.RedBeatScheduler")
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", *argv, "--loglevel", "info"],
        env=environment_of_children()
        | {f"REDBEAT_{name}": value for name, value in settings.items()},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def until_said(process: subprocess.Popen[str], text: str) -> None:
    """Wait until the log of a beat has this."""
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"never said: {text}"


def test_redbeat_when_it_ticks_then_replaces_the_time_and_its_standby_follows(
    servers: Servers, urls: list[str]
) -> None:
    server, lefts_ms = servers[0], []
    with beat(OURS, urls[0]) as first, ExitStack() as later:
        until_said(first, "beat: Acquired lock")
        token = server.get(KEY)
        standby = later.enter_context(beat(OURS, urls[0]))
        until_said(standby, "beat: Starting")
        ticking_until = time.monotonic() + 1.5 * TIMEOUT
        while time.monotonic() < ticking_until:
            lefts_ms.append(server.pttl(KEY))
            time.sleep(0.02)  # the time left is looked at again and again
        assert server.get(KEY) == token
        assert 0 < min(lefts_ms) < max(lefts_ms) <= TIMEOUT * 1000
        first.kill()
        assert wait_until(
            lambda: server.get(KEY) not in (token, None), TIMEOUT + TICK + SLACK
        )
        assert server.pttl(KEY) <= TIMEOUT * 1000
