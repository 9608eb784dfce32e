"""Slots: an API within its limits, Celery tasks three at a time, a GPU for each."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import wait_until

from .programs import PATIENCE, answer_of, celery_worker, environment_of, program

pytestmark = pytest.mark.slow
ASGI = """
import asyncio, json, os, time
import httpx
import limited_api
from limited_api import app, lifespan
from fastredlock.asyncio import FastRedlock
from fastredlock.testing import in_memory

begun, inside, most = [], 0, 0

async def complete(prompt):
    global inside, most
    begun.append(time.monotonic())
    inside += 1
    most = max(most, inside)
    await asyncio.sleep(0.2)  # what a model takes
    inside -= 1
    return prompt.upper()

limited_api.complete = complete

async def post(client, prompt="a"):
    answer = await client.post(f"/complete/{prompt}")
    return answer.status_code, answer.json(), answer.headers.get("retry-after")

async def main():
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        async with lifespan(app):
            many = await asyncio.gather(*[post(client) for _ in range(14)])
        limited_api.WAIT = 0.1
        with in_memory(auto_advance=True) as memory:
            async with lifespan(app):
                for slot in range(limited_api.AT_A_TIME):
                    memory.steal(f"llm:calls#{slot}")
                held = await post(client)
                memory.stop(0)
                memory.stop(1)
                away = await post(client)
    print(json.dumps([many, begun, most, held, away]))

asyncio.run(main())
"""
UNAVAILABLE = [503, {"detail": "not done: try again later"}, None]


def test_api_when_many_ask_then_it_is_called_within_its_limits(
    emptied: LocalMasters,
) -> None:
    answer, _ = answer_of(ASGI, environment_of(emptied.urls))
    many, begun, most, held, away = answer
    assert most <= 3
    assert all(
        later - first > 1.0 for first, later in zip(begun[:-5], begun[5:], strict=True)
    )
    assert {each[0] for each in many} <= {200, 429}
    assert len(begun) == sum(each[0] == 200 for each in many) >= 10
    assert held == [429, {"detail": "busy"}, "1"]
    assert away == UNAVAILABLE


# --- Celery ---------------------------------------------------------------------------


@pytest.mark.skipif(find_spec("celery") is None, reason="not installed: extra test")
def test_tasks_when_there_are_many_then_three_run_at_a_time(
    emptied: LocalMasters, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    with LocalMasters(1) as broker, ExitStack() as opened:
        common = {"BROKER": broker.urls[0], "JOURNAL": str(journal)}
        environment = environment_of(emptied.urls, **common)
        for number in range(2):  # six processes in all
            options = ["--concurrency", "3", "--hostname", f"w{number}@%h"]
            worker = celery_worker("celery_three", environment, *options)
            opened.enter_context(worker)
        words = "for _ in range(9): export.delay(8)"
        answer_of(f"from celery_three import export\n{words}", environment)
        assert wait_until(lambda: journal.read_text().count("end\n") == 9, 60.0)
    by_slot: dict[int, list[str]] = defaultdict(list)
    for line in journal.read_text().splitlines():
        _, slot, what = line.split()
        by_slot[int(slot)].append(what)
    assert set(by_slot) == {0, 1, 2}
    for steps in by_slot.values():
        assert steps == ["begin", "end"] * (len(steps) // 2)


# --- GPUs -----------------------------------------------------------------------------


def steps_of(journal: Path) -> list[list[int]]:
    """Return the lines in order: time, process, slot, step."""
    lines = journal.read_text().split("\n")[:-1]
    return sorted([int(word) for word in line.split()] for line in lines)


def test_gpus_when_more_processes_than_gpus_then_each_has_one_to_itself(
    emptied: LocalMasters, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    with ExitStack() as opened:
        started = [
            opened.enter_context(program("gpus", "2", str(journal), urls=emptied.urls))
            for _ in range(5)
        ]
        assert [each.wait(PATIENCE) for each in started] == [0] * 5
    steps = steps_of(journal)
    assert len(steps) == 50
    for gpu in (0, 1):
        of_gpu = [(pid, step) for _, pid, slot, step in steps if slot == gpu]
        assert all(
            later == (pid, step + 1) if step < 9 else later[1] == 0
            for (pid, step), later in pairwise(of_gpu)
        )
        assert of_gpu
