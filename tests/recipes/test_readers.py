"""A price list that many processes read and few write."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

import pytest

from fastredlock.testing import LocalMasters
from tests.support.waiting import wait_until

from .programs import PATIENCE, program

pytestmark = pytest.mark.slow
LAST = 12


def test_list_when_read_and_written_then_readers_are_together_and_a_writer_is_alone(
    emptied: LocalMasters, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    for name in ("prices", "stock"):
        (tmp_path / name).write_text("0")
    with ExitStack() as opened:

        def start(what: str) -> int:
            words = what, str(tmp_path), str(LAST), str(journal)
            running.append(
                opened.enter_context(program("price_list", *words, urls=emptied.urls))
            )
            return running[-1].pid

        running: list[subprocess.Popen[str]] = []
        readers = [f" {start('read')} read " for _ in range(3)]
        assert wait_until(lambda: all(r in journal.read_text() for r in readers), 60.0)
        start("write")
        start("write")
        assert [each.wait(PATIENCE) for each in running] == [0] * 5
    lines = [line.split() for line in journal.read_text().splitlines()]
    assert all(first == second for *_, first, second in lines)
    written = [int(line[4]) for line in lines if line[3] == "write"]
    assert written[:LAST] == [*range(1, LAST + 1)]
    together = {
        " ".join(sorted((one[3], other[3])))
        for one, other in combinations(lines, 2)
        if int(one[0]) < int(other[1]) and int(other[0]) < int(one[1])
    }
    assert together == {"read read"}
