"""RQ, Huey and APScheduler: real workers, a real broker, one at a time."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import wait_until

from .programs import PATIENCE, Journal, answer_of, environment_of, running

PARTS = 10
RQ = """
import os, redis, sys
from rq import Queue, Retry, Worker
from rq_jobs import report
queue = Queue("reports", connection=redis.Redis.from_url(os.environ["BROKER"]))
if sys.argv[1:] == ["work"]:
    Worker([queue], connection=queue.connection).work(with_scheduler=True)
else:
    for _ in range(3):
        queue.enqueue(report, "orders", 10, retry=Retry(max=60, interval=1))
"""
HUEY = "from huey_tasks import report\nfor _ in range(3): report('orders', 10)"
SCHEDULED = """
import datetime, threading
from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler_job import scheduler
(job,) = scheduler.get_jobs()
now = datetime.datetime.now(datetime.UTC)
job.modify(next_run_time=now, misfire_grace_time=60)  # a busy machine starts late
has_run = threading.Event()
scheduler.add_listener(lambda event: has_run.set(), EVENT_JOB_EXECUTED)
threading.Thread(target=scheduler.start, daemon=True).start()
has_run.wait()  # shutdown() beside the thread that begins the job may raise there
"""


def needs(library: str) -> pytest.MarkDecorator:
    missing = find_spec(library) is None
    return pytest.mark.skipif(missing, reason="not installed: extra test")


pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("send", "work"),
    [
        pytest.param(RQ, ["-c", RQ, "work"], marks=needs("rq"), id="rq"),
        pytest.param(
            HUEY,
            ["-m", "huey.bin.huey_consumer", "huey_tasks.huey", "--workers", "2"],
            marks=needs("huey"),
            id="huey",
        ),
    ],
)
def test_tasks_when_three_are_of_one_account_then_run_one_after_the_other(
    send: str, work: list[str], emptied: LocalMasters, journal: Journal
) -> None:
    with LocalMasters(1) as broker, ExitStack() as opened:
        common = {"BROKER": broker.urls[0], "JOURNAL": str(journal.path)}
        environment = environment_of(emptied.urls, **common)
        answer_of(send, environment)
        for _ in range(2):
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            opened.enter_context(
                running([sys.executable, *work], environment, **silent)
            )
        done = wait_until(lambda: len(journal.steps()) == 3 * PARTS, 3 * PATIENCE)
        assert done, f"{len(journal.steps())} steps"
    assert len(journal.check()) == 3


@needs("apscheduler")
def test_job_when_three_schedulers_have_it_then_runs_once(
    emptied: LocalMasters, journal: Journal
) -> None:
    environment = environment_of(emptied.urls, JOURNAL=str(journal.path))
    with ExitStack() as opened:
        command = [sys.executable, "-c", SCHEDULED]
        hosts = [opened.enter_context(running(command, environment)) for _ in range(3)]
        assert [host.wait(PATIENCE) for host in hosts] == [0] * 3
    assert len(journal.check()) == 1
    assert len(journal.steps()) == 3
