"""Celery tasks of unknown length, on real workers and a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import wait_until

from .programs import (
    PATIENCE,
    Journal,
    Trouble,
    answer_of,
    celery_worker,
    environment_of,
)

TTL = 3.0  # s; the program's
CONCURRENCY = 2
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("celery") is None, reason="not installed: extra test"),
]


class Farm:
    """A broker, three masters, and workers that are started one by one."""

    def __init__(
        self, urls: list[str], broker: str, journal: Journal, **more: str
    ) -> None:
        self._common = {"BROKER": broker, "JOURNAL": str(journal.path), **more}
        self._urls = urls
        self._opened = ExitStack()

    def start(self, *urls: str) -> None:
        """Start a worker that reaches the masters here."""
        options = ("--concurrency", str(CONCURRENCY), "--loglevel", "warning")
        worker = celery_worker("celery_worker", self._environment(urls), *options)
        self._opened.enter_context(worker)

    def send(self, parts: int, **options: float) -> None:
        """Ask for a report of the one account that there is."""
        words = f"report.apply_async(['orders', {parts}], **{options})"
        code = f"from celery_worker import report; {words}"
        answer_of(code, self._environment(()))

    def _environment(self, urls: tuple[str, ...]) -> dict[str, str]:
        return environment_of(urls or self._urls, **self._common)

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def farm(emptied: LocalMasters, journal: Journal) -> Iterator[Farm]:
    with LocalMasters(1) as broker:
        farm = Farm(emptied.urls, broker.urls[0], journal)
        yield farm
        farm.close()


def test_tasks_when_two_are_of_one_account_then_run_one_after_the_other(
    farm: Farm, journal: Journal
) -> None:
    farm.start()
    for _ in range(2):
        farm.send(parts=32)  # longer than the ttl
    assert journal.has(64)
    assert len(journal.check()) == 2


def test_task_when_its_soft_time_limit_is_over_then_ends_and_frees_the_lock(
    farm: Farm, journal: Journal
) -> None:
    farm.start()
    farm.send(parts=1000, soft_time_limit=TTL + 1)
    first = journal.until_new()
    farm.send(parts=1000)
    assert wait_until(lambda: len(journal.check()) == 2, PATIENCE)
    assert journal.check()[0] == first
    last, next = journal.ends_and_beginnings()[0]
    assert (next.at_ns - last.at_ns) / 1e9 < TTL - 0.5  # by the release, at a retry


def test_task_when_its_process_is_in_trouble_then_stops_before_another_begins(
    farm: Farm, journal: Journal, trouble: Trouble
) -> None:
    farm.start(*trouble.urls)
    farm.send(parts=1000)
    first = journal.until_new()
    if trouble.is_cut:  # the worker with it
        farm.start()
    else:
        farm.send(parts=1000)
        assert journal.lasts(TTL) == first
    trouble.begin(first)
    second = journal.until_new(first)
    if not trouble.is_cut:
        trouble.end(first)
    for _ in range(30):
        assert journal.until_new() == second
    assert journal.check() == [first, second]
    farm.close()
