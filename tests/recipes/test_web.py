"""FastAPI, Flask and Django: requests at once, a lock that is held, masters away."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import wait_until

from .programs import PATIENCE, Journal, answer_of, environment_of, running

pytestmark = pytest.mark.slow
ASGI = """
import asyncio, json, os
import httpx
from fastapi_app import app, lifespan
from fastredlock.testing import in_memory
from fastredlock.testing.asyncio import advance

async def post(client, order):
    answer = await client.post(f"/orders/{order}/ship")
    return answer.status_code, answer.json(), answer.headers.get("retry-after")

async def main():
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        async with lifespan(app):
            both = await asyncio.gather(post(client, 1), post(client, 1))
            others = await asyncio.gather(post(client, 2), post(client, 3))
        with in_memory(auto_advance=True) as memory:
            async with lifespan(app):
                memory.steal("orders:4")
                held = await post(client, 4)
                task = asyncio.create_task(post(client, 5))
                await asyncio.sleep(0.05)  # the request holds the lock by now
                memory.lose("orders:5")
                await advance(memory, 10)
                lost = await task
                memory.stop(0)
                memory.stop(1)
                away = await post(client, 6)
                strange = await post(client, "1%0Aforged")
    print(json.dumps([both, others, held, lost, away, strange[0]]))

asyncio.run(main())
"""
WSGI = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
import django_app
from django.db import connections
from django.test import Client
from fastredlock.testing import in_memory

def pay(account=7):
    try:
        answer = Client().post(f"/accounts/{account}/pay/1")
        return answer.status_code, answer.json(), answer.headers.get("Retry-After")
    finally:
        connections.close_all()

with ThreadPoolExecutor(4) as pool:
    many = [future.result() for future in [pool.submit(pay) for _ in range(20)]]
with in_memory(auto_advance=True) as memory:
    memory.steal("accounts:7", ttl=60)
    held = pay()
    write = django_app.write
    django_app.write = lambda *given: (write(*given), memory.advance(11))
    lost = pay(8)
    django_app.write = write
    after = pay(8)
    memory.stop(0)
    memory.stop(1)
    away = pay()
    linked = Client().get("/accounts/7/pay/1").status_code
    forged = Client(enforce_csrf_checks=True).post("/accounts/7/pay/1").status_code
print(json.dumps([many, held, lost, after, away, linked, forged]))
"""
BOTH = """
import asyncio, json
import httpx
from fastapi_both import app, lifespan, locks

async def main():
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        async def post(path):
            answer = await client.post(path)
            return answer.status_code
        async with lifespan(app):
            lease = locks.acquire("orders:1", ttl=60)
            paths = "/orders/1/ship", "/orders/1/print", "/orders/2/ship"
            answers = [await post(path) for path in paths]
            lease.release()
            lease = await app.state.locks.acquire("orders:1", ttl=60)
            paths = "/orders/1/ship", "/orders/1/print", "/orders/2/print"
            answers += [await post(path) for path in paths]
            await lease.release()
    print(json.dumps(answers))

asyncio.run(main())
"""
UNAVAILABLE = [503, {"detail": "not done: try again later"}, None]


def test_fastapi_when_two_ship_one_order_then_one_is_told_to_come_again(
    emptied: LocalMasters,
) -> None:
    said, log = answer_of(ASGI, environment_of(emptied.urls))
    both, others, held, lost, away, strange = said
    taken = [409, {"detail": "in progress"}, "1"]
    assert sorted(both, key=lambda each: int(each[0])) == [
        [200, {"order": 1, "steps": 5}, None],
        taken,
    ]
    assert [each[0] for each in others] == [200, 200]
    assert held == taken
    assert lost == away == UNAVAILABLE  # strangers read no address and no cause
    assert [
        said in line for said, line in zip(LOGGED, log.splitlines(), strict=True)
    ] == [True] * 3
    assert strange in (404, 422)


def test_fastapi_when_a_plain_or_async_client_holds_then_both_kinds_are_refused(
    emptied: LocalMasters,
) -> None:
    answers, _ = answer_of(BOTH, environment_of(emptied.urls))
    assert answers == [409, 409, 200] * 2


LOGGED = ("lost: ", "quorum: lost; ", "2 failed")  # and who operates it reads them


def test_django_when_many_pay_at_once_then_no_update_is_lost(
    emptied: LocalMasters, tmp_path: Path
) -> None:
    database = str(tmp_path / "accounts.sqlite3")
    said, log = answer_of(WSGI, environment_of(emptied.urls, DATABASE=database))
    many, held, lost, after, away, linked, forged = said
    assert sorted(each[1]["balance"] for each in many) == list(range(1, 21))
    assert held == [409, {"detail": "in progress"}, "1"]
    assert lost == away == UNAVAILABLE
    assert log.count("its validity is over") == log.count("2 failed") == 1
    assert after[1] == {"account": 8, "balance": 1}  # the lost one was rolled back
    assert (linked, forged) == (405, 403)  # neither a link nor a form elsewhere pays


# --- Flask, gunicorn ------------------------------------------------------------------


def shipped(path: Path) -> int:
    """Ask the server behind a socket to ship one order; return which process did."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(30)
    connection.sock.connect(str(path))
    with closing(connection):
        connection.request("POST", "/orders/1/ship")
        answer = connection.getresponse()
        told = json.loads(answer.read())
    assert answer.status == 200, told
    pid: int = told["pid"]
    return pid


@pytest.mark.skipif(
    None in (find_spec("flask"), find_spec("gunicorn")),
    reason="not installed: extra test",
)
@pytest.mark.parametrize("options", [["--preload"], []])
def test_gunicorn_when_workers_are_forked_then_they_exclude_each_other(
    options: list[str], emptied: LocalMasters, journal: Journal
) -> None:
    path = journal.path.with_name("web.sock")
    words = [
        "--bind",
        f"unix:{path}",
        "--workers",
        "3",
        *options,
        "--no-control-socket",
    ]
    command = [sys.executable, "-m", "gunicorn", *words, "flask_app:app"]
    environment = environment_of(emptied.urls, JOURNAL=str(journal.path))
    with running(command, environment, stderr=subprocess.DEVNULL):
        assert wait_until(path.exists, PATIENCE)
        with ThreadPoolExecutor(9) as pool:
            pids = [*pool.map(lambda _: shipped(path), range(9))]
    assert sorted(journal.check()) == sorted(pids)
    assert len(journal.steps()) == 27
