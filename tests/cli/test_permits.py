"""`--permits`: a command under one slot of a semaphore, and who has the slots."""

from __future__ import annotations

import json
import re

import pytest
import redis

from fastredlock import FastRedlock
from fastredlock.testing import LocalMasters
from tests.support.calls import all_granted, granted
from tests.support.keys import KEY, values
from tests.support.waiting import wait_until

from .conftest import Call, Start

SAY = "echo $FASTREDLOCK_RESOURCE $FASTREDLOCK_SLOT ${FASTREDLOCK_TOKEN:+token}"


def slots(locks: FastRedlock, permits: int) -> list[str | None]:
    """Return the hash of the token of each slot."""
    return [votes[0].token_hash for votes in locks.holders(KEY, permits=permits)]


def is_waited_for(locks: FastRedlock) -> bool:
    """Whether a process waits for a slot."""
    return any(vote.waiting for vote in locks.holders(KEY, permits=1)[0])


# --- run ------------------------------------------------------------------------------


def test_run_with_permits_when_started_then_the_command_has_its_slot_and_its_name(
    start: Start, servers: list[redis.Redis]
) -> None:
    held = [
        start("run", "--permits", "2", KEY, "--", "sh", "-c", f"{SAY}; sleep 60")
        for _ in range(2)
    ]
    told = sorted(each.line() for each in held)
    assert told == [f"{KEY}#{slot} {slot} token" for slot in range(2)]
    assert sorted(servers[0].keys()) == [f"{KEY}#0".encode(), f"{KEY}#1".encode()]


def test_run_with_permits_when_the_command_ends_then_its_slot_is_free(
    start: Start, servers: list[redis.Redis]
) -> None:
    command = start("run", "--permits", "3", KEY, "--", "sh", "-c", "exit 7")
    assert command.end() == (7, "", "")
    assert [values(servers[:3], f"{KEY}#{i}") for i in range(3)] == [[None] * 3] * 3


def test_run_without_permits_when_inside_of_one_with_them_then_has_no_slot(
    start: Start,
) -> None:
    told = "echo ${FASTREDLOCK_SLOT-none}"
    command = start("run", KEY, "--", "sh", "-c", told, FASTREDLOCK_SLOT="4")
    assert command.end() == (0, "none\n", "")


