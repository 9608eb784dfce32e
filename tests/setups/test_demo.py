"""Run `fastredlock demo` as its users do, and end it in every way they may."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import redis

from fastredlock._cli import CommandError
from fastredlock.demo import play
from fastredlock.testing import LocalMasters
from fastredlock.testing._local import _EMBEDDED
from tests.cli.conftest import Command, session_of
from tests.support.waiting import wait_until

pytest.importorskip("rich")


class Demo(Command):
    """Hold one running demo, and all processes that it has started: its session."""

    patience = 60.0  # s; for what takes a few, on a machine that is loaded

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="d-")
        environment.setdefault("TMPDIR", self.folder.name)
        super().__init__("demo", *arguments, by=(), stdin="", **environment)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        while text not in self.seen:
            line = self.line()
            assert line or self.process.poll() is None, self.seen
            self.seen += f"{line}\n"

    def end(self) -> tuple[int, str, str]:
        status, out, err = super().end()
        return status, self.seen + out, err

    def left(self) -> list[object]:
        return [*session_of(self.process.pid), *os.listdir(self.folder.name)]


Start = Callable[..., Demo]  # the fixture `start`


@pytest.fixture
def start() -> Iterator[Start]:
    demos: list[Demo] = []

    def start(*arguments: str, **environment: str) -> Demo:
        demos.append(Demo(*arguments, **environment))
        return demos[-1]

    yield start
    for demo in demos:
        demo.kill()
        demo.folder.cleanup()


def path_with(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, sys.path)])


def lost(out: str, phase: str) -> tuple[int, int]:
    """Return how many updates of how many the report says were lost."""
    found = re.search(rf"^{phase}: +([\d,]+) of ([\d,]+) updates lost", out, re.M)
    assert found, out
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


@pytest.mark.slow
def test_demo_loses_updates_only_without_the_lock_when_two_masters_fail(
    start: Start,
) -> None:
    demo = start("--seconds", "2")
    demo.wait_for("paused")
    assert len(demo.left()) >= 1 + 4 + 4  # workers, and masters but the stopped one
    status, out, err = demo.end()
    assert (status, err) == (0, "")
    assert lost(out, "without the lock")[0] > 0
    assert lost(out, "with the lock")[0] == 0
    assert lost(out, "with the lock")[1] > 0
    assert "master 2 stopped" in out
    assert "master 4 paused" in out
    assert "refused" in out
    assert wait_until(lambda: not demo.left(), Demo.patience)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGHUP, "processes"),  # the title: nothing is started yet
        (signal.SIGTERM, "paused"),
    ],
)
def test_demo_leaves_nothing_when_interrupted(
    start: Start, number: signal.Signals, moment: str
) -> None:
    demo = start("--seconds", "2")
    demo.wait_for(moment)
    os.killpg(demo.process.pid, number)
    status, _, err = demo.end()
    assert status == 128 + number
    assert err == f"fastredlock demo: ended by {number.name}\n"
    assert wait_until(lambda: not demo.left(), Demo.patience)


def test_demo_when_a_signal_ends_its_servers_too_then_names_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: "a server has ended" with status 2, for Ctrl-C while they started."""

    def interrupted(count: int) -> None:
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError("a server has ended")

    monkeypatch.setattr(play, "LocalMasters", interrupted)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        with pytest.raises(CommandError, match="ended by SIGINT"):
            play.play(Namespace(masters=None, workers=2), [signal.SIGINT], nullcontext)
    finally:
        signal.sigtimedwait({signal.SIGINT}, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.slow
def test_demo_leaves_nothing_when_killed(start: Start) -> None:
    demo = start("--seconds", "60")
    demo.wait_for("first lease")
    assert len(demo.left()) >= 1 + 4 + 5
    demo.send(signal.SIGKILL)
    demo.process.wait()
    assert wait_until(lambda: not demo.left(), Demo.patience)


@pytest.mark.slow
def test_demo_leaves_no_key_on_the_users_masters_and_names_the_one_that_is_down(
    start: Start,
) -> None:
    with LocalMasters(3) as masters:
        masters.stop(1)
        demo = start("--seconds", "1", "--masters", ",".join(masters.urls))
        status, out, err = demo.end()
        assert (status, err) == (0, "")
        assert "none is stopped or paused" in out
        assert lost(out, "with the lock")[0] == 0
        assert re.search(rf"master 2 \(127.0.0.1:{masters.ports[1]}\S*\): ", out)
        for url in masters.urls[::2]:
            with redis.Redis.from_url(url) as client:
                assert client.dbsize() == 0


def without(what: str, folder: Path) -> dict[str, str]:
    """Return an environment in which rich, or any server, is not installed."""
    if what == "rich":
        text = "raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')"
        (folder / "rich.py").write_text(text)
        return {"PYTHONPATH": path_with(folder)}
    for package, _ in _EMBEDDED:
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()  # without its server
    return {"PYTHONPATH": path_with(folder), "PATH": str(folder)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("masters", "missing", "status", "text"),
    [
        ("redis://:secret@127.0.0.1:1,redis://127.0.0.1:2", "", 3, ":1 .*1:2 "),
        ("http://127.0.0.1", "", 2, ""),
        ("", "rich", 2, r"pip install 'fastredlock\[demo\]'"),
        ("", "server", 2, r"pip install 'fastredlock\[server\]'"),
    ],
)
def test_demo_that_cannot_begin_says_why(
    start: Start, tmp_path: Path, masters: str, missing: str, status: int, text: str
) -> None:
    environment = without(missing, tmp_path) if missing else {}
    words = ["--masters", masters] if masters else []
    ended, out, err = start(*words, **environment).end()
    assert (ended, out if missing == "rich" else "") == (status, "")
    assert re.search(text, err, re.S), err
    assert "secret" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("times_us", "expected"),
    [
        ({10: 50, 20: 49, 700: 1}, ["10 µs", "20 µs"]),
        ({10: 49, 2_000: 49, 3_000_000: 2}, ["2.0 ms", "3.0 s"]),
        ({}, ["-", "-"]),
    ],
)
def test_percentile_is_the_time_that_so_many_do_not_exceed(
    times_us: dict[int, int], expected: list[str]
) -> None:
    from fastredlock.demo.view import percentiles

    assert percentiles(Counter(times_us)) == expected
