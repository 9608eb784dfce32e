"""Calls to foreign code: which threads make them, and that none harms another."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Iterator

import pytest

from fastredlock._locking.keeper import Calls, CallsByThread
from tests.support.waiting import wait_until

NAME = "calls of a test"


def size() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Let calls that wait end with their test."""
    end = threading.Event()
    yield end
    end.set()
    assert wait_until(lambda: size() == 0)


def hold(calls: CallsByThread, end: threading.Event, count: int) -> list[int]:
    """Append so many calls that take long; return those that have begun."""
    begun: list[int] = []

    def take_long(number: list[int]) -> None:
        begun.append(number[0])
        end.wait(60)

    for i in range(count):
        calls.append(take_long, [i])
    assert calls.start()
    return begun


def test_calls_when_one_takes_long_then_the_others_wait_for_their_one_thread(
    end: threading.Event,
) -> None:
    calls = CallsByThread(NAME)
    begun = hold(calls, end, 6)
    assert wait_until(lambda: len(begun) == 1)
    assert calls.start()
    assert (size(), len(calls)) == (1, 5)
    end.set()
    assert wait_until(lambda: begun == [0, 1, 2, 3, 4, 5])


def test_calls_when_one_raises_anything_then_makes_the_others(
    end: threading.Event,
) -> None:
    calls, made = CallsByThread(NAME), list[object]()
    for error in (ValueError(), SystemExit(), KeyboardInterrupt(), GeneratorExit()):

        def fail(error: BaseException) -> None:
            made.append(error)
            raise error

        calls.append(fail, error)
    calls.start()
    assert wait_until(lambda: len(made) == 4)


def test_calls_when_no_thread_can_be_started_then_says_so(
    end: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    busy, idle = CallsByThread(NAME), CallsByThread(NAME)
    begun = hold(busy, end, 1)
    assert wait_until(lambda: begun)
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert idle.start()  # nothing waits
    busy.append(begun.append, 7)
    assert busy.start()  # the one that is at it makes it later
    idle.append(begun.append, 8)
    assert not idle.start()
    end.set()
    assert wait_until(lambda: begun == [0, 7])


def test_calls_when_they_come_at_any_moment_then_none_is_left(
    end: threading.Event,
) -> None:
    calls, made = CallsByThread(NAME), list[object]()
    for i in range(3000):
        calls.append(made.append, [i])
        calls.start()
    assert wait_until(lambda: len(made) == 3000)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads
def test_calls_when_one_forks_then_the_child_makes_none_of_the_others(
    end: threading.Event,
) -> None:
    calls = CallsByThread(NAME)
    children: list[int] = []
    read, write = os.pipe()
    calls.append(lambda _: children.append(os.fork()), [0])
    calls.append(lambda _: os.write(write, b"made"), [1])
    calls.start()
    assert wait_until(lambda: size() == 0 and not calls)
    os.close(write)
    assert os.waitpid(max(children), 0)[1] == 0
    with open(read, "rb") as pipe:
        assert pipe.read() == b"made"


def test_call_when_the_same_one_waits_then_is_made_once() -> None:
    calls, made = Calls(), list[object]()
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

    calls, ending = Calls(), SystemExit(3)
    for error in (ValueError(), ending, GeneratorExit()):
        calls.append(fail, error)
    assert calls.make_all() is ending
    assert not calls
