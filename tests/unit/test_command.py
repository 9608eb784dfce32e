"""The commands to a master, byte by byte."""

from hashlib import sha1
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastredlock._core import (
    Script,
    encode_command,
)
from fastredlock._options import scripts
from tests.support.rounds import thorough

SHA1 = b"0123456789abcdef0123456789abcdef01234567"
SCRIPT = Script(b"return 1", SHA1)
# Around the first capacity of the buffer, its doubling, and what it gives back.
LENGTHS = [1, 9, 10, 970, 1023, 1024, 1025, 2048, 65535, 65537, 1_000_000]


def encode_acquire(key: bytes, token: bytes, ttl_ms: int) -> bytes:
    return encode_command(None, False, key, token, ttl_ms)


def words_of(command: bytes) -> list[bytes]:
    """Read a command as a server would; nothing may be left over."""
    reader = hiredis.Reader()
    reader.feed(command)
    words: list[bytes] = reader.gets()
    assert reader.gets() is False
    return words


def test_acquire_is_set_nx_px_with_the_bare_resource_and_token() -> None:
    assert encode_acquire(b"orders:42", b"token", 5000) == (
        b"*6\r\n$3\r\nSET\r\n$9\r\norders:42\r\n$5\r\ntoken\r\n"
        b"$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n5000\r\n"
    )


@pytest.mark.parametrize("keys", [(), ("a",), (b"a", None), (b"a", bytearray(b"b"))])
def test_script_of_all_takes_bytes_alone_and_one_at_least(keys: tuple[Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"no keys|not bytes"):
        encode_command(SCRIPT, False, keys, b"token", 0)


# ---- binary safe, of any length


@pytest.mark.parametrize("length", LENGTHS)
def test_key_of_any_length_is_sent_whole(length: int) -> None:
    key = bytes(i % 251 for i in range(length))
    assert words_of(encode_acquire(key, b"t", 1))[1:3] == [key, b"t"]
    assert words_of(encode_command(SCRIPT, False, b"r", key, 0))[3:] == [b"r", key]


@thorough
@given(st.binary(max_size=1500), st.binary(max_size=1500), st.integers(0, 2**63 - 1))
def test_acquire_is_read_by_a_server_as_it_was_meant(
    key: bytes, token: bytes, ttl_ms: int
) -> None:
    expiry = [b"PX", b"%d" % ttl_ms] if ttl_ms else []  # 0: a key that stays
    meant = [b"SET", key, token, b"NX", *expiry]
    assert words_of(encode_acquire(key, token, ttl_ms)) == meant


@pytest.mark.parametrize("count", [5, 6, 9, 10, 95, 96, 1000, 20_000])
def test_script_of_any_number_of_keys_is_sent_whole(count: int) -> None:
    keys = tuple(b"%d" % i for i in range(count))
    command = encode_command(SCRIPT, False, keys, b"token", 1)
    assert words_of(command) == [
        *(b"EVALSHA", SHA1, b"%d" % count, *keys, b"token", b"1")
    ]


@thorough
@given(
    st.binary(max_size=1500),
    st.lists(st.binary(max_size=700), min_size=1, max_size=12),
    st.binary(max_size=1500),
    st.booleans(),
    st.integers(0, 2**63 - 1),
)
def test_script_is_read_by_a_server_as_it_was_meant(
    source: bytes, keys: list[bytes], token: bytes, by_source: bool, ttl_ms: int
) -> None:
    head = [b"EVAL", source] if by_source else [b"EVALSHA", SHA1]
    ttl = [b"%d" % ttl_ms] if ttl_ms else []
    script = Script(source, SHA1)
    both: list[bytes | tuple[bytes, ...]] = [tuple(keys)]
    for asked in both + keys * (len(keys) == 1):
        command = encode_command(script, by_source, asked, token, ttl_ms)
        assert words_of(command) == [*head, b"%d" % len(keys), *keys, token, *ttl]


# ---- what is refused


@pytest.mark.parametrize("words", [("r", b"t"), (b"r", "t"), (None, b"t"), (b"r", 1)])
def test_acquire_takes_bytes_alone(words: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError):
        encode_acquire(*words, 1)


@pytest.mark.parametrize("length", [0, 39, 41])
def test_script_with_a_sha1_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="40 hex digits"):
        Script(b"return 1", b"a" * length)


# ---- the scripts themselves


@pytest.mark.parametrize(
    ("source", "known"),
    [
        (scripts.EXTEND, scripts.EXTEND_SHA1),
        (scripts.RELEASE, scripts.RELEASE_SHA1),
        (scripts.INSPECT, scripts.INSPECT_SHA1),
        (scripts.ACQUIRE_ALL, scripts.ACQUIRE_ALL_SHA1),
        (scripts.EXTEND_ALL, scripts.EXTEND_ALL_SHA1),
        (scripts.RELEASE_ALL, scripts.RELEASE_ALL_SHA1),
        (scripts.PROBE, scripts.PROBE_SHA1),
        (scripts.PROBE_CALL, scripts.PROBE_CALL_SHA1),
        (scripts.MARKER, scripts.MARKER_SHA1),
    ],
    ids=[
        *("extend", "release", "inspect", "acquire all", "extend all", "release all"),
        *("probe", "probe of a call", "marker"),
    ],
)
def test_sha1_that_is_known_beforehand_is_that_of_the_script(
    source: bytes, known: bytes
) -> None:
    assert sha1(source).hexdigest().encode() == known
