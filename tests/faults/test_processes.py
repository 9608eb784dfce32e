"""Whole processes that end, stop, run out of descriptors, or are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastredlock import FastRedlock
from fastredlock import asyncio as awaitable
from tests.support import fault_programs
from tests.support.calls import granted
from tests.support.fixtures import Servers
from tests.support.keys import KEY, NOBODY, settled_values
from tests.support.processes import Fork, run_to_its_end, running
from tests.support.waiting import is_renewed

INTERPOSER = Path(fault_programs.__file__).parent / "interposer.c"
Program = Callable[..., None]  # of URLs


def run(program: Program, urls: list[str], preload: str = "") -> None:
    """Run it in a process: it succeeds, and only a lost quorum is logged, if at all."""
    options = ("-X", "dev")
    done = run_to_its_end(
        fault_programs, program.__name__, *urls, options=options, preload=preload
    )
    said = [line for line in done.stderr.splitlines() if line[:8] != "quorum: "]
    assert (done.returncode, said) == (0, []), done.stderr[-2000:]


@pytest.fixture(scope="module")
def interposer(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = str(tmp_path_factory.mktemp("interposer") / "interposer.so")
    options = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *options, "-o", library, INTERPOSER, "-ldl"], check=True)
    return library


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        fault_programs.run_out_of_descriptors,
        # Seen: "a round is opened once", where a look after a pause took the request.
        fault_programs.stand_still,
    ],
)
def test_program_when_it_does_this_then_succeeds_in_silence(
    urls: list[str], program: Program
) -> None:
    run(program, urls)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        fault_programs.look_up_slowly,
        fault_programs.look_up_in_a_child,
    ],
)
def test_look_up_when_names_are_slow_then_goes_by_its_answers(
    urls: list[str], interposer: str, program: Program
) -> None:
    """Seen: each attempt began one more thread per master, 411 in all."""
    run(program, urls[:3], interposer)


# --- that keep leases, and are stopped, forked or ended -------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tell_after_a_stop", "tell_after_a_stop_awaited"])
def test_process_when_stopped_beyond_the_ttl_then_knows_at_its_next_line(
    urls: list[str], servers: Servers, name: str
) -> None:
    with running(fault_programs, name, *urls) as process:
        assert process.answer() == "holds"
        os.kill(process.pid, signal.SIGSTOP)
        assert settled_values(servers, NOBODY) == NOBODY
        os.kill(process.pid, signal.SIGCONT)
        told = process.say("go on")
        if name == "tell_after_a_stop":
            assert told == "[True, False, 0.0, 'raised'] True"
        else:  # told by a line, or cancelled before it
            assert told in ("True False", "left by LeaseLostError")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status"),
    [("end_while_kept", 0), ("end_while_kept_awaited", 0), ("end_by_an_error", 3)],
)
@pytest.mark.parametrize("ttl", ["0.05", "20"])
def test_process_when_it_ends_with_kept_leases_then_ends_at_once_and_in_silence(
    urls: list[str], name: str, status: int, ttl: str
) -> None:
    done = run_to_its_end(fault_programs, name, ttl, *urls, within=10)
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.slow
def test_child_when_forked_then_keeps_nothing_of_its_parent_and_can_keep_its_own(
    urls: list[str], servers: Servers
) -> None:
    def look() -> list[object]:
        seen: list[object] = [lease.lost.is_set(), lease.is_valid]
        own = granted(locks.acquire("child", keep_alive=True))
        return [*seen, is_renewed(own), own.release().name]

    with FastRedlock(urls, ttl=0.6) as locks:
        lease = granted(locks.acquire(KEY, keep_alive=True))
        assert Fork(look).result() == [True, False, True, "RELEASED"]
        assert lease.is_valid
        lease.release()
        assert settled_values(servers, NOBODY) == NOBODY


# --- programs that gevent has patched -------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gevent") is None, reason="not installed")
@pytest.mark.parametrize(
    "program", ["greenlet_programs", "unpatched_program gevent.monkey"]
)
def test_program_when_gevent_is_loaded_or_has_patched_then_locks_and_others_run(
    program: str,
) -> None:
    """Seen: no name was resolved, a silent server froze all, LocalMasters failed; a
    leader that a fork had copied would read its parent's replies; and a signal handler
    waited for ever, for the lock of its own thread's call."""
    module, *given = program.split()  # an import of it would patch us
    done = run_to_its_end(f"tests.support.{module}", *given)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]


@pytest.mark.parametrize("face", [FastRedlock, awaitable.FastRedlock])
def test_program_when_eventlet_has_patched_it_then_is_refused(
    monkeypatch: pytest.MonkeyPatch, face: Any
) -> None:
    """Its greenlets were let in beside each other: on its asyncio hub, several."""
    before = FastRedlock([("127.0.0.1", 1)])
    patched = SimpleNamespace(is_monkey_patched=lambda name: name == "socket")
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patched)
    with pytest.raises(RuntimeError, match="use gevent, or asyncio"):
        face(["redis://a"])
    for use in (before.acquire, before.lock("r").__enter__):
        with pytest.raises(RuntimeError, match="use gevent, or asyncio"):
            use()
    patched.is_monkey_patched = lambda name: False
    face(["redis://a"])


# --- no call imports a module: a fork beside such an import leaves a child that hangs -


@pytest.mark.slow
def test_no_public_call_imports_anything_when_clients_are_made(urls: list[str]) -> None:
    """Seen: 8 of 883 forked children whose acquire(timeout=1) never returned."""
    done = run_to_its_end("tests.support.import_program", *urls)
    assert (done.stdout.strip(), done.stderr) == ("", "")


# --- in a sub-interpreter -------------------------------------------------------------


CODE = """
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import fastredlock
code = f"import sys; sys.path[:] = {sys.path!r}\\n"
code += '''
try:
    import fastredlock
except ImportError as error:
    print(error)
'''
interpreters.run_string(interpreters.create(), code)
"""


def test_import_when_in_a_subinterpreter_then_the_error_names_the_remedy() -> None:
    done = run_to_its_end(CODE)
    assert "WSGIApplicationGroup" in done.stdout, done
