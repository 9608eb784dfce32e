"""`locks.health()`; and a server that says nothing of itself still locks."""

from __future__ import annotations

from fastredlock import ReleaseStatus
from fastredlock._core import MasterState
from fastredlock.testing import LocalMasters
from tests.support.calls import granted
from tests.support.fixtures import MakeLocks, Raw
from tests.support.keys import KEY


def test_health_when_all_is_well_then_tells_what_the_servers_are(
    make_locks: MakeLocks, urls: list[str], raw: Raw
) -> None:
    locks = make_locks(urls)
    for _ in range(5):
        granted(locks.acquire(KEY, timeout=0)).release()
    for url, health in zip(urls, locks.health(), strict=True):
        said = raw(url).info()
        assert health.master in url
        assert health.state is MasterState.READY
        assert (health.version, health.run_id) == (
            said.get("valkey_version", said["redis_version"]),
            said["run_id"],
        )
        assert (health.role, health.policy) == ("master", "noeviction")
        assert health.uptime is not None
        assert (health.clock_step, health.last_error, health.warnings) == (0, None, ())
    # The slowest of five is not waited for: it may have no sample yet.
    trips = [health.round_trip for health in locks.health()]
    assert len([trip for trip in trips if trip is not None and 0 < trip < 1]) >= 3


def test_health_when_nothing_was_connected_then_tells_so(
    make_locks: MakeLocks, urls: list[str]
) -> None:
    (health, *_) = make_locks(urls).health()
    assert health.state is MasterState.CLOSED
    assert (health.version, health.uptime, health.round_trip) == (None, None, None)
    assert health.last_error == "not connected yet"


def test_health_when_a_master_is_lost_then_keeps_what_it_said_and_why_it_is_away(
    make_locks: MakeLocks, masters: LocalMasters
) -> None:
    locks = make_locks(masters.urls)
    locks.connect()
    masters.stop(0)
    granted(locks.acquire(KEY, timeout=0))
    health = locks.health()[0]
    assert health.state is not MasterState.READY
    assert health.last_error
    assert health.run_id


def test_info_when_forbidden_then_facts_are_none_and_locks_work(
    make_locks: MakeLocks, masters: LocalMasters, raw: Raw
) -> None:
    for url in masters.urls:
        raw(url).execute_command(b"ACL SETUSER shy on >pw ~* +@all -info")
    locks = make_locks([url.replace("//", "//shy:pw@") for url in masters.urls])
    lease = granted(locks.acquire(KEY, timeout=0))
    assert lease.extend() > 0
    assert lease.release() is ReleaseStatus.RELEASED
    for health in locks.health():
        assert (health.version, health.run_id, health.role) == (None, None, None)
        assert (health.uptime, health.policy, health.warnings) == (None, None, ())
        assert health.last_error is None
