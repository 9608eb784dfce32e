"""Whole processes that end, run out of descriptors, or are interrupted at random."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fastredlock.testing import LocalMasters
from tests.support import fault_programs
from tests.support.processes import run_to_its_end
from tests.support.waiting import PATIENCE

INTERPOSER = Path(fault_programs.__file__).parent / "interposer.c"
Program = Callable[..., None]  # of URLs


def run(program: Program, urls: list[str], preload: str = "") -> None:
    """Run it in a process: it succeeds, and writes nothing to standard error."""
    module, name, patience = program.__module__, program.__name__, 2 * PATIENCE
    done = run_to_its_end(
        module, name, *urls, within=patience, preload=preload, is_dev=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]


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
        # Seen: at the first line of `__exit__` there was no `try` yet.
        fault_programs.interrupt_around_with,
        # Seen: "a round is opened once", where a look after a pause took the request.
        fault_programs.stand_still,
    ],
)
def test_program_when_it_does_this_then_succeeds_in_silence(
    urls: list[str], program: Program
) -> None:
    run(program, urls)


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
def test_look_up_when_names_are_slow_then_goes_by_its_answers(
    urls: list[str], interposer: str, program: Program
) -> None:
    """Seen: each attempt began one more thread per master, 411 in all."""
    run(program, urls[:3], interposer)
