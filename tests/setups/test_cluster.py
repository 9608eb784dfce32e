"""A Redis Cluster on real servers: its slots move, its primaries fail over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from fastredlock import (
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    Lease,
    LeaseLostError,
    QuorumUnreachableError,
    ReleaseStatus,
)
from fastredlock.cli import main
from fastredlock.compat.redis import Lock
from fastredlock.compat.redis.asyncio import Lock as AwaitableLock
from fastredlock.testing import LocalCluster, LocalMasters
from fastredlock.testing._local import Server
from tests.support.calls import insisted
from tests.support.certificates import Certificates, lacks_tls

NODE_TIMEOUT = 1  # s
QUARANTINE = 1 + 1 + NODE_TIMEOUT + 2  # s: max_ttl, 1 s, the window
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(replicas=1, node_timeout=NODE_TIMEOUT) as cluster:
        with new_locks(cluster) as locks:
            for resource in ("a", "b", "c", "d"):
                granted(locks, resource).release()
        yield cluster


def new_locks(cluster: LocalCluster, **options: object) -> FastRedlock:
    return FastRedlock([cluster.url], ttl=1, max_ttl=1, **options)  # type: ignore[arg-type]


def granted(locks: FastRedlock, resource: str, within: float = 30) -> Lease:
    """Try until the lock is had."""
    deadline = time.monotonic() + within
    while True:
        try:
            lease = locks.acquire(resource, timeout=0.5)
        except QuorumUnreachableError as error:
            text = str(error)
            assert time.monotonic() < deadline, text
            continue
        if lease is not None:
            return lease
        assert time.monotonic() < deadline, "taken"


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60  # of a loaded machine
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def value_of(cluster: LocalCluster, key: str) -> str:
    return cluster.command(cluster.primary_of(cluster.slot_of(key)), "GET", key)


def other(cluster: LocalCluster, slot: int) -> int:
    """Return a primary that does not have this slot."""
    at = cluster.primary_of(slot)
    return next(
        primary
        for primary in (cluster.primary_of(each) for each in (0, 8000, 16383))
        if primary != at
    )


def move(cluster: LocalCluster, key: str) -> None:
    slot = cluster.slot_of(key)
    cluster.move(slot, other(cluster, slot))


def test_break_when_in_a_cluster_then_its_trace_is_beside_the_key(
    cluster: LocalCluster,
) -> None:
    for prefix in ("", "shop:"):
        with new_locks(cluster, key_prefix=prefix) as locks:
            for name in ("one", "{two}three", "four"):
                lease = granted(locks, name)
                locks.break_(name, token_hash=lease.token_hash)
                with pytest.raises(LeaseLostError, match="lost: broken by "):
                    lease.extend()


def test_lease_when_its_slot_moves_then_is_extended_and_released_there(
    cluster: LocalCluster,
) -> None:
    with new_locks(cluster) as locks:
        for _ in range(3):
            lease = granted(locks, "order")
            assert lease.token.decode() in value_of(cluster, "order")
            move(cluster, "order")
            assert lease.token.decode() in value_of(cluster, "order")
            lease.extend()
            assert locks.acquire("order", timeout=0) is None
            move(cluster, "order")
            assert lease.release() is ReleaseStatus.RELEASED
            assert value_of(cluster, "order") == "$-1"


def test_readers_when_their_slot_moves_then_stay_beside_each_other_and_no_writer(
    cluster: LocalCluster,
) -> None:
    with new_locks(cluster) as locks, new_locks(cluster) as others:
        granted(locks, "catalog").release()
        granted(others, "catalog").release()
        reading = locks.acquire("catalog", shared=True, timeout=5)
        beside = others.acquire("catalog", shared=True, timeout=5)
        assert reading is not None
        assert beside is not None
        for _ in range(2):
            move(cluster, "catalog")
            for lease in (reading, beside):
                assert lease.extend() > 0
            assert others.acquire("catalog", timeout=0) is None
        move(cluster, "catalog")
        assert beside.release() is ReleaseStatus.RELEASED
        assert others.acquire("catalog", timeout=0) is None
        assert reading.release() is ReleaseStatus.RELEASED
        assert value_of(cluster, "catalog") == "$-1"
        granted(others, "catalog").release()


def test_readers_when_their_slot_is_being_moved_then_are_kept_on_either_side(
    cluster: LocalCluster,
) -> None:
    with new_locks(cluster) as locks, new_locks(cluster) as others:
        for each in (locks, others):
            granted(each, "moving too").release()
            each.connect()
        reading = locks.acquire("moving too", shared=True, timeout=5)
        assert reading is not None
        slot = cluster.slot_of("moving too")
        to = other(cluster, slot)
        at = cluster.begin_move(slot, to)
        assert reading.extend() > 0
        beside = others.acquire("moving too", shared=True, timeout=0)
        assert beside is not None
        cluster.move_keys(slot, at, to)
        for lease in (reading, beside):
            assert lease.extend() > 0  # ASK
        assert beside.release() is ReleaseStatus.RELEASED
        cluster.end_move(slot, at, to)
        assert reading.release() is ReleaseStatus.RELEASED
        assert value_of(cluster, "moving too") == "$-1"


def test_lease_when_its_slot_is_being_moved_then_is_kept_on_either_side(
    cluster: LocalCluster,
) -> None:
    with new_locks(cluster) as locks, new_locks(cluster) as others:
        locks.connect()  # to the target as well: ASK does not wait for it
        first, second = (granted(locks, f"{{moving}}:{i}", 5) for i in (1, 2))
        slot = cluster.slot_of("moving")
        to = other(cluster, slot)
        at = cluster.begin_move(slot, to)
        assert others.acquire("{moving}:1", timeout=0) is None
        first.extend()  # still at the donor
        cluster.move_keys(slot, at, to)
        for lease in (first, second):
            lease.extend()  # ASK
        assert first.release() is ReleaseStatus.RELEASED
        cluster.end_move(slot, at, to)
        assert second.release() is ReleaseStatus.RELEASED
        for resource in ("{moving}:1", "{moving}:2"):
            assert value_of(cluster, resource) == "$-1"


def test_callers_when_the_slot_moves_then_each_gets_its_turn(
    cluster: LocalCluster,
) -> None:
    order: list[int] = []

    def wait(number: int) -> None:
        with new_locks(cluster) as locks:
            lease = locks.acquire("queue", timeout=20)
            assert lease is not None
            order.append(number)
            time.sleep(0.1)
            lease.release()

    with new_locks(cluster) as locks:
        held = granted(locks, "queue")
        threads = [threading.Thread(target=wait, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
            time.sleep(0.15)
        move(cluster, "queue")
        held.release()
        for thread in threads:
            thread.join()
    assert sorted(order) == [0, 1, 2, 3]


@pytest.mark.parametrize("is_cluster", [False, True])
def test_slot_when_it_is_named_then_is_the_semaphores_in_a_cluster_too(
    cluster: LocalCluster, is_cluster: bool
) -> None:
    with contextlib.ExitStack() as stack:
        if is_cluster:
            locks, other = new_locks(cluster), new_locks(cluster)
        else:
            plain = stack.enter_context(LocalMasters(1))
            locks, other = (FastRedlock(plain.urls, ttl=1) for _ in range(2))
        stack.enter_context(locks)
        stack.enter_context(other)
        granted(locks, "gpu#1").release()
        with (
            locks.lock("gpu#1"),  # slot 1 is out of service
            locks.semaphore("gpu", 2, timeout=1) as lease,
        ):
            assert lease.slot == 0
            votes = other.holders("gpu#0")
            assert votes[0].token_hash == lease.token_hash
            assert other.acquire("gpu#0", timeout=0) is None
        lease = insisted_slot(locks)
        adopted = other.adopt(f"gpu#{lease.slot}", lease.token)
        adopted.extend()
        assert other.break_(f"gpu#{lease.slot}", token_hash=lease.token_hash)
        with pytest.raises(FastRedlockError):
            lease.extend()
        both = locks.acquire_all(["gpu#0", "gpu#1"], timeout=1)
        assert both is not None
        assert locks.acquire("gpu", permits=2, timeout=0) is None
        both.release()


def insisted_slot(locks: FastRedlock) -> Lease:
    lease = locks.acquire("gpu", permits=2, timeout=5)
    assert lease is not None
    return lease


def test_several_when_in_one_slot_then_are_locked_together(
    cluster: LocalCluster,
) -> None:
    with new_locks(cluster) as locks:
        lease = locks.acquire_all(["{order}:1", "{order}:2"], timeout=5)
        assert lease is not None
        move(cluster, "order")
        lease.extend()
        assert lease.release() is ReleaseStatus.RELEASED
        with pytest.raises(ConfigurationError, match="put a part that all have"):
            locks.acquire_all(["order:1", "order:2"], timeout=0)
        with pytest.raises(ConfigurationError, match="whole tag before it"):
            locks.acquire("order}", timeout=0)
        each = locks.acquire_each(["order:1", "order:2"])
        assert None not in [*each]
        locks.release_each([lease for lease in each if lease is not None])


@pytest.mark.parametrize("is_awaited", [False, True])
def test_drop_in_when_its_client_is_of_a_cluster_then_follows_the_slot(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    is_awaited: bool,
) -> None:  # fmt: skip
    (tmp_path / "options").write_text("max_ttl = 1\n")
    monkeypatch.setenv("FASTREDLOCK_CONFIG", str(tmp_path / "options"))
    place: Any = {"host": "127.0.0.1", "port": cluster.servers.ports[0]}

    async def awaited_lock() -> None:
        async with (
            redis.asyncio.RedisCluster(**place) as client,
            AwaitableLock(client, "drop-in", timeout=1) as lock,
        ):
            await asyncio.to_thread(move, cluster, "drop-in")
            assert await lock.extend(1, replace_ttl=True)
            assert await lock.owned()

    def lock() -> None:
        with (
            redis.RedisCluster(**place) as client,
            Lock(client, "drop-in", timeout=1) as held,
        ):
            move(cluster, "drop-in")
            assert held.extend(1, replace_ttl=True)
            assert held.owned()

    insisted(lambda: asyncio.run(awaited_lock()) if is_awaited else lock())
    assert value_of(cluster, "drop-in") == "$-1"


def test_check_when_of_a_cluster_then_looks_at_each_primary(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def checked(url: str) -> tuple[int, str]:
        return main(["check", "--masters", url]), capsys.readouterr().out

    status, out = checked(cluster.url)
    assert (status, "cluster of 3 primaries" in out) == (0, True)
    last = cluster.primary_of(16383)
    cluster.command(last, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    for limit, is_safe in (("100mb", False), ("0", True)):
        cluster.command(last, "CONFIG", "SET", "maxmemory", limit)
        status, out = checked(cluster.url)
        assert (status == 0, "evicts keys" not in out) == (is_safe, is_safe)
    with LocalMasters(1) as plain:
        url = plain.urls[0].replace("redis://", "redis+cluster://").removesuffix("/0")
        status, out = checked(url)
    assert (status, "no map of the cluster: " in out) == (2, True)


def test_check_when_a_right_to_a_cluster_is_missing_then_names_it(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    user = "few", "on", ">few", "+@all", "-asking", "-cluster|myid", "~*", "&*"
    for i in range(len(cluster.servers.ports)):
        cluster.command(i, "ACL", "SETUSER", *user)
    main(["check", "--masters", cluster.url.replace("//", "//few:few@")])
    out = capsys.readouterr().out
    assert "leases whose key has moved are lost: grant +asking" in out
    assert "seen by maps only; grant +cluster|myid" in out


def test_list_when_of_a_cluster_then_walks_each_primary(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed(*options: str) -> tuple[int, dict[str, Any]]:
        status = main(["list", "--json", *options, "listed:*"])
        return status, json.loads(capsys.readouterr().out)

    masters = ("--masters", cluster.url)
    with new_locks(cluster) as locks:
        leases = [granted(locks, f"listed:{i}") for i in range(6)]
        for lease in leases:
            lease.keep_alive()
        primaries = {
            cluster.primary_of(cluster.slot_of(f"listed:{i}")) for i in range(6)
        }
        assert len(primaries) > 1
        status, told = listed(*masters)
        assert (status, told["is_known"], told["failures"]) == (0, True, {})
        assert [lock["resource"] for lock in told["locks"]] == [
            f"listed:{i}" for i in range(6)
        ]
        for lock in told["locks"]:
            (vote,) = lock["masters"]
            assert (vote["vote"], vote["waiting"]) == ("TAKEN", 0)
    status, told = listed("--masters", "redis+cluster://127.0.0.1:1")
    assert (status, told["is_known"]) == (69, False)
    assert "no map of the cluster" in next(iter(told["failures"].values()))


def test_lease_when_over_tls_then_is_followed_to_where_its_slot_moves(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, options = Server.arguments, certificates.options_of_server()

    def over_tls(server: Server) -> list[str]:
        """Let it speak TLS on its port, with clients and with the other nodes."""
        own = ["--port", "0", "--tls-port", str(server.port), "--tls-cluster", "yes"]
        return [*arguments(server), *own, *options, "--tls-auth-clients", "no"]

    monkeypatch.setattr(Server, "arguments", over_tls)
    try:
        cluster = LocalCluster(primaries=2, node_timeout=NODE_TIMEOUT)
    except RuntimeError as error:
        if not lacks_tls(error):
            raise
        pytest.skip("the server is built without TLS")
    url = f"{cluster.url}?ssl_ca_certs={certificates.authority}"
    url = url.replace("redis+", "rediss+")
    with cluster, FastRedlock([url], ttl=5, max_ttl=5) as locks:  # longer than a move
        for resource in ("a", "order"):
            granted(locks, resource).release()
        lease = granted(locks, "order")
        slot = cluster.slot_of("order")
        cluster.move(slot, 1 - cluster.primary_of(slot))
        lease.extend()  # MOVED
        assert lease.token.decode() in value_of(cluster, "order")
        assert lease.release() is ReleaseStatus.RELEASED
        assert value_of(cluster, "order") == "$-1"


def test_lease_when_its_cluster_keeps_all_writes_then_outlives_a_failover(
    cluster: LocalCluster,
) -> None:
    url = f"{cluster.url}?lossless_failover=true"  # a switch by hand loses nothing
    with FastRedlock([url], ttl=60) as locks, FastRedlock([url]) as new:
        lease = granted(locks, "kept")
        cluster.fail_over(cluster.slot_of("kept"))
        assert lease.token.decode() in value_of(cluster, "kept")
        texts = insisted(lease.extend)
        assert new.acquire("kept", timeout=0) is None
        assert lease.release() is ReleaseStatus.RELEASED
        texts += insisted(lambda: granted(new, "kept", 0).release())
    assert "votes in" not in texts
    cluster.await_ready()


@pytest.mark.parametrize("how", ["switched", "killed"])
def test_primary_when_it_fails_over_then_nobody_locks_until_all_leases_have_ended(
    cluster: LocalCluster, how: str
) -> None:
    slot = cluster.slot_of("failing")
    with new_locks(cluster) as locks, new_locks(cluster) as others:
        granted(locks, "failing").release()
        granted(others, "failing").release()
        old = cluster.primary_of(slot)
        if how == "switched":
            cluster.fail_over(slot)
        else:
            cluster.servers.stop(old)
            until(lambda: cluster.primary_of(slot) not in (old, -1))
        promoted = time.monotonic()
        texts = ""
        while "votes in" not in texts:
            assert time.monotonic() < promoted + 4
            try:
                assert locks.acquire("failing", timeout=0.2) is None
            except QuorumUnreachableError as error:
                texts += str(error)
        with new_locks(cluster) as new:
            for each in (locks, others, new):
                granted(each, "failing").release()
                assert time.monotonic() > promoted + QUARANTINE - 2
    if how == "killed":
        cluster.servers.start(old)


# ---- an address that is reused


def forget(cluster: LocalCluster, i: int) -> None:
    """Let a server start as one that has lost its memory: with an id of its own."""
    cluster.command(i, "FLUSHALL")
    assert cluster.command(i, "CLUSTER", "RESET", "HARD") == "+OK"
    cluster.command(i, "CLIENT", "KILL", "TYPE", "normal")


def test_primary_when_it_has_lost_its_memory_then_the_others_go_on() -> None:
    with LocalCluster(primaries=3, node_timeout=NODE_TIMEOUT) as cluster:
        names = [
            next(f"n{i}" for i in range(99) if has(cluster, f"n{i}", at))
            for at in range(3)
        ]
        with new_locks(cluster, round_timeout=0.3) as locks:
            for name in names:
                granted(locks, name).release()
            forget(cluster, 2)
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                with pytest.raises(QuorumUnreachableError):
                    locks.acquire(names[2], timeout=0)
                for name in names[:2]:
                    lease = locks.acquire(name, timeout=0)
                    assert lease is not None
                    lease.release()


def has(cluster: LocalCluster, key: str, i: int) -> bool:
    return cluster.primary_of(cluster.slot_of(key)) == i


def test_lock_when_a_primarys_address_goes_to_another_cluster_then_has_one_holder() -> (
    None
):
    with (
        LocalCluster(primaries=3, node_timeout=NODE_TIMEOUT) as cluster,
        LocalCluster(primaries=1, node_timeout=NODE_TIMEOUT) as other,
        new_locks(cluster, round_timeout=0.3) as locks,
        new_locks(cluster, round_timeout=0.3) as others,
    ):
        name = next(f"x{i}" for i in range(99) if has(cluster, f"x{i}", 0))
        lost = next(f"x{i}" for i in range(99) if has(cluster, f"x{i}", 2))
        for client in (locks, others):
            for each in (name, lost):
                granted(client, each).release()
        lease = locks.acquire(name, timeout=0, keep_alive=True)
        assert lease is not None
        forget(cluster, 2)
        port = other.servers.ports[0]
        cluster.command(2, "CLUSTER", "MEET", "127.0.0.1", port)
        deadline = time.monotonic() + 2 * QUARANTINE
        texts = ""
        while time.monotonic() < deadline:
            assert others.acquire(name, timeout=0) is None
            with pytest.raises(QuorumUnreachableError) as caught:
                others.acquire(lost, timeout=0)
            texts += str(caught.value)
        assert "another cluster" in texts
        assert lease.is_valid
        lease.release()


# ---- bad inputs


def refusal_of(url: str) -> str:
    began = time.monotonic()
    with (
        FastRedlock([url], ttl=1, max_ttl=1) as locks,
        pytest.raises(QuorumUnreachableError) as caught,
    ):
        locks.acquire("x", timeout=0.5)
    assert time.monotonic() < began + 10
    return str(caught.value)


def test_node_when_its_cluster_is_given_as_well_then_has_one_vote(
    cluster: LocalCluster,
) -> None:
    # Of all hash slots: whichever node has the key, both votes would be its own.
    ports = cluster.servers.ports
    url = f"redis+cluster://127.0.0.1:{ports[0]}?failover_window=0.1"
    nodes = [f"redis://127.0.0.1:{port}" for port in ports]
    with FastRedlock([url, *nodes], ttl=0.5, max_ttl=0.5) as locks:
        with contextlib.suppress(FastRedlockError):
            locks.acquire("x", timeout=0.5)
        told = [text for each in locks.health() for text in each.warnings]
        told += [each.last_error or "" for each in locks.health()]
    assert any("one server has one vote" in text for text in told)
