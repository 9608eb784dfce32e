"""Whole processes that end, run out of descriptors, or are interrupted at random."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fastredlock.testing import LocalMasters
from tests.support import fault_programs, interrupt_programs
from tests.support.processes import environment_of_children
from tests.support.waiting import PATIENCE

INTERPOSER = Path(fault_programs.__file__).parent / "interposer.c"
Program = Callable[..., None]  # of URLs


def run(program: Program, urls: list[str], preload: str = "") -> None:
    """Run it in a process: it succeeds, and writes nothing to standard error."""
    environment = environment_of_children()
    if preload:
        environment["LD_PRELOAD"] = f"{preload} {os.environ.get('LD_PRELOAD', '')}"
    words = ("-X", "dev", "-m", program.__module__, program.__name__, *urls)
    done = subprocess.run(
        [sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]


@pytest.fixture(scope="module")
def interposer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build interposer.c; return the library."""
    library = str(tmp_path_factory.mktemp("interposer") / "interposer.so")
    options = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *options, "-o", library, INTERPOSER, "-ldl"], check=True)
    return library


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [fault_programs.take_in_finalizers, fault_programs.release_in_finalizers]
)
def test_finalizer_when_it_locks_at_any_allocation_then_replies_stay_apart(
    masters: LocalMasters, program: Program
) -> None:
    masters.stop(0)  # its vote is made, as objects, in the middle of a round's start
    run(program, masters.urls)


@pytest.mark.slow
def test_exit_when_engines_and_leases_are_open_then_is_silent(urls: list[str]) -> None:
    run(fault_programs.leave_open, urls)


@pytest.mark.slow
def test_descriptors_when_none_is_left_then_votes_say_so_and_it_recovers(
    urls: list[str],
) -> None:
    run(fault_programs.run_out_of_descriptors, urls)


@pytest.mark.slow
def test_sigint_when_it_comes_at_any_time_then_leaves_no_key(urls: list[str]) -> None:
    run(interrupt_programs.interrupt_at_random, urls)


@pytest.mark.slow
def test_interrupt_when_it_comes_around_a_with_block_then_leaves_no_key(
    urls: list[str],
) -> None:
    """Seen: at the first line of `__exit__` there was no `try` yet."""
    run(interrupt_programs.interrupt_around_with, urls)


@pytest.mark.slow
def test_process_when_it_stood_still_under_threads_then_all_their_rounds_go_on(
    urls: list[str],
) -> None:
    """Seen: "a round is opened once", where a look after a pause took the request."""
    run(fault_programs.stand_still, urls)


@pytest.mark.slow
def test_address_when_a_restarted_master_has_another_then_its_name_is_looked_up_again(
    urls: list[str], interposer: str
) -> None:
    run(fault_programs.move, urls, interposer)


@pytest.mark.slow
def test_back_off_when_a_master_refuses_then_a_round_pays_nothing_for_it(
    masters: LocalMasters, interposer: str
) -> None:
    masters.stop(0)
    run(fault_programs.back_off, masters.urls, interposer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        fault_programs.look_up_slowly,
        fault_programs.look_up_late,
        fault_programs.look_up_in_a_child,
    ],
)
def test_look_up_when_names_are_slow_then_each_has_one_thread(
    urls: list[str], interposer: str, program: Program
) -> None:
    """Seen: each attempt began one more thread per master, 411 in all."""
    run(program, urls[:3], interposer)
