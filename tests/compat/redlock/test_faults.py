"""Bugs of redlock-py that are not copied, and what ours does besides."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from fastredlock.testing import LocalMasters
from tests.compat.redlock.face import TTL, Face
from tests.support.keys import KEY
from tests.support.proxy import Proxy
from tests.support.threads import later
from tests.support.waiting import stopwatch


def test_quorum_is_a_lock_although_another_server_is_down(
    better: Face, masters: LocalMasters
) -> None:
    manager = better.Redlock([better.client(url) for url in masters.urls])
    masters.stop(4)
    lock = manager.lock(KEY, TTL)  # theirs: raises, and leaves four keys behind
    assert lock
    manager.unlock(lock)
    assert manager.lock(KEY, TTL)


def test_no_delay_after_the_last_try(better: Face) -> None:
    manager = better.Redlock(better.clients, retry_count=1, retry_delay=1)
    assert manager.lock(KEY, TTL)
    with stopwatch() as elapsed:
        assert manager.lock(KEY, TTL) is False
        assert elapsed() < 0.9


def test_every_try_has_a_key_of_its_own(better: Face) -> None:
    drawn = []

    class Watched(better.Redlock):  # type: ignore[name-defined]
        def get_unique_id(self) -> bytes:
            drawn.append(super().get_unique_id())
            return bytes(drawn[-1])

    assert better.manager().lock(KEY, TTL)
    watched = Watched(better.urls, retry_count=3, retry_delay=0.001)
    assert watched.lock(KEY, TTL) is False
    assert len(set(drawn)) == 3


def test_key_cannot_be_predicted_from_the_seed_of_random(better: Face) -> None:
    manager, keys = better.manager(), []
    for _ in range(2):
        random.seed(7)
        keys.append(manager.get_unique_id())
    assert keys[0] != keys[1]


def test_validity_when_the_wall_clock_is_set_back_then_is_not_longer_than_the_ttl(
    better: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, hours = better.Redlock(better.clients), iter(range(100, 0, -1))
    monkeypatch.setattr(time, "time", lambda: next(hours) * 3600.0)
    assert manager.lock(KEY, TTL).validity < TTL


def test_ttl_is_checked_under_optimisation_as_well(better: Face) -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; from {better.name} import *\n"
        "try: Redlock(['redis://localhost']).lock_instance(None, 'k', b'v', 1.5)\n"
        "except ValueError: print('refused')"
    )
    told = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False
    )
    assert told.stdout == "refused\n"


# --- ours alone -----------------------------------------------------------------------


def test_same_database_twice_is_refused(ours: Face) -> None:
    """Theirs takes it, and never gets a lock."""
    with pytest.raises(Warning, match="are the same database"):
        ours.Redlock([{"host": "h", "db": 1}, {"host": "h", "db": 1}])


def test_failed_try_is_logged_with_what_every_server_said(
    ours: Face, masters: LocalMasters, caplog: pytest.LogCaptureFixture
) -> None:
    manager = ours.Redlock(masters.urls, retry_count=1)
    for i in range(3):
        masters.stop(i)
    assert manager.lock(KEY, TTL) is False
    assert "fewer than a quorum of masters could answer" in caplog.text
    assert f"127.0.0.1:{masters.ports[0]} FAILED" in caplog.text


def test_first_try_waits_for_connections_longer_than_for_a_round(ours: Face) -> None:
    with Proxy(ours.urls[0]) as slow:
        manager = ours.Redlock([slow.url], retry_count=1)
        slow.set(holds_down=True)
        with later(0.3, slow.heal):
            assert manager.lock(KEY, 2_000)  # a round with this ttl waits 0.1 s
