"""`fastredlock servers`: masters on this machine, for other shells."""

from __future__ import annotations

import signal

import pytest

from tests.cli.conftest import Call, Start, session_of
from tests.support.keys import KEY


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_servers_when_a_signal_comes_then_end_and_no_process_is_left(
    start: Start, number: signal.Signals
) -> None:
    command = start("servers", "--count", "1")
    assert command.line().startswith("# ")
    assert command.line().startswith("export FASTREDLOCK_MASTERS=redis://127.0.0.1:")
    assert len(session_of(command.process.pid)) == 3  # it, the keeper and the server
    command.send(number)
    assert command.end() == (0, "", "")
    assert session_of(command.process.pid) == []


def test_servers_when_a_port_is_given_then_have_it_and_those_behind_it(
    start: Start,
) -> None:
    command = start("servers", "--port", "17301", "--count", "2")  # no test has these
    command.line()
    assert "127.0.0.1:17301/0,redis://127.0.0.1:17302/0" in command.line()
    taken = start("servers", "--port", "17302", "--count", "1").end()
    assert (taken[0], taken[1]) == (71, "")
    assert "give another one" in taken[2]
    command.send(signal.SIGINT)
    assert command.end() == (0, "", "")


def test_servers_when_their_line_is_pasted_then_another_process_takes_a_lock(
    start: Start,
) -> None:
    command = start("servers", by=("nohup",))
    command.line()
    name, _, urls = command.line().removeprefix("export ").partition("=")
    assert (name, urls.count(",")) == ("FASTREDLOCK_MASTERS", 2)
    other = start("run", KEY, "echo", "held", FASTREDLOCK_MASTERS=urls)
    assert other.end() == (0, "held\n", "")
    command.send(signal.SIGHUP)  # which nohup ignores
    free = 1  # and not 69, unreachable
    assert start("who", KEY, FASTREDLOCK_MASTERS=urls).end()[0] == free
    command.send(signal.SIGTERM)
    assert command.end()[0] == 0
    assert start("who", KEY, FASTREDLOCK_MASTERS=urls).end()[0] == 69


def test_servers_when_no_program_is_there_then_says_how_to_get_one(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastredlock.testing._local._EMBEDDED", ())
    monkeypatch.setenv("PATH", "/nonexistent")
    status, _, err = call("servers")
    assert status == 71
    assert err.startswith("fastredlock servers: no server program: install Redis or")
