"""A fork in the middle of an acquire: from a signal handler, or a finalizer."""

from __future__ import annotations

import redis

from fastredlock import FastRedlock, Lease
from fastredlock import _core as core
from tests.support.fixtures import blocking
from tests.support.keys import KEY, settled_values
from tests.support.processes import Fork

pytestmark = blocking  # blocking_run


def test_round_when_the_process_forks_before_its_lease_then_the_child_has_none(
    locks: FastRedlock, servers: list[redis.Redis]
) -> None:
    engine, terms = locks._driver.engine, locks._driver.settings.default_terms
    round = engine.new_round(0, KEY.encode(), b"token", terms)
    core.blocking_run(engine, round)
    wanted: list[bytes | None] = [b"token"] * 5
    assert settled_values(servers, wanted, KEY) == wanted

    def in_child() -> bool:
        # The child goes on where the parent was: with a round that is won.
        is_valid = Lease(locks._driver, KEY, round).is_valid
        core.blocking_abandon(engine, round)
        granted = locks.acquire("childs", timeout=0)
        return is_valid or granted is None

    assert Fork(in_child).result() is False
    assert settled_values(servers, wanted, KEY) == wanted  # still the parent's
    lease = Lease(locks._driver, KEY, round)
    assert lease.is_valid
    assert lease.release().name == "RELEASED"
