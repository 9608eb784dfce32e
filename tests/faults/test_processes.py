"""Whole processes that end, run out of descriptors, or are interrupted at random."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from behaviour.helpers import PATIENCE

from fastredlock.testing import LocalMasters


def run(program: str, urls: list[str]) -> None:
    """Run one of `programs`; it succeeds, and writes nothing to standard error."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "faults.programs", program, *urls],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]


@pytest.mark.slow
def test_finalizer_when_it_takes_a_lock_at_any_allocation_then_replies_stay_apart(
    masters: LocalMasters,
) -> None:
    masters.stop(0)  # its vote is made, as objects, in the middle of a round's start
    run("collect", masters.urls)


@pytest.mark.slow
def test_exit_when_engines_and_leases_are_open_then_is_silent(urls: list[str]) -> None:
    run("leave_open", urls)


@pytest.mark.slow
def test_descriptors_when_none_is_left_then_votes_say_so_and_it_recovers(
    urls: list[str],
) -> None:
    run("run_out_of_descriptors", urls)


@pytest.mark.slow
def test_sigint_when_it_comes_at_any_time_then_leaves_no_key(urls: list[str]) -> None:
    run("interrupt_at_random", urls)
