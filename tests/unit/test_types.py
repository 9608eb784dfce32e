"""The types of public signatures can be imported, and reports are named tuples."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

import fastredlock.asyncio
import fastredlock.types
from fastredlock import FastRedlock, MasterHealth, MasterVote, Stats, Vote


@pytest.mark.parametrize("name", fastredlock.types.__all__)
def test_type_of_a_signature_can_be_imported(name: str) -> None:
    assert getattr(fastredlock.types, name) is not None


@pytest.mark.parametrize("kind", [FastRedlock, fastredlock.asyncio.FastRedlock])
def test_types_that_signatures_name_are_exported(kind: type) -> None:
    known = {*fastredlock.__all__, *fastredlock.types.__all__}
    usual = {
        "Callable",
        "Iterable",
        "Coroutine",
        "Generator",
        "Any",
        "TracebackType",
        "BaseException",
    }
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_"):
            continue
        for told in function.__annotations__.values():
            words = {word for word in inspect.cleandoc(told).replace(".", " ").split()}
            named = {w.strip("[],|()") for word in words for w in word.split("[")}
            classes = {word for word in named if word[:1].isupper()} - {"None"}
            assert classes <= known | usual, (name, told)


def test_types_are_not_loaded_with_the_package() -> None:
    code = "import fastredlock, sys; sys.exit('fastredlock.types' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("report", [MasterVote, MasterHealth, Stats])
def test_report_is_a_named_tuple_with_its_fields_and_no_dict(report: type) -> None:
    fields = report._fields  # type: ignore[attr-defined]
    assert [*report.__annotations__] == [*fields]
    made = report(*range(len(fields)))
    assert made == tuple(range(len(fields)))
    assert not hasattr(made, "__dict__")
    assert pickle.loads(pickle.dumps(made)) == made
    assert repr(made).startswith(f"{report.__name__}({fields[0]}=0")
    assert report.__doc__
    assert report.__module__.startswith("fastredlock._reports.")


def test_master_vote_has_defaults_and_its_own_text() -> None:
    vote = MasterVote("a:1", Vote.TAKEN, elapsed_ms=1.0)
    assert (vote.text, vote.waiting, str(vote)) == (None, None, "a:1 TAKEN in 1.0 ms")
