"""Locks of a kind: what a caller names in place of a key, and what makes it."""

from __future__ import annotations

from typing import Any

import pytest

from fastredlock import Lease
from fastredlock._core import (
    AcquireCall,
    KeyOfKind,
    Kind,
    KindEncoder,
    Permits,
    PermitsOf,
    Scripts,
    by_hand_submit,
)
from fastredlock._options import scripts
from fastredlock._options.keys import encode_resource
from tests.support.gate_by_hand import KEY, Gate
from tests.support.rounds import ScriptedLocks


def test_key_of_kind_one_is_sent_as_the_plain_key() -> None:
    sent = []
    for key in (KEY, KeyOfKind(KEY, Kind.ONE)):
        gate = Gate()
        by_hand_submit(gate.engine, gate.new_round(key), gate.now_ns)
        sent.append(gate.hear())
    assert sent[0] == sent[1] != b""


@pytest.mark.parametrize("kind", [-1, Kind.SEVERAL, len(Kind), 256])
def test_key_of_no_such_kind_is_refused(kind: int) -> None:
    with pytest.raises(ValueError, match="kind"):
        KeyOfKind(KEY, kind)
    with pytest.raises(ValueError, match="kind"):
        KindEncoder(encode_resource, kind)


@pytest.mark.parametrize("permits", [0, -5, 1025, 2**31 - 1])
def test_permits_out_of_range_are_refused(permits: int) -> None:
    with pytest.raises(ValueError, match="permits"):
        Permits(KEY, permits)
    with pytest.raises(ValueError, match="permits"):
        PermitsOf(encode_resource, permits)


def test_encoder_of_what_is_no_key_is_refused() -> None:
    for made in (None, "text", 7):
        with pytest.raises(TypeError, match="bytes"):
            KindEncoder(lambda resource, made=made: made, Kind.ONE)("x")


def test_scripts_without_some_of_the_queues_keep_none() -> None:
    queue = scripts.scripts_of("queue")
    for name in ("", *queue):
        named = scripts.scripts_of("locks") | queue
        named.pop(name, None)
        assert Scripts(named).keeps_queues is (name == "")


@pytest.mark.parametrize("resource", ["orders:42", "x" * 2000])
def test_acquire_with_an_encoder_of_a_kind_then_has_its_key(resource: str) -> None:
    """It is asked of a plain resource as well; without, that would be another lock."""
    locks: Any = ScriptedLocks("GG.")
    encode = KindEncoder(encode_resource, Kind.ONE)
    made = encode(resource)
    assert (type(made), made.name, made.count) == (KeyOfKind, resource.encode(), 0)
    lease = AcquireCall(locks._driver, Lease, resource, None, 0, encode).run()
    assert lease._round.resource == resource.encode()
    permits = Permits(b"orders:42", 3)
    assert (permits.name, permits.count) == (b"orders:42#", 3)
