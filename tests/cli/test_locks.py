"""`fastredlock who`, `list` and `break`: locks that others hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import pytest

from fastredlock import NO_EXPIRY, FastRedlock, Lease
from fastredlock.testing import LocalMasters
from tests.support.calls import connected, granted
from tests.support.fixtures import MakeLocks, Servers
from tests.support.keys import KEY, set_all, settled_values, values
from tests.support.processes import environment_of_children
from tests.support.waiters import Waiters, begins_to_wait, queued
from tests.support.waiting import wait_until

from .conftest import Call, Start, as_user

RULES = "~* +get +pttl"  # without SCAN
SINCE = r"since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def locks(make_locks: MakeLocks, urls: list[str]) -> FastRedlock:
    """The holder, on the three masters of the commands."""
    return connected(make_locks(urls[:3], owner="ann"))


def on_all(lease: Lease, servers: Servers) -> Lease:
    """Wait until the slowest of three masters has the key as well: two are a quorum."""
    key = f"{KEY}#{lease.slot}" if hasattr(lease, "slot") else KEY
    wanted = [lease.token] * 3
    assert settled_values(servers[:3], wanted, key) == wanted
    return lease


# --- who ------------------------------------------------------------------------------


def test_who_when_held_then_names_the_owner_and_what_each_master_says(
    call: Call, locks: FastRedlock, urls: list[str], servers: Servers
) -> None:
    lease = on_all(granted(locks.acquire(KEY, ttl=10)), servers)
    status, out, err = call("who", KEY)
    assert (status, err) == (0, "")
    first, *each = out.splitlines()
    assert re.fullmatch(
        rf"'{KEY}' is held by ann \(token {lease.token_hash}, 3 of 3 masters, "
        rf"{SINCE}, [\d.]+ s left\)",
        first,
    )
    assert [line.split()[:3] for line in each] == [
        [url[8:-2], "ann", lease.token_hash] for url in urls[:3]
    ]
    assert lease.token.decode() not in out


@pytest.mark.parametrize("words", [("who", "kä:日"), ("list",)])
def test_command_when_its_output_has_no_such_letter_then_escapes_it(
    start: Start, make_locks: MakeLocks, urls: list[str], words: tuple[str, ...]
) -> None:
    granted(make_locks(urls[:3], owner="Jörg").acquire("kä:日", ttl=10))
    status, out, err = start(*words, PYTHONIOENCODING="ascii").end()
    assert (status, err) == (0, "")
    assert out.startswith(r"'k\xe4:\u65e5' is held by J\xf6rg (token ")


def test_command_when_it_fails_otherwise_then_its_status_is_no_answer(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastredlock._cli.locks.lock_or_slots", lambda *_: 1 / 0)
    assert (call("who", KEY).status, call("list", "--json").status) == (70, 0)


def test_who_when_asked_for_json_then_has_numbers(
    call: Call, locks: FastRedlock
) -> None:
    lease = granted(locks.acquire(KEY, ttl=10))
    told = json.loads(call("who", KEY, "--json").out)
    assert 5 < told["remaining"] < 10
    assert told.pop("since") == pytest.approx(time.time(), abs=60)
    assert told | {"remaining": 0, "masters": len(told["masters"])} == {
        **{"resource": KEY, "is_known": True, "is_held": True, "owner": "ann"},
        **{"token_hash": lease.token_hash, "remaining": 0, "waiting": 0, "masters": 3},
        **{"queue": [], "readers": 0},
    }


def test_commands_when_several_read_then_show_each_and_break_the_one_that_is_named(
    call: Call, locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    servers: Servers,
) -> None:  # fmt: skip
    each_of = locks, make_locks(urls[:3], owner="bob")
    leases = [granted(own.acquire(KEY, shared=True, ttl=10)) for own in each_of]
    wait_until(lambda: [each.zcard(KEY) for each in servers[:3]] == [2] * 3)
    status, out, _ = call("who", KEY)
    first, *each = out.splitlines()
    assert (status, len(each)) == (0, 6)
    assert first in {f"'{KEY}' is read by 2: {two}" for two in ("ann, bob", "bob, ann")}
    assert {line.split()[2] for line in each} == {each.token_hash for each in leases}
    assert all(line.endswith(" s left  reads") for line in each)
    assert call("list").out == f"{first}\n"
    (told,) = json.loads(call("list", "--json").out)["locks"]
    assert (told["readers"], len(told["masters"])) == (2, 6)
    status, _, err = call("break", "--yes", KEY)
    assert (status, "give the token of one, by --token-hash" in err) == (1, True)
    assert call("break", "--yes", "--token-hash", leases[0].token_hash, KEY).status == 0
    stays = [[leases[1].token]] * 3
    assert wait_until(
        lambda: [each.zrange(KEY, 0, -1) for each in servers[:3]] == stays
    )
    assert (leases[1].extend() > 0, leases[1].release().name) == (True, "RELEASED")


def test_list_when_a_sorted_set_is_no_readers_then_does_not_show_it(
    call: Call, servers: Servers
) -> None:
    for server in servers[:3]:
        server.zadd(KEY, {"job": 1.0})
    assert call("list") == (0, "", "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), f"'{KEY}' is free\n"),
        (("--permits", "3"), f"'{KEY}': 0 of 3 slots are held\n  0     free\n"),
    ],
)
def test_who_when_free_then_is_told_by_the_status(
    call: Call, options: tuple[str, ...], said: str
) -> None:
    status, out, _ = call("who", *options, KEY)
    assert (status, out[: len(said)]) == (1, said)


def test_who_when_no_token_has_a_quorum_then_shows_all_of_them(
    call: Call, servers: Servers
) -> None:
    servers[0].set(KEY, "a", px=5000)
    servers[1].set(KEY, "b")
    servers[2].rpush(KEY, "no lock")
    status, out, _ = call("who", KEY)
    assert status == 1
    assert "is held by nobody: no token has a quorum: a client that names no" in out
    assert "1 of 3 masters, no expiry: not a lock of ours?)" in out
    assert "WRONGTYPE" in out


def test_who_when_too_few_masters_answer_then_does_not_guess(
    call: Call, masters: LocalMasters
) -> None:
    masters.stop(1)
    masters.stop(2)
    given = ("who", "--masters", ",".join(masters.urls[:3]), KEY)
    for permits, reasons in (((), 2), (("--permits", "2"), 0)):
        status, out, _ = call(*given, *permits)
        assert status == 69
        assert f"'{KEY}': not known: 1 of 3 masters answered, 2 are needed" in out
        assert out.count("connection refused") == reasons


def test_who_when_processes_wait_then_shows_them_in_their_order(
    call: Call, locks: FastRedlock, make_locks: MakeLocks, urls: list[str],
    servers: Servers,
) -> None:  # fmt: skip
    granted(locks.acquire(KEY, ttl=60))
    each = [
        make_locks(urls[:3], client_name=f"web-{n}", owner=owner)
        for n, owner in enumerate((None, "bob", "eve@c.org"))
    ]
    with Waiters() as waiters:
        for n, client in enumerate(each[:2]):
            waiters.come(f"{n}", client)
        with begins_to_wait(each[2]):
            waiters.start(lambda: waiters.take("2", each[2], shared=True, timeout=60))
        assert wait_until(lambda: queued(servers) == 3)
        status, out, err = call("who", KEY)
        told = json.loads(call("who", "--json", KEY).out)
        listed = call("list", "--most-waiting-first").out
        assert call("break", "--yes", KEY).status == 0
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines() if line.startswith("  waits")]
    assert [line[1] for line in lines] == ["1", "2", "3"]
    waited = [entry["waited"] for entry in told["queue"]]
    assert waited == sorted(waited, reverse=True)
    names = [(entry["client_name"], entry["owner"]) for entry in told["queue"]]
    assert names == [("web-0", lines[0][3]), ("web-1", "bob"), ("web-2", "eve@c.org")]
    assert lines[0][3].endswith(f":{os.getpid()}")
    assert all(entry["address"].startswith("127.0.0.1:") for entry in told["queue"])
    assert re.search(r"s left\), 3 waiting\n", listed)


# --- slots ----------------------------------------------------------------------------


def test_who_with_permits_when_some_are_held_then_names_the_holder_of_each(
    call: Call, locks: FastRedlock, servers: Servers
) -> None:
    lease = on_all(granted(locks.acquire(KEY, permits=2, ttl=60)), servers)
    status, out, err = call("who", "--permits", "2", KEY)
    assert (status, err) == (0, "")
    first, *each = out.splitlines()
    assert first == f"'{KEY}': 1 of 2 slots are held"
    assert each[1 - lease.slot].split() == [str(1 - lease.slot), "free"]
    assert re.fullmatch(
        rf"  {lease.slot}     ann \(token {lease.token_hash}, 3 of 3 masters, "
        rf"{SINCE}, [\d.]+ s left\)",
        each[lease.slot],
    )


def test_who_with_permits_when_a_process_waits_then_counts_it_and_has_numbers(
    call: Call, start: Start, locks: FastRedlock
) -> None:
    leases = [granted(locks.acquire(KEY, permits=2, ttl=60)) for _ in range(2)]
    start("run", "--permits", "2", KEY, "--", "true")
    assert wait_until(lambda: locks.holders(KEY, permits=1)[0][0].waiting)
    out = call("who", "--permits", "2", KEY).out
    assert re.search(r"\n  1 waiting\n  waits 1     \w{16}  \S.* for [\d.]+ s\n$", out)
    told = json.loads(call("who", "--permits", "2", "--json", KEY).out)
    shown = {slot["resource"]: slot["token_hash"] for slot in told.pop("slots")}
    assert shown == {f"{KEY}#{each.slot}": each.token_hash for each in leases}
    assert [each["waited"] > 0 for each in told.pop("queue")] == [True]
    numbers = {"permits": 2, "is_known": True, "held": 2, "waiting": 1}
    assert told == {"resource": KEY, **numbers}


def test_commands_without_permits_when_slots_are_held_then_do_not_call_it_free(
    call: Call, locks: FastRedlock
) -> None:
    leases = [granted(locks.acquire(KEY, permits=3, ttl=60)) for _ in range(3)]
    next(lease for lease in leases if lease.slot == 0).release()
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


# --- break ----------------------------------------------------------------------------


def test_break_when_not_to_be_asked_then_shows_and_breaks(
    call: Call, locks: FastRedlock, servers: Servers
) -> None:
    lease = on_all(granted(locks.acquire(KEY, ttl=NO_EXPIRY)), servers)
    status, out, _ = call("break", KEY, "--yes")
    assert status == 0
    told = (
        rf"held by ann \(token {lease.token_hash}, 3 of 3 masters, {SINCE}, no expiry"
    )
    assert re.search(told, out)
    assert out.endswith(f"broken: token {lease.token_hash}\n")
    assert settled_values(servers[:3], [None] * 3) == [None] * 3
    assert call("break", KEY, "--yes")[0] == 1


def test_break_when_nobody_can_be_asked_then_says_first_whether_it_is_free(
    call: Call, locks: FastRedlock, servers: Servers
) -> None:
    status, out, err = call("break", KEY)
    assert (status, out.splitlines()[0], err) == (1, f"'{KEY}' is free", "")
    lease = granted(locks.acquire(KEY, ttl=10))
    status, out, err = call("break", KEY)
    assert out.startswith(f"'{KEY}' is held by ann (token {lease.token_hash}, ")
    said = "nothing was changed: nobody can be asked, for standard input is no "
    assert (status, err) == (64, f"fastredlock break: {said}terminal: give --yes\n")
    assert values(servers[:3]) == [lease.token] * 3


def test_break_when_another_token_is_named_then_breaks_nothing(
    call: Call, locks: FastRedlock, servers: Servers
) -> None:
    lease = granted(locks.acquire(KEY, ttl=10))
    status, _, err = call("break", KEY, "--yes", "--token-hash", "0" * 16)
    assert (status, values(servers[:3])) == (1, [lease.token] * 3)
    assert "nothing was broken: no master has a token 0000000000000000" in err
    assert call("break", KEY, "--yes", "--token-hash", lease.token_hash)[0] == 0


def test_break_when_tokens_are_left_over_then_each_is_broken(
    call: Call, servers: Servers
) -> None:
    servers[0].set(KEY, "a")
    servers[1].set(KEY, "b")
    status, out, _ = call("break", KEY, "--yes")
    assert (status, values(servers[:3])) == (0, [None] * 3)
    assert out.count("broken: token") == 2


# --- list -----------------------------------------------------------------------------


def names_in(out: str) -> list[str]:
    return [line.split(" is ")[0] for line in out.splitlines()]


def test_list_when_locks_match_then_shows_each_once(
    call: Call, locks: FastRedlock, servers: Servers
) -> None:
    leases = locks.acquire_each(["jobs:2", "jobs:1", "other"])
    assert all(leases)
    servers[1].set(b"jobs:\xff", "left over", px=5000)
    servers[0].rpush("jobs:list", "no lock")
    status, out, err = call("list", "jobs:*")
    assert (status, err) == (0, "")
    assert names_in(out) == ["'jobs:1'", "'jobs:2'", r"'jobs:\\xff'"]
    told = json.loads(call("list", "--json", "*r").out)
    found = [(each["resource"], each["owner"]) for each in told.pop("locks")]
    assert found == [("other", "ann")]
    assert told == {"is_known": True, "has_more": False, "failures": {}}


def test_list_when_masters_are_down_then_json_differs_from_that_of_no_locks(
    call: Call, servers: Servers
) -> None:
    for marker in ("fastredlock:voter", "fastredlock:lineage"):
        set_all(servers[:3], "a run id", marker)  # they are no locks
    status, out, err = call("list", "--json", "*")
    nothing = {"locks": [], "is_known": True, "has_more": False, "failures": {}}
    assert (status, json.loads(out), err) == (0, nothing, "")
    masters = "redis://127.0.0.1:1"
    status, out, _ = call("list", "--json", "--masters", masters, "*")
    told = json.loads(out)
    assert "Connection refused" in told["failures"].pop("127.0.0.1:1")
    assert (status, told) == (69, nothing | {"is_known": False})
    set_all(servers[:3], b"token", "a")
    set_all(servers[:3], b"token", "b")
    told = json.loads(call("list", "--json", "--most", "1", "*").out)
    assert (len(told["locks"]), told["has_more"]) == (1, True)


def test_list_when_owner_order_or_count_are_given_then_shows_those(
    call: Call, locks: FastRedlock, make_locks: MakeLocks, urls: list[str]
) -> None:
    for name, ttl in (("b", 20), ("a", 30), ("d", NO_EXPIRY)):
        granted(locks.acquire(name, ttl=ttl))
    granted(make_locks(urls[:3], owner="web-7:4711").acquire("c", ttl=5))
    for options, names in (
        (("--owner", "web-7:*"), "c"),
        (("--owner", "ann"), "abd"),
        (("--owner", "an"), ""),
    ):
        status, out, err = call("list", *options, "*")
        assert (status, err) == (0, "")
        assert sorted(line[1] for line in out.splitlines()) == [*names]


def test_list_when_oldest_first_then_sorts_by_the_grant_and_not_by_what_is_left(
    call: Call, servers: Servers
) -> None:
    """A lock that is kept for a day has less left than a dead one of a long ttl."""
    for name, behind, left_ms in (
        ("a", "~1764400002", 600_000),
        ("b", "~1764400001", 10_000),
        ("c", "", 20_000),
        ("d", "", None),
    ):
        for server in servers[:3]:
            server.set(name, f"{'x' * 27}@ann{behind}", px=left_ms)
    out = call("list", "--oldest-first", "*").out
    assert [line[1] for line in out.splitlines()] == [*"dcba"]
    assert re.search(r"since 2025-11-29T07:06:41Z, (10|\d)\.\d s left", out)
    _, out, err = call("list", "--oldest-first", "--most", "2", "*")
    assert [line[1] for line in out.splitlines()] == ["d", "c"]
    assert err == "fastredlock list: there are more than 2\n"


def test_list_when_locks_have_numbers_then_does_not_take_those_for_locks(
    call: Call, make_locks: MakeLocks, urls: list[str]
) -> None:
    for prefix in ("", "app:"):
        locks = make_locks(urls[:3], fencing=True, key_prefix=prefix)
        assert granted(locks.acquire(KEY)).fence > 0
    status, out, _ = call("list", "*")
    assert status == 0
    assert names_in(out) == [f"'app:{KEY}'", f"'{KEY}'"]
    out = call("list", "--key-prefix", "app:", "*").out
    assert names_in(out) == [f"'{KEY}'"]


def test_list_when_a_master_is_away_or_refuses_then_says_which(
    call: Call, masters: LocalMasters
) -> None:
    masters.stop(0)
    urls = masters.urls[:3]
    status, _, err = call("list", "--masters", ",".join(urls), "*")
    assert status == 0
    assert f"list: {urls[0][8:-2]}: SCAN: " in err
    assert "Connection refused" in err
    urls[1] = as_user(urls[1], RULES)
    status, _, err = call("list", "--masters", ",".join(urls), "*")
    assert status == 69
    assert "(grant its user +scan)" in err
    assert "pw@" not in err


def test_list_when_too_few_masters_can_list_then_knows_names_and_no_holder(
    call: Call, urls: list[str], servers: Servers
) -> None:
    servers[0].set(KEY, "token")
    masters = f"{urls[0]},redis://127.0.0.1:1,redis://127.0.0.1:2"
    status, out, _ = call("list", "--masters", masters)
    told = f"'{KEY}': not known: 0 of 3 masters answered, 2 are needed\n"
    assert (status, out) == (69, told)


# --- keys with a prefix ---------------------------------------------------------------


def test_commands_when_keys_have_a_prefix_then_know_locks_by_their_names(
    call: Call, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    locks = connected(make_locks(urls[:3], key_prefix="a*:", owner="ann"))
    lease = granted(locks.acquire(KEY, ttl=10))
    set_all(servers[:3], b"another's", f"ab:{KEY}")
    option = ("--key-prefix", "a*:")
    for words in (("who", KEY), ("list", "*"), ("break", "--yes", KEY)):
        status, out, _ = call(*words, *option)
        assert status == 0
        assert out.startswith(f"'{KEY}' is held by ann (token {lease.token_hash}, ")
    assert values(servers[:3], f"a*:{KEY}") == [None] * 3
    assert values(servers[:3], f"ab:{KEY}") == [b"another's"] * 3
    assert call("run", *option, KEY, "--", "true")[0] == 0


@pytest.mark.parametrize(
    ("words", "status", "out", "err"),
    [
        (f"who {KEY} >&-", 71, "", "fastredlock: [Errno 9] Bad file descriptor\n"),
        ("list >&-", 71, "", "fastredlock: [Errno 9] Bad file descriptor\n"),
        (f"who {KEY} <&- >&- 2>&-", 71, "", ""),
        (f"run -n {KEY} true 2>&-", 1, "", ""),
        (r"run other $(printf 'DEL orders:42\r\n') <&- >&- 2>&-", 127, "", ""),
        ("run other sh -c ': >&2' 2>&-", 2, "", ""),
    ],
)
def test_command_when_a_stream_is_closed_then_no_answer_is_lost_or_sent_to_a_master(
    urls: list[str], servers: Servers, words: str, status: int, out: str, err: str
) -> None:
    """Seen: status 1 as of a lock that is free; a socket that had the number."""
    tool = f"{sys.executable} -bb -m fastredlock"
    environment = environment_of_children() | {
        "FASTREDLOCK_MASTERS": ",".join(urls[:3])
    }
    with FastRedlock(urls[:3]) as locks:
        lease = granted(connected(locks).acquire(KEY, ttl=60))
        ended = subprocess.run(
            ["sh", "-c", f"{tool} {words}"], text=True, capture_output=True,
            env=environment,
        )  # fmt: skip
        assert (ended.returncode, ended.stdout, ended.stderr) == (status, out, err)
        assert settled_values(servers[:3], [lease.token] * 3) == [lease.token] * 3


# --- while the list of masters changes ------------------------------------------------


def test_commands_when_the_list_changes_then_count_a_majority_of_each_list(
    call: Call, make_locks: MakeLocks, urls: list[str], servers: Servers
) -> None:
    new = [urls[0], *urls[3:]]
    to = "--changing-to", ",".join(new)
    set_all(servers[:3], "old only")  # no expiry
    held = connected(make_locks(urls[:3], changing_to=new, owner="ann"))
    lease = granted(held.acquire("jobs", ttl=10))
    assert settled_values(servers, [lease.token] * 5, "jobs") == [lease.token] * 5
    assert call("who", KEY)[0] == 0  # by the old list it is held
    status, out, _ = call("who", *to, KEY)
    assert status == 1
    assert out.startswith(f"'{KEY}' is held by nobody: no token has a quorum")
    status, out, _ = call("list", *to)
    assert status == 0
    assert "held by nobody" in out
    assert "'jobs' is held by ann" in out
    assert call("run", "-n", *to, "jobs", "true")[0] == 1
    assert call("break", *to, "jobs", "--yes")[0] == 0
    assert call("run", "-n", *to, "jobs", "true")[0] == 0


@pytest.mark.parametrize(("dead", "status"), [(1, 0), (2, 69)])
def test_list_when_the_new_list_lacks_its_majority_then_what_it_says_is_not_all(
    call: Call, urls: list[str], servers: Servers, dead: int, status: int
) -> None:
    nobody = [f"redis://127.0.0.1:{port}" for port in range(1, 1 + dead)]
    new = ",".join([urls[0], *urls[3 : 5 - dead + 1][: 2 - dead], *nobody])
    assert call("list", "--changing-to", new)[0] == status
    assert (call("check", "--changing-to", new)[0] == 2) is (dead == 2)
    assert (call("who", "--changing-to", new, KEY)[0] == 69) is (dead == 2)
