"""One body of a call, for the blocking and the awaitable face of it.

The body is a generator. It yields what takes time, a function without arguments or s to
sleep, and is sent what the function returns: in the awaitable face that is awaited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Step = Callable[[], Any] | float
Steps = Generator[Step, Any, T]


def run(steps: Steps[T]) -> T:
    """Run the body of a blocking call."""
    resume, value = steps.send, None
    try:
        while True:
            step = resume(value)
            try:
                resume, value = steps.send, _do(step)
            except BaseException as error:
                resume, value = steps.throw, error
    except StopIteration as end:
        returned: T = end.value
        return returned
    finally:
        del value  # an error, whose traceback refers to this frame


async def run_awaited(steps: Steps[T]) -> T:
    """Run the body of an awaitable call."""
    resume, value = steps.send, None
    try:
        while True:
            step = resume(value)
            try:
                resume, value = steps.send, await _do_awaited(step)
            except BaseException as error:
                resume, value = steps.throw, error
    except StopIteration as end:
        returned: T = end.value
        return returned
    finally:
        del value  # an error, whose traceback refers to this frame


def _do(step: Step) -> Any:
    if callable(step):
        return step()
    return time.sleep(step) if step else None


async def _do_awaited(step: Step) -> Any:
    if callable(step):
        return await step()
    from asyncio import sleep  # here: the blocking face needs no loop

    return await sleep(step) if step else None
