"""The first try of an acquire is made in C: it is what the policy would have tried."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NoReturn

import pytest

from fastredlock import NO_EXPIRY, FastRedlock, Lease, Retry
from fastredlock._core import (
    AcquireCall,
    DriverFields,
    Engine,
    PermitsOf,
    Round,
)
from fastredlock._locking.attempt import attempts
from fastredlock._locking.driver import Driver
from fastredlock._options.keys import encode_resource, encode_resources
from tests.support.core import encode_round
from tests.support.gate_by_hand import GATE, KEY, LAST, NEXT, SCRIPTS, Gates

CONTENDED = KEY.decode()
RESOURCES: list[Any] = [
    *(CONTENDED, KEY, "free", b"free", "ä" * 512, "ä" * 513, "x" * 1025, "\ud800"),
    *("", b"", b"\xff", "fastredlock:x", b"a:fastredlock:b", None, 5, bytearray(b"a")),
]
SEVERAL: list[Any] = [[CONTENDED], ["b", "a", CONTENDED], ["free", b"b"], [], ["a", ""]]
ENCODERS: list[tuple[Callable[..., Any], list[Any]]] = [
    (encode_resource, RESOURCES),
    (PermitsOf(encode_resource, 1), RESOURCES),
    (PermitsOf(encode_resource, 3), RESOURCES),
    (encode_resources, SEVERAL),
]
TIMEOUTS: list[Any] = [
    *(None, 0, 0.0, -0.0, 1, 0.25, 1e-3, 1e-10, 1_000_000, 1_000_000.5, 10**12),
    True,
    *(-1, -1e-9, float("nan"), float("inf"), float("-inf"), "1", b"1"),
]
TTLS: list[Any] = [None, 5, 0.1, NO_EXPIRY, 0, -1, float("nan"), "5", True]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"retry": Retry(delay=0.1)},  # polls
    {"new_token": lambda: "given"},
    {"linger": 1.0},
]


class Tried(Exception):  # noqa: N818 - no error
    """The first round of a call: the call ends there."""


class OneRound(Driver):
    """A driver that gives back the first round that it has to run."""

    __slots__ = ("at_ns",)

    def __init__(self, settings: Any, engine: Engine, at_ns: int) -> None:
        DriverFields.__init__(self, settings, engine)
        self.runs_in_core = False
        self.at_ns = at_ns

    def now_ns(self) -> int:
        return self.at_ns

    def run(self, work: object) -> NoReturn:
        raise Tried(work)

    def abandon(self, work: object) -> None:
        """Nothing of it was sent."""


@pytest.fixture(scope="module")
def contended() -> Gates:
    """Return an engine that knows of waiters for KEY, and of none for other names."""
    gates = Gates()
    release = gates.release(gates.take())
    for each in (NEXT, LAST):
        gates.hear(each)
        gates.say(each, b":1\r\n")
    gates.hear(GATE)
    gates.say(GATE, b":2\r\n")
    assert release.is_won
    assert gates.engine.is_contended(KEY, gates.now_ns)
    return gates


def facts(round: Round) -> tuple[object, ...]:
    """Return what is sent, when it ends, and how it waits; but for a token of ours."""
    terms = round.terms
    token = b"$%d\r\n%s\r\n" % (len(round.token), round.token)
    sent = encode_round(round, SCRIPTS).replace(token, b"the token")
    return (
        *(round.operation, round.resource, round.keys, sent),
        *(terms.ttl_ms, terms.drift_ns, terms.timeout_ns, terms.has_expiry),
        *(round.attempt, round.began_ns, round.left_ns, round.has_turn, round.places),
    )


def tried(try_first: Callable[[], object]) -> tuple[object, ...]:
    try:
        found = try_first()
    except Tried as tried:
        found = tried.args[0]
    except Exception as error:
        return type(error), str(error)
    assert isinstance(found, Round)
    return facts(found)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda given: next(iter(given), "-"))
@pytest.mark.parametrize(("encode", "resources"), ENCODERS)
def test_first_try_in_c_is_what_the_policy_would_try(
    contended: Gates, options: dict[str, Any], encode: Any, resources: list[Any]
) -> None:
    settings = FastRedlock(
        [("master", port) for port in (1, 2, 3)], **options
    )._driver.settings
    driver = OneRound(settings, contended.engine, contended.now_ns)
    waited = 0
    for resource, timeout, ttl in product(resources, TIMEOUTS, TTLS):
        call, same = (
            AcquireCall(driver, Lease, resource, ttl, timeout, encode) for _ in range(2)
        )
        by_core = tried(call.run)
        by_policy = tried(lambda same=same: next(attempts(driver, same)))
        assert (resource, timeout, ttl, by_core) == (resource, timeout, ttl, by_policy)
        waited += len(by_core) > 2 and bool(by_core[-2])
    assert bool(waited) == ("retry" not in options and encode is encode_resource)
