"""Calls to foreign code: which threads make them, and that none harms another."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from fastredlock._locking.keeper import Calls, Crew, make
from tests.support.waiting import wait_until

NAME = "a crew of a test"


def size() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Let calls that wait end with their test."""
    end = threading.Event()
    yield end
    end.set()
    assert wait_until(lambda: size() == 0)


def hold(crew: Crew, end: threading.Event, count: int) -> list[int]:
    """Let a crew make so many calls that take long; return those that have begun."""
    begun: list[int] = []

    def take_long(number: list[int]) -> None:
        begun.append(number[0])
        end.wait(60)

    for i in range(count):
        crew.append(take_long, [i])
    assert crew.start()
    return begun


def test_crew_when_calls_take_long_then_makes_as_many_as_it_may_at_once(
    end: threading.Event,
) -> None:
    crew = Crew(NAME, 4)
    begun = hold(crew, end, 6)
    assert wait_until(lambda: len(begun) == 4)
    assert (size(), len(crew)) == (4, 2)
    assert crew.start()
    assert size() == 4
    end.set()
    assert wait_until(lambda: sorted(begun) == [0, 1, 2, 3, 4, 5])


def test_crew_when_calls_are_quick_then_makes_them_by_few_threads(
    end: threading.Event,
) -> None:
    crew, names = Crew(NAME, 1000), set()
    made: list[object] = []

    def note(argument: object) -> None:
        names.add(threading.get_ident())
        made.append(argument)

    arguments = [[i] for i in range(5000)]
    for argument in arguments:
        crew.append(note, argument)
    crew.start()
    assert wait_until(lambda: len(made) == 5000)
    assert len(names) < 1000
    assert sorted(made) == arguments  # type: ignore[type-var]


def test_crew_when_a_call_raises_anything_then_makes_the_others(
    end: threading.Event,
) -> None:
    crew = Crew(NAME, 1)
    made: list[object] = []
    for error in (ValueError(), SystemExit(), KeyboardInterrupt(), GeneratorExit()):

        def fail(error: BaseException) -> None:
            made.append(error)
            raise error

        crew.append(fail, error)
    crew.start()
    assert wait_until(lambda: len(made) == 4)


def test_crew_when_no_thread_can_be_started_then_says_so(
    end: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    busy, idle = Crew(NAME, 2), Crew(NAME, 2)
    begun = hold(busy, end, 1)
    assert wait_until(lambda: begun)
    monkeypatch.setattr(threading, "Thread", Refused)
    assert busy.start()  # nothing waits
    busy.append(begun.append, 7)
    assert busy.start()  # the one that is at it makes it later
    idle.append(begun.append, 8)
    assert not idle.start()
    end.set()
    assert wait_until(lambda: begun == [0, 7])


def test_crew_when_calls_come_at_any_moment_then_none_is_left(
    end: threading.Event,
) -> None:
    crew, made = Crew(NAME, 2), list[object]()
    for i in range(3000):
        crew.append(made.append, [i])
        crew.start()
    assert wait_until(lambda: len(made) == 3000)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads
def test_crew_when_a_call_forks_then_the_child_makes_none_of_the_others(
    end: threading.Event,
) -> None:
    crew = Crew(NAME, 1)
    children: list[int] = []
    read, write = os.pipe()
    crew.append(lambda _: children.append(os.fork()), [0])
    crew.append(lambda _: os.write(write, b"made"), [1])
    crew.start()
    assert wait_until(lambda: size() == 0 and not crew)
    os.close(write)
    assert os.waitpid(max(children), 0)[1] == 0
    with open(read, "rb") as pipe:
        assert pipe.read() == b"made"


def test_call_when_the_same_one_waits_then_is_made_once() -> None:
    calls = Calls()
    made: list[object] = []
    argument, other = [1], [1]
    for each in (argument, other, argument):
        calls.append(made.append, each)
    assert len(calls) == 2
    assert calls.make_all() is None
    calls.append(made.append, argument)
    assert len(calls) == 1
    assert [id(each) for each in made] == [id(argument), id(other)]


def test_call_when_it_should_end_the_program_then_that_is_returned() -> None:
    def fail(error: BaseException) -> None:
        raise error

    ending = SystemExit(3)
    assert make((fail, ending)) is ending
    assert make((fail, ValueError())) is None
    calls = Calls()
    for error in (ValueError(), ending, GeneratorExit()):
        calls.append(fail, error)
    assert calls.make_all() is ending
    assert not calls
