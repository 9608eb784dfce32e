"""The simulator as a test: faults break no promise, broken assumptions do."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import compiled
from .faults import ASSUMPTIONS
from .scenarios import (
    Stage,
    a_connection_is_cut_as_a_release_leaves,
    a_kept_lease_and_a_holder_that_pauses,
    a_kept_lease_and_clocks_that_are_set,
    a_stopped_server_wakes_up,
    an_old_extension_arrives_late,
    clocks_drift,
    extension_grows_after_a_shorter_one,
    five_servers_one_is_new,
    five_servers_one_is_replaced,
    five_servers_one_restarts,
    holder_pauses,
    masters_wake_up_behind_a_client_that_is_gone,
    said_by,
    the_third_master_comes_later,
    three_clocks_jump,
    two_keys_are_evicted,
)
from .schedule import Schedule
from .world import S

ROOT = Path(__file__).parents[2]
SCHEDULES = 500  # 9 s on two idle cores
SECONDS = 40  # at the longest: on a busy machine there are fewer
SEEDS_TO_SEARCH = 400


@pytest.mark.slow
def test_schedules_when_faults_are_within_the_assumptions_then_keep_all_promises() -> (
    None
):
    argv = [sys.executable, "-m", "tests.sim", "--count", str(SCHEDULES)]
    argv += ["--seconds", str(SECONDS), "--jobs", str(os.cpu_count() or 1)]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("assumption", ASSUMPTIONS)
def test_schedules_when_an_assumption_is_broken_then_find_a_violation(
    assumption: str,
) -> None:
    broken = frozenset({assumption})
    for seed in range(1, SEEDS_TO_SEARCH):
        violation = Schedule(seed, broken).run().violation
        if violation:
            assert violation.startswith("I1")
            return
    pytest.fail(f"{SEEDS_TO_SEARCH} seeds without a violation: the judge is blind")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        *(704805, 905174, 705967, 705981, 794413, 944078, 971046, 1031462),
        *(1095708, 1107180, 1112459, 3017071, 4004127),
    ],
)
def test_schedule_when_it_once_showed_a_fault_then_has_no_violation(seed: int) -> None:
    """Seen: the judge's own (four), a connection told up after its end (971046), our
    pause taken for the masters' silence (944078), a turn nobody took (794413), an end
    told after the renewals of other leases (1031462), four entries that nobody drops
    (1095708), our own pause taken for a round trip (1107180), an undo inside of close()
    that the simulated driver dropped (3017071), a second write that nothing ended
    (4004127), an old connection's bytes behind all of the next one (905174)."""
    assert Schedule(seed, has_slots=False).run().violation == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [73, 170, 557, 3520, 3956, 6208, 7025])
def test_schedule_when_it_once_showed_a_fault_of_slots_then_has_no_violation(
    seed: int,
) -> None:
    """Seen: looks that outlast a timeout (73, 170), and the judge's own: those who wait
    behind one that asked for fewer (557, 3520, 6208), a slot with a key at the gate;
    a call on a closed client that raised the core's own error (7025)."""
    assert Schedule(seed).run().violation == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 21, 49, 285])
def test_schedule_when_run_again_then_is_the_same_event_by_event(seed: int) -> None:
    first, second = Schedule(seed), Schedule(seed)
    first.world.log, second.world.log = [], []
    assert first.run() == second.run()
    assert first.world.log == second.world.log


@pytest.mark.slow
@pytest.mark.skipif(
    not compiled.folder_of_build().exists(), reason="compiled by hand only"
)
def test_compiled_simulator_when_given_the_same_seeds_then_runs_the_same() -> None:
    argv = [sys.executable, "-m", "tests.sim", "--count", "40"]
    told = [
        subprocess.run([*argv, *more], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for more in ((), ("--compiled",))
    ]
    digests = [run.stdout.partition("digest ")[2].split()[0] for run in told]
    assert digests[0] == digests[1]


def test_compiled_simulator_when_nothing_can_compile_it_then_says_so_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Seen: a traceback of 20 lines out of a command that CONTRIBUTING names."""
    monkeypatch.setattr(compiled, "folder_of_build", lambda: tmp_path / "no")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^--compiled needs Cython: pip install"):
        compiled.build()


def test_schedules_when_seeds_differ_then_differ() -> None:
    assert Schedule(3).run().digest != Schedule(4).run().digest


@pytest.mark.parametrize(
    ("scenario", "broken", "kept"),
    [
        (five_servers_one_restarts, None, 2.0),
        (five_servers_one_is_replaced, None, 2.0),
        (five_servers_one_is_new, None, 2.0),
        (three_clocks_jump, S, -S),
        (clocks_drift, 30_000, 9_900),
        (holder_pauses, True, False),
        (two_keys_are_evicted, 2, 1),
    ],
)
def test_scenario_when_its_assumption_is_broken_then_two_hold_the_lock_else_one(
    scenario: Callable[..., Any], broken: Any, kept: Any
) -> None:
    assert said_by(scenario, broken).startswith("I1")
    assert said_by(scenario, kept) == ""


def test_extension_when_it_arrives_late_then_one_holds_the_lock() -> None:
    assert said_by(an_old_extension_arrives_late) == ""


def test_kept_lease_when_clocks_are_set_forward_then_its_loss_is_told_at_once() -> None:
    took_ns, lease = a_kept_lease_and_clocks_that_are_set(S)
    assert took_ns < S * 2 // 5  # the time between renewals, and a round
    assert not lease.is_valid


def test_kept_lease_when_clocks_are_set_back_then_is_kept_as_before() -> None:
    took_ns, lease = a_kept_lease_and_clocks_that_are_set(-S)
    assert took_ns == 5 * S
    assert lease.is_valid


@pytest.mark.parametrize(("pause_ns", "is_kept"), [(S // 2, True), (3 * S, False)])
def test_kept_lease_when_its_holder_pauses_then_is_lost_only_beyond_the_ttl(
    pause_ns: int, is_kept: bool
) -> None:
    lease = a_kept_lease_and_a_holder_that_pauses(pause_ns)
    assert lease.is_valid is is_kept
    assert (lease._round.lease_state.error is None) is is_kept


def test_withheld_master_when_another_is_on_its_way_then_that_one_is_waited_for() -> (
    None
):
    # Seed 2030 of the first simulator: the attempt ended without any I/O.
    assert the_third_master_comes_later().leases["A"] is not None


def test_key_when_a_stopped_server_sets_it_at_last_then_is_released_all_the_same() -> (
    None
):
    # Seed 6353 of the second simulator; the key stood until its ttl.
    assert a_stopped_server_wakes_up().leases["B"] is not None


@pytest.mark.parametrize(
    "scenario",
    [
        masters_wake_up_behind_a_client_that_is_gone,
        a_connection_is_cut_as_a_release_leaves,
    ],
)
def test_keys_when_a_client_was_closed_and_servers_are_well_then_are_gone(
    scenario: Callable[[], Stage],
) -> None:
    stage = scenario()
    assert [server.token_at(b"r") for server in stage.servers] == [None] * 3


def test_extension_when_a_shorter_one_was_answered_then_counts_in_full() -> None:
    lease = extension_grows_after_a_shorter_one().leases["A"]
    assert lease is not None
    assert lease.remaining() > 9
