"""The arguments of each call are checked where they are given; no server.

A lock object is often made at the head of a module, and entered at night.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from fastredlock import NO_EXPIRY, ConfigurationError, FastRedlock
from fastredlock import asyncio as awaitable
from fastredlock._locking.lease import BaseLease
from fastredlock._locking.locks import BaseLocks

LOCKS: list[Any] = [FastRedlock([("master", 1)]), awaitable.FastRedlock([("a", 1)])]
CLUSTERS: list[Any] = [
    kind(["redis+cluster://a"], max_ttl=60) for kind in map(type, LOCKS)
]
both_faces = pytest.mark.parametrize("locks", LOCKS, ids=["blocking", "awaitable"])
TIMES: list[tuple[dict[str, Any], str]] = [
    ({"ttl": "abc"}, "ttl='abc': no number; allowed is 0.003 to"),
    ({"ttl": None, "timeout": "1"}, "timeout='1': no number; allowed is None"),
    ({"timeout": True}, "timeout=True: no number; allowed is None"),
    ({"timeout": -1}, "timeout=-1: allowed is None"),
    ({"ttl": 0}, "ttl=0: allowed is 0.003 to"),
    ({"at_least": 20}, r"at_least=20: allowed is up to the ttl \(10 s\)"),
    ({"at_least": "20"}, "at_least='20': no number; allowed is above 0"),
    ({"keep_alive": "no"}, "keep_alive='no': no number; allowed is above 0"),
    ({"keep_alive": True, "ttl": 0.015}, "keep_alive needs"),
    ({"keep_alive": True, "ttl": NO_EXPIRY}, "keep_alive with NO_EXPIRY"),
    ({"on_lost": print}, "on_lost needs keep_alive"),
    ({"keep_alive": True, "on_lost": 5}, "on_lost=5"),
]
NAMES: list[tuple[Any, str]] = [
    (None, "resource of type NoneType: allowed is str or bytes"),
    ("", "must not be empty"),
    (7, "resource of type int"),
]


@both_faces
@pytest.mark.parametrize(("given", "told"), TIMES)
def test_lock_object_with_bad_times_is_refused_when_it_is_made(
    locks: Any, given: dict[str, Any], told: str
) -> None:
    calls: list[Callable[..., object]] = [
        lambda **given: locks.lock("r", **given),
        lambda **given: locks.lock(lambda of: of, **given),
        lambda **given: locks.lock_all(["r", "s"], **given),
        lambda **given: locks.semaphore("r", 3, **given),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=told):
            call(**given)


@both_faces
@pytest.mark.parametrize(("name", "told"), NAMES)
def test_lock_object_with_a_bad_resource_is_refused_when_it_is_made(
    locks: Any, name: Any, told: str
) -> None:
    for call in (
        lambda: locks.lock(name),
        lambda: locks.lock_all(["r", name]),
        lambda: locks.semaphore(name, 3),
        lambda: locks.rate(name, 3, per=60),
        lambda: locks.lead(name),
    ):
        with pytest.raises(ConfigurationError, match=told):
            call()


@both_faces
def test_other_objects_with_bad_arguments_are_refused_when_they_are_made(
    locks: Any,
) -> None:
    long = "r" * (1_048_576 - 3)  # a lock's; a slot's number has no room
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: locks.lead("r", ttl="x"), "ttl='x': no number"),
        (lambda: locks.lead("r", on_lost=7), "on_lost=7: allowed is a function"),
        (lambda: locks.lead(lambda: "r"), "resource of type function"),
        (lambda: locks.rate("r", 3, per="x"), "per='x': no number; allowed is 0.005"),
        (lambda: locks.rate("r", 3, per=60, timeout=-1), "timeout=-1: allowed is None"),
        (lambda: locks.semaphore(long, 3), "a semaphore's has up to"),
        (lambda: locks.lock_all([]), "resources: must not be empty"),
        (lambda: locks.lock("r", linger="x"), "linger='x': no number"),
        (lambda: locks.lock("r", linger=1, at_least=1), "at_least beside linger"),
    ]
    for call, told in refused:
        with pytest.raises(ConfigurationError, match=told):
            call()
    assert locks.lock(long)


@pytest.mark.parametrize("locks", CLUSTERS)
def test_lock_object_over_several_hash_slots_of_a_cluster_is_refused_when_made(
    locks: Any,
) -> None:
    with pytest.raises(ConfigurationError, match="several hash slots of a cluster"):
        locks.lock_all(["a", "b"])
    assert locks.lock_all(["{a}:1", "{a}:2"])


# ---- names of arguments


@both_faces
def test_word_that_another_call_has_is_refused_with_the_call_that_has_it(
    locks: Any,
) -> None:
    with pytest.raises(TypeError, match="'at_least': at_least is given to lock"):
        locks.acquire("r", at_least=1)
    with pytest.raises(TypeError, match="'permits': permits is given to semaphore"):
        locks.lock("r", permits=1)


@both_faces
@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("blocking_timeout", ": timeout is given to acquire() and lock()"),
        ("blocking", ": timeout (0: one try) is given to acquire() and lock()"),
        ("expire", ": ttl is given to acquire() and lock()"),
        ("tmeout", ". Did you mean 'timeout'?"),
        ("colour", ""),
    ],
)
def test_word_of_another_library_is_refused_with_the_one_of_this(
    locks: Any, word: str, told: str
) -> None:
    calls = {
        "acquire": ("r",),
        "acquire_all": (["r"],),
        "lock": ("r",),
        "lock_all": (["r"],),
        "semaphore": ("r", 3),
    }
    for name, given in calls.items():
        with pytest.raises(TypeError) as caught:
            getattr(locks, name)(*given, **{word: 1})
        refused = f"FastRedlock.{name}() got an unexpected keyword argument {word!r}"
        assert str(caught.value) == refused + told


@both_faces
def test_text_of_a_call_with_bad_arguments_names_no_private_class(locks: Any) -> None:
    owners = dict.fromkeys(vars(BaseLocks), locks)
    owners |= dict.fromkeys(vars(BaseLease), locks.adopt("r", b"token"))
    owners |= {"acquire": locks, "release": owners["check"]}
    tried = [
        getattr(owner, name)
        for name, owner in owners.items()
        if not name.startswith("_") and callable(getattr(type(owner), name, None))
    ]
    assert len(tried) >= 12
    for call in tried:
        with pytest.raises(TypeError) as caught:
            call(no_such_argument=1)
        assert not re.search("Base|begun|guarded", str(caught.value))
