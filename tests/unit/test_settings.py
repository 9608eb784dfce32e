"""Bad input is refused before any I/O; good input becomes whole numbers."""

from __future__ import annotations

import asyncio
import sys
import traceback
from base64 import urlsafe_b64decode
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastredlock import (
    NO_EXPIRY,
    ConfigurationError,
    FastRedlock,
    FastRedlockError,
    Retry,
    Stats,
)
from fastredlock import asyncio as awaitable
from fastredlock._core import MasterState
from fastredlock._options.keys import encode_each, encode_resource, encode_token
from fastredlock._options.retry import delay_of
from fastredlock._options.settings import OnlyLooks
from fastredlock.testing import MemoryLocks
from tests.support.rounds import MS, thorough
from tests.support.settings import MASTERS, new_settings

NAN, INF = float("nan"), float("inf")
TTL_RANGE = "allowed is 0.003 to 1000000000 s; drift takes off 1.00% and 2 ms"
TIMEOUT_RANGE = "allowed is None (no limit) or 0 s (one try) and more"
DURATION_RANGE = "allowed is above 0 to 1000000000 s"

BAD_TTLS = [
    (0, "ttl=0"),
    (-1, "ttl=-1"),
    (-0.5, "ttl=-0.5"),
    (NAN, "ttl=nan"),
    (INF, "ttl=inf"),
    (-INF, "ttl=-inf"),
    (0.001, "ttl=0.001"),  # drift takes off 2.01 ms
    (0.002, "ttl=0.002"),
    (1_000_000_001, "ttl=1000000001"),
    (1e200, "ttl=1e+200"),
    # Not an OverflowError of round(), of the product with drift_factor, of isfinite().
    *((1e300, "ttl=1e+300"), (1.7e308, "ttl=1.7e+308"), (10**400, "ttl=1000000")),
    (True, "ttl=True"),
    ("5", "ttl='5'"),
]
BAD_TIMEOUTS = [
    (-1, "timeout=-1"),
    (-0.001, "timeout=-0.001"),
    (-INF, "timeout=-inf"),
    (NAN, "timeout=nan"),
    (True, "timeout=True"),
    ("5", "timeout='5'"),
]
BAD_RESOURCES = [
    ("", "resource=''", "must not be empty"),
    (b"", "resource=b''", "must not be empty"),
    ("a\ud800", r"resource='a\ud800'", "give bytes"),
    (42, "type int", "str or bytes"),
    (bytearray(b"a"), "type bytearray", "str or bytes"),
    (["a"], "type list", "str or bytes"),
]


def assert_untouched(locks: FastRedlock) -> None:
    """Check that nothing was sent, and no connection begun."""
    assert all(state is MasterState.CLOSED for state, _ in locks._driver.engine.states)
    assert not any(locks.stats()[: Stats._fields.index("acquires")])


def refusal_of(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FastRedlockError)
    return str(caught.value)


# ---- the constructor