def test_run_with_permits_when_all_are_taken_then_says_so_and_runs_nothing(
    start: Start, urls: list[str]
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks:
        all_granted([locks.acquire(KEY, permits=2, ttl=60) for _ in range(2)])
        end = (KEY, "--", "echo", "ran")
        status, out, err = start("run", "--permits", "2", "-n", *end).end()
        assert (status, out) == (1, "")
        assert re.fullmatch(
            rf"fastredlock run: not taken in 0\.\d s: '{KEY}': all 2 are taken, by "
            r"ann \(2\)\n",
            err,
        )
        waits = start("run", "--permits", "2", "-w", "0.2", "-E", "9", *end)
        assert waits.end()[0] == 9
        silent = start("run", "--permits", "2", "-n", "-E", "0", *end)
        assert silent.end() == (0, "", "")
        more = start("run", "--permits", "3", "-n", *end)
        assert more.end() == (0, "ran\n", "")


def test_run_with_permits_when_a_slot_is_released_then_runs_at_once(
    start: Start, urls: list[str]
) -> None:
    with FastRedlock(urls[:3]) as locks:
        first = granted(locks.acquire(KEY, permits=2, ttl=60))
        granted(locks.acquire(KEY, permits=2, ttl=60))
        command = start("run", "--permits", "2", KEY, "--", "sh", "-c", SAY)
        assert wait_until(lambda: is_waited_for(locks))
        slot = first.slot
        first.release()
        assert command.end() == (0, f"{KEY}#{slot} {slot} token\n", "")


def test_run_with_permits_when_verbose_then_prints_that_all_are_taken(
    call: Call, urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastredlock._cli.run.FIRST", 0.1)
    with FastRedlock(urls[:3], owner="ann") as locks:
        granted(locks.acquire(KEY, permits=1, ttl=60))
        words = ("--permits", "1", "--verbose", "-w", "0.4", KEY, "--", "true")
        lines = call("run", *words).err.splitlines()
    said = f"waiting for 0 s: '{KEY}': its slot is taken, by ann"
    assert lines[0] == f"fastredlock run: {said}"


def test_run_with_permits_when_verbose_in_an_outage_then_prints_why(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastredlock._cli.run.FIRST", 0.1)
    words = ("--permits", "2", "--verbose", "-w", "0.3", "--masters")
    err = call("run", *words, "redis://127.0.0.1:1", KEY, "--", "true").err
    assert err.splitlines()[0] == (
        f"fastredlock run: waiting for 0 s: '{KEY}': not known: 0 of 1 masters "
        "answered, 1 are needed: 127.0.0.1:1 FAILED (connection refused)"
    )


def test_run_with_permits_when_its_slot_is_broken_then_the_command_is_ended(
    start: Start,
) -> None:
    words = ("run", "--permits", "2", "--ttl", "1", KEY)
    command = start(*words, "--", "sh", "-c", f"{SAY}; sleep 60")
    resource = command.line().split()[0]
    assert start("break", "--yes", resource).end()[0] == 0
    status, _, err = command.end()
    assert (status, "the command got SIGTERM" in err) == (75, True)


def test_run_with_permits_when_the_command_adopts_its_slot_then_it_is_the_lock(
    start: Start,
) -> None:
    adopt = (
        "import os, fastredlock as f; e = os.environ; "
        "lease = f.FastRedlock.from_env().adopt("
        "e['FASTREDLOCK_RESOURCE'], e['FASTREDLOCK_TOKEN']); print(lease.extend() > 0)"
    )
    words = ("run", "--permits", "2", KEY, "--", "python3", "-c", adopt)
    assert start(*words).end() == (0, "True\n", "")


# --- who ------------------------------------------------------------------------------


def test_who_with_permits_when_some_are_held_then_names_the_holder_of_each(
    call: Call, urls: list[str]
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks:
        lease = granted(locks.acquire(KEY, permits=2, ttl=60))
        status, out, err = call("who", "--permits", "2", KEY)
    assert (status, err) == (0, "")
    first, *each = out.splitlines()
    assert first == f"'{KEY}': 1 of 2 slots are held"
    assert each[1 - lease.slot].split() == [str(1 - lease.slot), "free"]
    assert re.fullmatch(
        rf"  {lease.slot}     ann \(token {lease.token_hash}, 3 of 3 masters, "
        r"[\d.]+ s left\)",
        each[lease.slot],
    )


def test_commands_without_permits_when_slots_are_held_then_do_not_call_it_free(
    call: Call, urls: list[str]
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks:
        leases = [granted(locks.acquire(KEY, permits=3, ttl=60)) for _ in range(3)]
        for lease in leases:
            if lease.slot == 0:
                lease.release()
        status, out, _ = call("who", KEY)
        assert (status, out.splitlines()[:2]) == (0, [
            f"'{KEY}' is no lock: 2 of its slots are held (--permits K: each of its K)",
            "  0     free",
        ])  # fmt: skip
        assert out.count("ann (token ") == 2
        told = json.loads(call("who", "--json", KEY).out)
        assert (told["permits"], told["held"], len(told["slots"])) == (None, 2, 3)
        status, out, err = call("break", "--yes", KEY)
        assert (status, out.count("ann (token "), "as NAME#0" in err) == (1, 2, True)
        assert call("break", "--yes", f"{KEY}#1").status == 0


def test_who_with_permits_when_none_is_held_then_is_told_by_the_status(
    call: Call,
) -> None:
    status, out, _ = call("who", "--permits", "3", KEY)
    assert status == 1
    assert out.startswith(f"'{KEY}': 0 of 3 slots are held\n  0     free\n")


def test_who_with_permits_when_a_process_waits_then_counts_it_and_has_numbers(
    call: Call, start: Start, urls: list[str]
) -> None:
    with FastRedlock(urls[:3], owner="ann") as locks:
        all_granted([locks.acquire(KEY, permits=2, ttl=60) for _ in range(2)])
        start("run", "--permits", "2", KEY, "--", "true")
        assert wait_until(lambda: is_waited_for(locks))
        assert call("who", "--permits", "2", KEY).out.endswith("  1 waiting\n")
        told = json.loads(call("who", "--permits", "2", "--json", KEY).out)
        assert [slot["token_hash"] for slot in told["slots"]] == slots(locks, 2)
    names = [slot["resource"] for slot in told.pop("slots")]
    assert names == [f"{KEY}#0", f"{KEY}#1"]
    assert told == {
        "resource": KEY, "permits": 2, "is_known": True, "held": 2, "waiting": 1,
    }  # fmt: skip


def test_who_with_permits_when_too_few_masters_answer_then_says_so(
    call: Call, masters: LocalMasters
) -> None:
    for index in (1, 2):
        masters.stop(index)
    given = ("--masters", ",".join(masters.urls[:3]), "--permits", "2")
    status, out, _ = call("who", *given, KEY)
    assert status == 69
    assert f"'{KEY}': not known: 1 of 3 masters answered, 2 are needed" in out
