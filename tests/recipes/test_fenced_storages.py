"""A holder that stands still and writes late: SQLite and PostgreSQL refuse it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fastredlock.testing import LocalMasters

from .programs import environment_of

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
Query = Callable[[str], str]
pytestmark = pytest.mark.slow


# ---- SQLite


def adds(database: Path, amount: int, urls: list[str]) -> subprocess.Popen[str]:
    """Start the program; it computes by now."""
    argv = [sys.executable, str(RECIPES / "fenced_sqlite.py"), str(database), "a"]
    process = subprocess.Popen(
        [*argv, str(amount)],
        env=environment_of(urls),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "computing\n"
    return process


def said(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=60)[0].strip()


def test_write_when_its_holder_stood_still_then_is_refused(
    tmp_path: Path, emptied: LocalMasters
) -> None:
    database = tmp_path / "storage"
    first = adds(database, 5, emptied.urls)
    os.kill(first.pid, signal.SIGSTOP)
    second = adds(database, 7, emptied.urls)  # waits until the first lease is over
    assert said(second) == "written"
    os.kill(first.pid, signal.SIGCONT)
    assert said(first).startswith("refused")
    assert said(adds(database, 1, emptied.urls)) == "written"


# ---- PostgreSQL


@pytest.fixture(scope="module")
def query() -> Iterator[Query]:
    """Run a server of one's own, with the recipe in it; return what asks it.

    Not below pytest's folder: another pytest closes that to other users.
    """
    if shutil.which("postgres") is None or shutil.which("initdb") is None:
        pytest.skip("no PostgreSQL server on PATH")
    with TemporaryDirectory(prefix="postgresql-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield from server(Path(folder))


def server(folder: Path) -> Iterator[Query]:
    data, user = folder / "data", None
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:  # which it refuses to run as
        user = "postgres"
        shutil.chown(data, user)
    initdb = ["initdb", "--no-sync", "--auth=trust", "-U", "postgres", "-D", str(data)]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, user=user, cwd="/")
    options = ("-c", "listen_addresses=", "-c", "fsync=off", "-k", str(data))
    process = subprocess.Popen(
        ["postgres", "-D", str(data), *options],
        user=user, cwd="/", stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield lambda text: answer(data, text)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def answer(data: Path, text: str) -> str:
    """Return what psql prints; a server that is starting is waited for."""
    psql = ["psql", "-h", str(data), "-U", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1"]
    for _ in range(200):
        done = subprocess.run(
            psql, input=text, text=True, capture_output=True, check=False
        )
        if done.returncode != 2:  # no connection
            break
        time.sleep(0.05)  # a try is a process; it has no event of the server
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_postgresql_when_numbers_fall_then_refuses_the_write(query: Query) -> None:
    query((RECIPES / "fenced_postgresql.sql").read_text())
    calls = ((100, 7), (200, 9), (300, 7), (400, 9), (500, 10))
    asked = [f"select write_account('a', {a}, {f});" for a, f in calls]
    assert query("".join(asked)).split() == ["t", "t", "f", "t", "t"]
    statement = "update account set balance = 1, fence = {0} where fence <= {0};"
    look = "select balance, fence from account;"
    told = query(look + statement.format(9) + look + statement.format(11) + look)
    assert told.split() == ["500|10", "500|10", "1|11"]
