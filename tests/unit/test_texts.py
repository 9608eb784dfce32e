"""No text of an object of ours raises, however half-made it is: logs are written of it.

The classes are found in all modules; those of the commands are left out, and those of
`compat` whose originals raise as well.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import os
import pickle
import pkgutil
from contextlib import suppress
from typing import Any

import pytest

import fastredlock
from fastredlock import errors

OUTER = ("_cli", "cli", "compat", "demo", "__main__")
VOTE = fastredlock.MasterVote("a:1", fastredlock.Vote.TAKEN, None, 1.0)
ODD: list[tuple[Any, ...]] = [
    (),
    ("r",),
    (None,) * 5,
    ("r", [["a:1", 2]], "3", {}, 1),
    (b"\xff", 1, 2, 3, 4),
]
ERRORS = [value for value in vars(errors).values() if isinstance(value, type)]


def classes() -> list[type]:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(fastredlock.__path__, "fastredlock.")
        if found.name.split(".")[1] not in OUTER
    ]
    found = [each for module in modules for each in vars(module).values()]
    ours = [each for each in found if inspect.isclass(each)]
    return [each for each in ours if each.__module__.startswith("fastredlock")]


def test_text_of_an_object_when_it_is_half_made_then_does_not_raise() -> None:
    """Seen: an AsyncioDriver of wrong arguments closed descriptor 0 at its end."""
    made, stdin = 0, os.dup(0)
    for kind in {*classes()}:
        try:
            half = kind.__new__(kind)  # type: ignore[call-overload]
        except TypeError:  # it cannot be half-made
            continue
        assert repr(half)
        str(half)
        made += 1
    assert made > 100
    assert os.path.sameopenfile(0, stdin)
    os.close(stdin)


@pytest.mark.parametrize("error", [each for each in ERRORS if "Error" in each.__name__])
@pytest.mark.parametrize("arguments", ODD)
def test_text_of_an_error_when_made_of_anything_then_does_not_raise(
    error: type[Exception], arguments: tuple[object, ...]
) -> None:
    """Seen: errors out of Celery's JSON results, made of lists, raised in __str__."""
    half = error.__new__(error, *arguments)
    with suppress(TypeError):
        half.__init__(*arguments)
    assert repr(half)
    str(half)


def test_error_when_it_went_through_json_then_tells_what_happened() -> None:
    before = errors.ResourceTakenError("orders:42", (VOTE,), 1, 0.5)
    after = errors.ResourceTakenError(*json.loads(json.dumps(before.args)))
    assert str(after).startswith("held by others: orders:42")
    for same in (copy.deepcopy(before), pickle.loads(pickle.dumps(before))):
        assert str(same) == str(before)


def test_client_whose_constructor_raised_then_has_a_text() -> None:
    half = fastredlock.FastRedlock.__new__(fastredlock.FastRedlock)
    with pytest.raises(fastredlock.ConfigurationError):
        half.__init__([])
    assert repr(half) == "<FastRedlock, not complete>"
