"""Arguments of callers, of any type: taken, or refused by name."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import Any

import pytest

import fastredlock.asyncio
from fastredlock import ConfigurationError, FastRedlock, FastRedlockError, Retry
from fastredlock._options.keys import encode_each, encode_resource, encode_token
from fastredlock._options.retry import delay_of, number_of
from fastredlock._reports.votes import printable
from fastredlock.testing import MemoryLocks
from tests.support.settings import MASTERS
from tests.support.settings import new_settings as settings


class Bytes(bytes):
    """Bytes that lie about themselves."""

    def __bytes__(self) -> bytes:
        return b"another"


class Text(str):
    """A str that lies about itself."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"another"


@pytest.mark.parametrize("value", [Bytes(b"r"), Text("r")], ids=["bytes", "str"])
def test_subclass_of_a_str_or_bytes_is_taken_for_what_is_stored_in_it(
    value: Any,
) -> None:
    for key in (encode_resource(value), encode_token(value), *encode_each([value])):
        assert (key, type(key)) == (b"r", bytes)


class Five:
    """A number of a library's own, as numpy's are."""

    def __float__(self) -> float:
        return 5.0

    def __truediv__(self, other: float) -> float:
        return 5.0 / other


Real.register(Five)
REALS = [Five(), Fraction(5), Decimal(5)]


@pytest.mark.parametrize("five", REALS, ids=lambda five: type(five).__name__)
def test_every_real_number_is_taken_for_a_time(five: Any) -> None:
    made = settings(ttl=five, connect_timeout=five, round_timeout=five, max_ttl=five)
    assert made.default_terms.ttl_ms == 5_000
    assert made.connect_timeout_ns == made.round_timeout_ns == 5_000_000_000
    assert made.terms(five).drift_ns == settings(ttl=5).default_terms.drift_ns
    assert settings(drift_factor=five / 100).drift_factor == pytest.approx(0.05)
    assert repr(Retry(delay=five)) == repr(Retry(delay=5.0))


@pytest.mark.parametrize(
    "value",
    [
        True,
        "5",
        b"5",
        5j,
        None,
        [5],
        object,
        Decimal("sNaN"),
        Fraction(10**400),
    ],
    ids=repr,
)
def test_what_is_no_real_number_is_refused(value: Any) -> None:
    assert number_of(value) != number_of(value)  # NaN
    with pytest.raises(ConfigurationError):
        settings(ttl=value)


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


@pytest.mark.parametrize("long", ["x" * 1000, b"x" * 1000, b"\xff" * 1000])
def test_long_resource_is_shown_by_its_beginning(long: str | bytes) -> None:
    assert len(printable(long)) < 1000
    assert printable(long).endswith("'...")


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
        lambda: settings(new_token=SECRET.encode()),
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
        give()
    assert SECRET not in everything_of(raised.value)


def test_error_of_a_resource_that_is_not_unicode_follows_no_other() -> None:
    with pytest.raises(ConfigurationError) as raised:
        FastRedlock(MASTERS).acquire("orders\ud800")
    assert raised.value.__context__ is None


def test_asyncio_api_without_a_running_loop_is_a_clear_error() -> None:
    locks = fastredlock.asyncio.FastRedlock(MASTERS)
    for call in (locks.acquire(), locks.holders(), locks.connect(), locks.close()):
        with pytest.raises(FastRedlockError, match="without a running loop"):
            call.send(None)

    async def use() -> None:
        locks._driver.here()

    asyncio.run(use())
    with pytest.raises(FastRedlockError, match="without a running loop"):
        locks.acquire().send(None)


@pytest.mark.parametrize(
    "name", ["fastredlock:voter", b"fastredlock:quarantine", "fastredlock:probe"]
)
def test_resource_that_every_client_uses_is_refused(name: str | bytes) -> None:
    """A client with max_ttl would overwrite the lock with its own marker; each
    handshake tries to delete fastredlock:probe."""
    locks = FastRedlock(["redis://a"])
    for call in (
        lambda: locks.acquire(name),
        lambda: locks.acquire_each(["x", name]),
        lambda: locks.acquire_all(["x", name]),
        lambda: locks.adopt(name, b"token"),
    ):
        with pytest.raises(ConfigurationError, match="restart guard"):
            call()


@pytest.mark.parametrize(
    "name",
    [
        *("fastredlock:fence:j", b"fastredlock:queue:j", "fastredlock:turn:j"),
        *("app:fastredlock:fence:app:j", b"\xff fastredlock:fence:"),
        *("ffastredlock:turn:", "fast" + "x" * 1000 + "fastredlock:queue:"),
    ],
)
def test_resource_whose_key_another_lock_needs_is_refused(name: str | bytes) -> None:
    """Issue 27: while such a lock was held, the fenced lock j was unavailable."""
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
            locks.lock(name).__enter__,
            partial(FastRedlock, ["redis://a"], resource=name),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError, match="give another name"):
                call()


@pytest.mark.parametrize(
    "name", ["fastredlock", "fastredlock:fence", "fastredlock:jobs", "fence:j"]
)
def test_resource_that_looks_like_one_of_ours_is_none(name: str) -> None:
    assert encode_resource(name) == name.encode()
    assert encode_each([name, "x"]) == [name.encode(), b"x"]