def test_duration_of_a_subclass_of_float_when_nobody_imported_numbers_then_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: `fastredlock check --max-ttl 10` ended with 64, and in no test."""
    monkeypatch.delitem(sys.modules, "numbers")
    settings = new_settings(ttl=5, max_ttl=OnlyLooks(10))
    assert (settings.max_ttl, settings.only_looks) == (10, True)


@pytest.mark.parametrize(
    ("options", "value", "allowed"),
    [
        *(({"ttl": ttl}, value, TTL_RANGE) for ttl, value in BAD_TTLS),
        *(({"resource": bad}, *named) for bad, *named in BAD_RESOURCES),
        *(
            ({"release_script": no}, f"release_script={no!r}: ", "allowed is None or")
            for no in ("return 1", 1, bytearray(b"return 1"))
        ),
        ({"resource": None}, "type NoneType", "str or bytes"),
        # Drift eats it to the last nanosecond.
        ({"ttl": 0.004, "drift_factor": 0.5}, "ttl=0.004", "allowed is 0.005"),
        ({"masters": iter(())}, "none given", "1..64 masters"),
        ({"max_ttl": 2}, "default: give one", "beside max_ttl"),
        ({"max_ttl": 5}, "ttl=10.0", "to 5 s (max_ttl)"),
        ({"max_ttl": 0}, "max_ttl=0", DURATION_RANGE),
        ({"max_ttl": NAN}, "max_ttl=nan", DURATION_RANGE),
        ({"round_timeout": 0}, "round_timeout=0", DURATION_RANGE),
        ({"round_timeout": -1}, "round_timeout=-1", DURATION_RANGE),
        ({"round_timeout": INF}, "round_timeout=inf", DURATION_RANGE),
        ({"round_timeout": "1"}, "round_timeout='1'", DURATION_RANGE),
        ({"connect_timeout": 0}, "connect_timeout=0", DURATION_RANGE),
        ({"connect_timeout": None}, "connect_timeout=None", DURATION_RANGE),
        ({"connect_timeout": True}, "connect_timeout=True", DURATION_RANGE),
        ({"drift_factor": -0.01}, "drift_factor=-0.01", "0-0.5"),
        ({"drift_factor": 0.51}, "drift_factor=0.51", "0-0.5"),
        ({"drift_factor": NAN}, "drift_factor=nan", "0-0.5"),
        ({"drift_factor": "1"}, "drift_factor='1'", "0-0.5"),
        ({"retry": 3}, "retry=3", "a Retry"),
        ({"retry": None}, "retry=None", "a Retry"),
        ({"new_token": b"t"}, "new_token of type bytes", "a callable"),
        ({"owner": "x" * 65}, "owner='xxx", "text of up to 64 bytes"),
        ({"owner": b"ann"}, "owner=b'ann'", "text of up to 64 bytes"),
        ({"owner": "a\nb"}, "owner='a\\nb'", "without control characters"),
        ({"owner": "\udc80"}, "owner='\\udc80'", "text of up to 64 bytes"),
        ({"owner": "a", "new_token": str}, "owner='a'", "one of the two"),
    ],
)
def test_bad_option_is_refused_with_its_value_and_range_before_an_engine_is_made(
    options: dict[str, Any], value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("fastredlock._locking.driver.new_engine")
    message = refusal_of(lambda: FastRedlock(**{"masters": MASTERS, **options}))
    assert value in message
    assert allowed in message


@pytest.mark.parametrize(
    ("count", "ttl", "warning"),
    [
        (2, 10, "2 masters survive the loss of 0, as 1 would"),
        (4, 10, "4 masters survive the loss of 1, as 3 would"),
        (6, 10, "6 masters survive the loss of 2, as 5 would"),
        *((count, 3600, None) for count in (1, 3, 5)),
        (3, NO_EXPIRY, None),
        (3, 3601, "ttl=3601: 1.0 hours"),
        (3, 10_000_000, "ttl=10000000: 2777.8 hours"),
    ],
)
def test_even_number_of_masters_and_a_ttl_above_an_hour_log_one_warning(
    count: int, ttl: Any, warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    locks = FastRedlock([("master", port) for port in range(1, count + 1)], ttl=ttl)
    for other in (5000, 6000) if ttl == 3601 else (ttl,):
        locks._driver.settings.terms(other)
    said = [(record.levelname, record.message) for record in caplog.records]
    assert [level for level, _ in said] == ["WARNING"] * (warning is not None)
    assert all(text.startswith(warning or "") for _, text in said)


# ---- the calls


@pytest.mark.parametrize(
    ("name", "arguments", "value", "allowed"),
    [
        *(("acquire", {"ttl": bad}, value, TTL_RANGE) for bad, value in BAD_TTLS),
        *(
            ("acquire", {"timeout": bad}, value, TIMEOUT_RANGE)
            for bad, value in BAD_TIMEOUTS
        ),
        *(("acquire", {"resource": bad}, *named) for bad, *named in BAD_RESOURCES),
        *(("holders", {"resource": bad}, *named) for bad, *named in BAD_RESOURCES),
        ("lock", {"ttl": -1}, "ttl=-1", TTL_RANGE),
        ("lock", {"timeout": -1}, "timeout=-1", TIMEOUT_RANGE),
        ("lock", {"resource": ""}, "resource=''", "must not be empty"),
        *(
            ("lock", {name: bad, "timeout": 0}, f"{name}={bad!r}", "True or False")
            for name in ("skip", "reentrant")
            for bad in ("no", 0, 5.0, None)
        ),
    ],
)
def test_call_with_a_bad_argument_is_refused_before_any_io(
    name: str, arguments: dict[str, Any], value: str, allowed: str
) -> None:
    locks = FastRedlock(MASTERS)
    call = partial(getattr(locks, name), **{"resource": "r", **arguments})
    message = refusal_of(lambda: call().__enter__() if name == "lock" else call())
    assert value in message
    assert allowed in message
    assert_untouched(locks)


@pytest.mark.parametrize("release", [5.0, "no", None])
def test_close_when_release_is_no_flag_then_is_refused_and_closes_nothing(
    release: Any,
) -> None:
    locks, tasks = FastRedlock(MASTERS), awaitable.FastRedlock(MASTERS)
    wanted = f"release={release!r}: allowed is True or False"
    assert refusal_of(lambda: locks.close(release=release)) == wanted
    assert refusal_of(lambda: asyncio.run(tasks.close(release=release))) == wanted
    assert not locks._driver.engine.is_closed


def test_no_expiry_counts_on_the_longest_ttl_and_waits_as_for_the_default() -> None:
    terms = new_settings().terms(NO_EXPIRY)
    assert (terms.ttl_ms, terms.timeout_ns) == (10**12, 500 * MS)
    assert not terms.has_expiry


@pytest.mark.parametrize("token", ["", b"", None, 42, ["hunter2"]])
def test_token_that_is_no_token_is_refused_without_showing_it(token: Any) -> None:
    locks = FastRedlock(MASTERS)
    for call in (
        lambda: locks.adopt("r", token),
        lambda: FastRedlock(MASTERS, new_token=lambda: token).acquire("r"),
    ):
        message = refusal_of(call)
        assert message.startswith("token of type ")
        assert message.endswith(": allowed is str or bytes, not empty")
        assert "hunter2" not in message


# ---- ttl becomes the times of a round


@pytest.mark.parametrize(
    ("ttl", "ttl_ms", "drift_ns", "timeout_ns", "options"),
    [
        (10, 10_000, 102 * MS, 500 * MS, {}),
        (0.5, 500, 7 * MS, 25 * MS, {}),
        (0.1, 100, 3 * MS, 5 * MS, {}),  # 5 % of the ttl, at least 5 ms
        (0.05, 50, 2_500_000, 5 * MS, {}),
        (0.0034, 3, 2_030_000, 5 * MS, {}),
        (20, 20_000, 202 * MS, 1000 * MS, {}),
        (400, 400_000, 4002 * MS, 1000 * MS, {}),  # ...and 1 s at the most
        (1_000_000_000, 10**12, 10**16 + 2 * MS, 1000 * MS, {}),
        (3600, 3_600_000, 2 * MS, 1000 * MS, {"drift_factor": 0}),
        (0.1, 100, 3 * MS, 12_500_000, {"round_timeout": 0.0125}),  # of every ttl
        (3600, 3_600_000, 36_002 * MS, 12_500_000, {"round_timeout": 0.0125}),
    ],
)
def test_ttl_becomes_milliseconds_drift_and_round_timeout(
    ttl: float, ttl_ms: int, drift_ns: int, timeout_ns: int, options: dict[str, Any]
) -> None:
    terms = new_settings(**options).terms(ttl)
    found = terms.ttl_ms, terms.drift_ns, terms.timeout_ns
    assert found == (ttl_ms, drift_ns, timeout_ns)


@thorough
@given(st.floats(0.0001, 1_000_000_000), st.floats(0, 0.5))
def test_ttl_that_is_allowed_leaves_validity_after_drift(
    ttl: float, drift_factor: float
) -> None:
    settings = new_settings(drift_factor=drift_factor)
    try:
        terms = settings.terms(ttl)
    except ConfigurationError:
        assert ttl < 0.005
        return
    assert terms.ttl_ms * MS > terms.drift_ns >= 2 * MS


# ---- timeouts and resources


def test_token_of_ours_is_twenty_bytes_and_the_owner_and_never_the_same() -> None:
    source = new_settings(owner="ann").token_source
    assert source is not None
    drawn = [source.draw() for _ in range(100)]
    assert {token[27:-10] for token in drawn} == {b"@ann~"}
    assert {len(urlsafe_b64decode(token[:27] + b"=")) for token in drawn} == {20}
    assert len(set(drawn)) == 100


def test_client_when_the_interpreter_runs_without_the_gil_then_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(ConfigurationError, match="needs the GIL: leave out PYTHON_GIL"):
        FastRedlock(["redis://127.0.0.1:7001"])


# ---- a call that has other arguments than the constructor


@pytest.mark.parametrize("kind", [FastRedlock, awaitable.FastRedlock])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tll": 5}, "an unexpected keyword argument 'tll'. Did you mean 'ttl'?"),
        ({"keepalive": 1}, "an unexpected keyword argument 'keepalive'"),
        (
            {"timeout": 2},
            "an unexpected keyword argument 'timeout': timeout is given to acquire() "
            "and lock()",
        ),
        ({"masters": ()}, "multiple values for argument 'masters'"),
    ],
)
def test_unknown_option_is_named_as_the_constructors_own(
    kind: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        kind(MASTERS, **options)
    assert str(caught.value) == f"FastRedlock.__init__() got {said}"


def test_missing_masters_and_options_of_memory_are_named_as_the_constructors_own() -> (
    None
):
    kind: Any = FastRedlock
    with pytest.raises(TypeError, match=r"^FastRedlock\.__init__\(\) missing 1 requ"):
        kind()
    with pytest.raises(TypeError, match=r"^MemoryLocks\.__init__\(\) got .* 'retry'\?"):
        MemoryLocks(retries=3)


# --- arguments of callers, of any type: taken, or refused by name


class Five:
    """A number of a library's own, as numpy's are."""

    def __float__(self) -> float:
        return 5.0

    def __truediv__(self, other: float) -> float:
        return 5.0 / other


Real.register(Five)


def test_retry_that_tells_an_int_is_slept_and_nonsense_is_refused() -> None:
    assert type(delay_of(Retry(), 1)) is float
    for nonsense in (None, -1, float("nan"), "soon"):
        with pytest.raises(ConfigurationError, match="Retry gave a delay"):
            delay_of(Retry(), nonsense)


def test_resource_of_over_a_megabyte_is_refused_in_a_short_message() -> None:
    assert len(encode_resource("x" * 1_048_576)) == 1_048_576
    for encode in (encode_resource, lambda value: encode_each([value])):
        with pytest.raises(ConfigurationError, match="1048577 bytes") as raised:
            encode("x" * 1_048_577)
        assert len(str(raised.value)) < 100
    with pytest.raises(ConfigurationError, match="262145 bytes"):
        encode_token(b"x" * 262_145)


SECRET = "hunter2"


def everything_of(error: BaseException) -> str:
    """Show an error with all that hangs on it."""
    errors, shown = [error], []
    while errors:
        each = errors.pop()
        errors += [e for e in (each.__cause__, each.__context__) if e is not None]
        shown += [repr(each), repr(each.args), repr(vars(each)), str(each)]
    return "".join(shown) + "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "give",
    [
        lambda: encode_token(f"{SECRET}\ud800"),
        lambda: FastRedlock(MASTERS).adopt("r", f"{SECRET}\ud800"),
        lambda: new_settings(new_token=SECRET.encode()),
        lambda: FastRedlock(MASTERS).release_each([SECRET]),  # type: ignore[list-item]
        lambda: FastRedlock([f"redis://u:{SECRET}\ud800@h"]),
        lambda: FastRedlock([f"redis://u:{SECRET}%ff@h"]),
        lambda: FastRedlock([{"password": f"{SECRET}\ud800"}]),
        lambda: FastRedlock([f"redis://u:{SECRET}/7@h:1"]),
    ],
)
def test_error_of_a_bad_secret_has_it_nowhere(give: Callable[[], object]) -> None:
    """Seen: the UnicodeEncodeError in its __context__ had the whole token."""
    with pytest.raises(ConfigurationError) as raised:
        FastRedlock(MASTERS).acquire("orders\ud800")
    assert raised.value.__context__ is None
    with pytest.raises(ConfigurationError) as raised:
        give()
    assert SECRET not in everything_of(raised.value)


def test_asyncio_api_without_a_running_loop_is_a_clear_error() -> None:
    locks = awaitable.FastRedlock(MASTERS)
    for call in (locks.acquire(), locks.holders(), locks.connect(), locks.close()):
        with pytest.raises(FastRedlockError, match="without a running loop"):
            call.send(None)

    async def use() -> None:
        locks._driver.here()

    asyncio.run(use())
    with pytest.raises(FastRedlockError, match="without a running loop"):
        locks.acquire().send(None)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        # A client with max_ttl would overwrite the lock with its own marker; each
        # handshake tries to delete fastredlock:probe.
        ("restart guard", ("fastredlock:voter", b"fastredlock:quarantine")),
        ("restart guard", ("fastredlock:probe", "fastredlock:lineage:replid")),
        ("restart guard", ("fastredlock:lineage",)),
        # Issue 27: while such a lock was held, the fenced lock j was unavailable.
        ("give another name", ("fastredlock:fence:j", b"fastredlock:queue:j")),
        ("give another name", ("fastredlock:turn:j", "app:fastredlock:fence:app:j")),
        ("give another name", (b"\xff fastredlock:fence:", "ffastredlock:turn:")),
        ("give another name", ("fast" + "x" * 1000 + "fastredlock:queue:",)),
    ],
)
def test_resource_whose_key_others_need_is_refused(
    said: str, names: tuple[str | bytes, ...]
) -> None:
    for name in names:
        assert_refused(name, said)


def assert_refused(name: str | bytes, said: str) -> None:
    """Check that no call of any client takes this name."""
    for locks in (
        FastRedlock(["redis://a"]),
        FastRedlock(["redis://a"], key_prefix="app:"),
        MemoryLocks(),
    ):
        calls: list[Callable[[], object]] = [
            partial(locks.acquire, name, timeout=0),
            partial(locks.acquire_each, ["x", name]),
            partial(locks.acquire_all, ["x", name]),
            partial(locks.adopt, name, b"token"),
            partial(locks.lock, name),
            partial(FastRedlock, ["redis://a"], resource=name),
        ]
        for call in calls:
            assert said in refusal_of(call)


# ---- a list of masters that changes

THREE = ["redis://a", "redis://b", "redis://c"]
MANY = [("h", port) for port in range(1, 65)]


@pytest.mark.parametrize(
    ("masters", "changing_to", "said"),
    [
        (THREE, [], "none given; leave it out while the list does not change"),
        (THREE, THREE[::-1], "changing_to has the masters that masters has: leave it"),
        (THREE, ["redis://C:6379", *THREE[:2]], "has the masters that masters has"),
        (THREE, "redis://d", "changing_to, the list that masters changes to: masters"),
        (THREE, [*THREE[:2], "nothing"], r"masters\[2\]: URL has no scheme"),
        (THREE, ["redis://a", "redis://a"], "are the same server"),
        (THREE, ["redis://a/1", "redis://b"], "are the same server"),
        (
            MANY,
            [("other", 1)],
            "are 65 masters together, 64 are allowed: change the li",
        ),
    ],
)
def test_changing_to_when_it_is_no_list_to_change_to_then_the_remedy_is_named(
    masters: Any, changing_to: Any, said: str
) -> None:
    for kind in (FastRedlock, awaitable.FastRedlock):
        with pytest.raises(ConfigurationError, match=said):
            kind(masters, changing_to=changing_to)


def test_changing_to_when_a_master_is_in_both_lists_then_it_is_one_endpoint() -> None:
    old = ["redis://:sesame@a", "redis://b", "redis://c"]
    settings = new_settings(masters=old, changing_to=["redis://d", *THREE[:2]])
    assert [each.host for each in settings.endpoints] == ["a", "b", "c", "d"]
    assert settings.endpoints[0].password == "sesame"  # as in the old list
    voting = settings.electorate
    assert (voting.first, voting.second) == (0b0111, 0b1011)


def test_changing_to_when_a_list_is_even_then_that_list_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    new_settings(masters=THREE, changing_to=[*THREE, "redis://d"])
    said = [record.getMessage() for record in caplog.records]
    assert said == ["4 masters survive the loss of 1, as 3 would: use an odd number"]
