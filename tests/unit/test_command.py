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


# ---- exact bytes


def test_acquire_is_set_nx_px_with_the_bare_resource_and_token() -> None:
    assert encode_acquire(b"orders:42", b"token", 5000) == (
        b"*6\r\n$3\r\nSET\r\n$9\r\norders:42\r\n$5\r\ntoken\r\n"
        b"$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n5000\r\n"
    )


def test_acquire_without_a_ttl_has_no_px() -> None:
    assert encode_acquire(b"orders:42", b"token", 0) == (
        b"*4\r\n$3\r\nSET\r\n$9\r\norders:42\r\n$5\r\ntoken\r\n$2\r\nNX\r\n"
    )


def test_script_is_asked_for_by_its_sha1() -> None:
    assert encode_command(SCRIPT, False, b"r", b"token", 0) == (
        b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n" + SHA1 + b"\r\n$1\r\n1\r\n"
        b"$1\r\nr\r\n$5\r\ntoken\r\n"
    )


def test_script_by_its_source_is_eval() -> None:
    assert encode_command(SCRIPT, True, b"r", b"token", 0) == (
        b"*5\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\nr\r\n$5\r\ntoken\r\n"
    )


@pytest.mark.parametrize("by_source", [False, True])
def test_script_with_a_ttl_gets_it_as_its_last_argument(by_source: bool) -> None:
    command = encode_command(SCRIPT, by_source, b"r", b"token", 750)
    assert command.startswith(b"*6\r\n")
    assert command.endswith(b"$5\r\ntoken\r\n$3\r\n750\r\n")


@pytest.mark.parametrize("ttl_ms", [1, 9, 10, 99, 100, 10_000, 10**12, 2**63 - 1])
def test_ttl_is_written_with_all_its_digits(ttl_ms: int) -> None:
    assert words_of(encode_acquire(b"r", b"t", ttl_ms))[-1] == b"%d" % ttl_ms
    assert words_of(encode_command(SCRIPT, False, b"r", b"t", ttl_ms))[-1] == (
        b"%d" % ttl_ms
    )


# ---- of several keys


def test_script_of_all_keys_is_told_their_number_and_each_of_them() -> None:
    assert encode_command(SCRIPT, False, (b"a", b"bc"), b"token", 0) == (
        b"*6\r\n$7\r\nEVALSHA\r\n$40\r\n" + SHA1 + b"\r\n$1\r\n2\r\n"
        b"$1\r\na\r\n$2\r\nbc\r\n$5\r\ntoken\r\n"
    )


def test_script_of_all_keys_by_its_source_is_eval() -> None:
    assert encode_command(SCRIPT, True, (b"a", b"bc"), b"token", 750) == (
        b"*7\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n2\r\n"
        b"$1\r\na\r\n$2\r\nbc\r\n$5\r\ntoken\r\n$3\r\n750\r\n"
    )


@pytest.mark.parametrize("by_source", [False, True])
@pytest.mark.parametrize("ttl_ms", [0, 750])
def test_script_of_all_with_one_key_is_that_of_one(
    by_source: bool, ttl_ms: int
) -> None:
    assert encode_command(SCRIPT, by_source, (b"r",), b"token", ttl_ms) == (
        encode_command(SCRIPT, by_source, b"r", b"token", ttl_ms)
    )


@pytest.mark.parametrize("count", [5, 6, 9, 10, 95, 96, 1000, 20_000])
def test_script_of_any_number_of_keys_is_sent_whole(count: int) -> None:
    keys = tuple(b"%d" % i for i in range(count))
    command = encode_command(SCRIPT, False, keys, b"token", 1)
    assert words_of(command) == [
        *(b"EVALSHA", SHA1, b"%d" % count, *keys, b"token", b"1")
    ]


@pytest.mark.parametrize("keys", [(), ("a",), (b"a", None), (b"a", bytearray(b"b"))])
def test_script_of_all_takes_bytes_alone_and_one_at_least(keys: tuple[Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"no keys|not bytes"):
        encode_command(SCRIPT, False, keys, b"token", 0)


@thorough
@given(
    st.lists(st.binary(max_size=700), min_size=1, max_size=12),
    st.binary(max_size=1500),
    st.booleans(),
    st.integers(0, 2**63 - 1),
)
def test_script_of_all_is_read_by_a_server_as_it_was_meant(
    keys: list[bytes], token: bytes, by_source: bool, ttl_ms: int
) -> None:
    head = [b"EVAL", b"return 1"] if by_source else [b"EVALSHA", SHA1]
    ttl = [b"%d" % ttl_ms] if ttl_ms else []
    command = encode_command(SCRIPT, by_source, tuple(keys), token, ttl_ms)
    assert words_of(command) == [*head, b"%d" % len(keys), *keys, token, *ttl]


# ---- binary safe, of any length


@pytest.mark.parametrize("key", [b"\r\n", b"$3\r\nSET\r\n", b"\x00", b"\xff\xfe", b" "])
def test_key_of_any_bytes_stays_one_word(key: bytes) -> None:
    acquire = [b"SET", key, key, b"NX", b"PX", b"1"]
    assert words_of(encode_acquire(key, key, 1)) == acquire
    script = [b"EVALSHA", SHA1, b"1", key, key]
    assert words_of(encode_command(SCRIPT, False, key, key, 0)) == script


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


@thorough
@given(
    st.binary(max_size=1500),
    st.binary(max_size=1500),
    st.binary(max_size=1500),
    st.booleans(),
    st.integers(0, 2**63 - 1),
)
def test_script_is_read_by_a_server_as_it_was_meant(
    source: bytes, key: bytes, token: bytes, by_source: bool, ttl_ms: int
) -> None:
    head = [b"EVAL", source] if by_source else [b"EVALSHA", SHA1]
    ttl = [b"%d" % ttl_ms] if ttl_ms else []
    command = encode_command(Script(source, SHA1), by_source, key, token, ttl_ms)
    assert words_of(command) == [*head, b"1", key, token, *ttl]


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


@pytest.mark.parametrize("source", [scripts.EXTEND, scripts.RELEASE])
def test_script_that_changes_a_key_looks_for_our_token_first(source: bytes) -> None:
    head, then, otherwise = source.partition(b"==ARGV[1] then ")
    assert head.startswith((b'if redis.call("get",KEYS[1])', b"local held="))
    assert b'redis.call("get",KEYS[1])' in head
    assert then
    assert otherwise.endswith(
        (b" else return 0 end", b" else return held and 0 or 2 end")
    )


def test_extend_script_cannot_create_a_key() -> None:
    assert scripts.EXTEND.count(b"redis.call") == 2
    assert b'redis.call("pexpire",KEYS[1],ARGV[2])' in scripts.EXTEND
