"""Which masters a client has, as its name says it to others."""

from __future__ import annotations

import pytest
from hiredis import ReplyError

from fastredlock._core import (
    Client,
    Lists,
    Scripts,
    TokenSource,
    are_neighbours,
    clients_in,
)
from tests.support.by_hand import commands_in
from tests.support.core import Handshake

A, B, C, D, E = ("aaaaaa", "bbbbbb", "cccccc", "dddddd", "eeeeee")
ABC, ABD, ADE = frozenset((A, B, C)), frozenset((A, B, D)), frozenset((A, D, E))
NAMES = {A: "a:6379", B: "b:6379", C: "c:6379"}
Listed = tuple[frozenset[str], ...]


def lists_of(
    *lists: frozenset[str], max_ttl_ms: int = 0, strict: bool = False, keys: str = "k"
) -> Lists:
    return Lists(keys, lists, NAMES, max_ttl_ms, strict)


def line_of(lists: Lists | str, db: int = 0) -> bytes:
    told = lists if isinstance(lists, str) else lists.told(b"00ff").decode()
    return f"id=3 addr=10.0.0.1:5 fd=8 name=n{told} age=7 idle=0 db={db} c=\n".encode()


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ((ABC,), (ABC,), True),
        ((ABC,), (ABD,), False),
        ((ABC,), (ABC, ABD), True),
        ((ABC, ABD), (ABD,), True),
        ((ABC, ABD), (ABD, ADE), True),
        ((ABC, ABD), (ADE,), False),
        ((ABC, ABD), (ADE, ABC | ABD), False),
    ],
)
def test_neighbours_have_one_whole_list_in_common(
    one: Listed, other: Listed, are: bool
) -> None:
    assert are_neighbours(one, other) is are_neighbours(other, one) is are
    strange, _ = lists_of(*one).met(line_of(lists_of(*other)), "0")
    assert (strange is None) is are


def test_name_of_a_client_when_read_then_is_what_was_told() -> None:
    (client,) = clients_in(line_of(lists_of(ABC, ABD, max_ttl_ms=60_000)))
    assert client.lists == (ABC, ABD)
    assert (client.address, client.name, client.age_s) == ("10.0.0.1:5", "n", "7")
    assert (client.keys, client.identity, client.max_ttl_ms) == ("k", "00ff", 60_000)


@pytest.mark.parametrize(
    ("owner", "shown"),
    [
        ("ann", "@ann"),
        ("ann@web|7 Zoë", "@ann@web_7_Zo__"),  # a space ends a name, a | a part of it
        ("", ""),
    ],
)
def test_name_of_a_client_when_it_has_an_owner_then_names_it(
    owner: str, shown: str
) -> None:
    lists = Lists("k", (ABC,), NAMES, 0, False, TokenSource(owner.encode()))
    (client,) = clients_in(line_of(lists))
    assert (client.name, client.keys) == (f"n{shown}", "k")


@pytest.mark.parametrize(
    "told", ["", "|", "||||", "|k|i|x|aaaaaa", "|k|i|5|", "|k|i|5|a>b>c", "|k|i|-1|a"]
)
def test_name_when_it_is_not_ours_then_is_passed_over(told: str) -> None:
    assert clients_in(line_of(told)) == []
    assert lists_of(ABC).met(line_of(told), "0") == (None, None)
    assert Client("").lists is None


@pytest.mark.parametrize("reply", [None, b"", 5, [], b"OK", ReplyError("ERR no")])
def test_reply_when_it_is_no_list_then_nobody_was_met(reply: object) -> None:
    assert lists_of(ABC).met(reply, "0") == (None, None)


@pytest.mark.parametrize(
    ("other", "db"),
    [(lists_of(ABD, keys="others"), 0), (lists_of(ABD), 1)],
)
def test_other_list_when_its_keys_are_others_then_is_no_stranger(
    other: Lists, db: int
) -> None:
    assert lists_of(ABC).met(line_of(other, db), "0") == (None, None)


def test_strangers_when_met_then_the_text_names_both_lists_and_no_address() -> None:
    reply = line_of(lists_of(ABD)) + line_of(lists_of(ABC))
    strange, _ = lists_of(ABC).met(reply, "0")
    assert strange is not None
    assert "the masters (a:6379, b:6379, 1 others), this one (a:6379, b:6379, c" in (
        strange
    )
    assert "10.0.0.1" not in strange


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (60_000, 60_000, None),
        (60_000, 0, "another client has max_ttl=60 s, this one no max_ttl"),
        (0, 1500, "another client has no max_ttl, this one max_ttl=1.5 s"),
    ],
)
def test_max_ttl_when_another_client_has_another_then_is_said(
    theirs: int, ours: int, said: str | None
) -> None:
    reply = line_of(lists_of(ABC, max_ttl_ms=theirs))
    strange, other = lists_of(ABC, max_ttl_ms=ours).met(reply, "0")
    assert strange is None
    assert other is None if said is None else other and other.startswith(said)


@pytest.mark.parametrize(
    ("count", "asking"), [("", 3000), ("0", 3000), ("199", 3000), ("3000", 100)]
)
def test_list_of_clients_when_there_are_many_then_about_a_hundred_read_it(
    count: str, asking: int
) -> None:
    asked = sum(lists_of(ABC).is_to_ask(number, count) for number in range(3000))
    assert asked == asking
    assert all(lists_of(ABC, strict=True).is_to_ask(i, count) for i in range(9))


# ---- in a handshake


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("reply", "refused", "warned"),
    [
        (line_of(lists_of(ABC)), None, []),
        (line_of(lists_of(ABD)), "another client has the masters", []),
        (ReplyError("NOPERM no"), None, ["strict_masters cannot see"]),
    ],
)
def test_handshake_when_it_has_read_the_names_then_is_ready_or_refused_if_strict(
    reply: object, refused: str | None, warned: list[str], strict: bool
) -> None:
    lists = lists_of(ABC, strict=strict)
    handshake = Handshake(None, None, 0, b"n", Scripts({}), lists=lists)
    handshake.start()
    asked = handshake.on_reply({b"server": b"redis", b"id": 5})
    for _ in range(len(commands_in(asked)) - 1):
        assert handshake.on_reply(b"OK") == b""
    assert commands_in(handshake.on_reply(b"OK")) == [[b"CLIENT", b"LIST"]]
    handshake.on_reply(reply)
    expected = warned if strict else [refused] if refused else []
    assert handshake.is_done is not (strict and refused is not None)
    assert (handshake.failure or "").startswith(refused or "" if strict else "")
    assert (handshake.failure is None) is handshake.is_done
    found = [text for text in handshake.warnings() if "masters" in text]
    assert len(found) == (0 if strict and refused else len(expected))
    assert all(map(str.startswith, found, [text or "" for text in expected]))
