"""Functions that a lock decorates, and those that it refuses; no server."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial, singledispatch, wraps
from typing import Any, get_type_hints

import pytest

from fastredlock import ConfigurationError, FastRedlock
from fastredlock import asyncio as awaitable
from fastredlock._core import Operation
from fastredlock.testing.asyncio import MemoryLocks
from tests.support.rounds import ScriptedLocks

blocking_locks = FastRedlock([("master", 1)])
awaitable_locks = awaitable.FastRedlock([("master", 1)])


def granting(calls: int = 1) -> ScriptedLocks:
    """Grant so many calls; each takes and releases."""
    return ScriptedLocks(*["GG."] * (2 * calls))


def operations(locks: ScriptedLocks) -> list[str]:
    return [round.operation.name for round in locks.rounds]


def resources(locks: ScriptedLocks) -> list[bytes]:
    rounds = [r for r in locks.rounds if r.operation is Operation.ACQUIRE]
    return [round.resource for round in rounds]


# ---- what is held


def test_decorated_function_holds_the_lock_for_each_call() -> None:
    locks = granting(3)
    seen: list[int] = []

    @locks.lock("report", timeout=0)
    def report(part: int, *, more: int = 0) -> int:
        seen.append(len(locks.rounds))
        return part // more

    assert (report(6, more=2), report(5, more=1)) == (3, 5)
    with suppress(ZeroDivisionError):
        report(5)
    assert operations(locks) == ["ACQUIRE", "RELEASE"] * 3
    assert seen == [1, 3, 5]


def test_method_holds_the_lock_of_its_object() -> None:
    locks = granting(2)

    class Account:
        def __init__(self, number: int) -> None:
            self.number = number

        @locks.lock(lambda self, *_: f"accounts:{self.number}", timeout=0)
        def pay(self, amount: int) -> int:
            return self.number + amount

        @staticmethod
        @locks.lock("rates", timeout=0)
        def rate() -> float:
            return 0.5

    assert Account(3).pay(4) == 7
    assert Account.rate() == 0.5
    assert resources(locks) == [b"accounts:3", b"rates"]


def test_decorated_function_keeps_its_name_signature_and_types() -> None:
    @blocking_locks.lock("r")
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    total: Callable[[int], int] = add  # mypy sees the same type
    assert total is add
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Add.", __name__)
    assert str(inspect.signature(add)) == "(a: int, b: int = 2) -> int"
    assert get_type_hints(add) == {"a": int, "b": int, "return": int}


# ---- what is refused, when it is decorated


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


async def coroutine_function() -> None:
    pass


def plain() -> None:
    pass


class AsyncCall:
    async def __call__(self) -> None:
        pass


class Call:
    def __call__(self) -> None:
        pass


STANDARD: list[Any] = [contextmanager, lru_cache, singledispatch]


# Wrappers of the standard library run nothing of what they wrap to its end.
LATER: list[tuple[Any, str]] = [
    *((wrapper(generator), "is a generator: .* put `with") for wrapper in STANDARD),
    (asynccontextmanager(async_generator), "is a generator: .* put `async with"),
    (lru_cache(async_generator), "is a generator: .* put `async with"),
    (partial(lru_cache(contextmanager(generator))), "is a generator"),
]
BLOCKING = [
    (generator, r"generator\(\) is a generator: its body would run without"),
    (async_generator, "is a generator: .* put `async with locks.lock"),
    (coroutine_function, "is a coroutine function: .* fastredlock.asyncio"),
    (AsyncCall(), "is a coroutine function"),
    (partial(coroutine_function), "is a coroutine function"),
    (partial(generator), "is a generator"),
    *LATER,
    (lru_cache(coroutine_function), "is a coroutine function"),
    (classmethod(lambda owner: None), "is a classmethod: put that above the lock"),
    (staticmethod(plain), "is a staticmethod: put that above the lock"),
    (Call, "is no function"),
    (42, "is no function: .* with its parentheses"),
]
AWAITABLE = [
    (plain, "is no coroutine function: use fastredlock.FastRedlock"),
    (Call(), "is no coroutine function"),
    *((each, "is a generator") for each in (generator, async_generator)),
    *LATER,
    (staticmethod(coroutine_function), "is a staticmethod"),
    (None, "is no function"),
]


@pytest.mark.parametrize(
    ("locks", "function", "told"),
    [
        *((blocking_locks, *each) for each in BLOCKING),
        *((awaitable_locks, *each) for each in AWAITABLE),
    ],
)
def test_lock_refuses_what_would_run_without_it(
    locks: Any, function: Any, told: str
) -> None:
    for lock in (locks.lock("r"), locks.lock_all(["r"])):
        with pytest.raises(ConfigurationError, match=told):
            lock(function)


def test_resource_function_that_has_to_be_awaited_is_refused() -> None:
    async def name() -> str:
        return "r"

    bad: Any = name
    with pytest.raises(ConfigurationError, match="a coroutine function; give a plain"):
        blocking_locks.lock(bad)(plain)


# ---- what is refused, when it is called or entered


@pytest.mark.parametrize("named", [None, 7, "", ["a"]])
def test_resource_function_that_names_none_is_refused_and_nothing_is_called(
    named: Any,
) -> None:
    locks = ScriptedLocks()

    @locks.lock(lambda: named)
    def never() -> None:
        raise AssertionError

    with pytest.raises(ConfigurationError, match="resource"):
        never()
    assert locks.rounds == []


@pytest.mark.parametrize("is_all", [False, True])
def test_resource_function_is_refused_in_a_with_block(is_all: bool) -> None:
    locks = ScriptedLocks()
    lock = locks.lock_all(lambda: ["r"]) if is_all else locks.lock(lambda: "r")
    with pytest.raises(ConfigurationError, match=r"where lock.* decorates one"):
        lock.__enter__()
    assert locks.rounds == []


# ---- what is refused when it has returned


def hiding(function: Callable[..., Any]) -> Any:
    """Return a wrapper as every program has them: who sees it knows nothing."""

    @wraps(function)
    def wrapper(*args: object) -> Any:
        return function(*args)

    return wrapper


NOTHING = nullcontext()  # a context manager, but without a body


class Compiled:
    """Be a coroutine as compilers make them: no type of CPython's."""

    closed = 0

    def __await__(self) -> Iterator[None]:
        return self

    def __iter__(self) -> Iterator[None]:
        return self

    def __next__(self) -> None:
        raise AssertionError("the body runs")

    def send(self, value: object) -> None:
        raise AssertionError("the body runs")

    def throw(self, error: BaseException) -> None:
        raise error

    def close(self) -> None:
        type(self).closed += 1


class Awaited:
    """Be awaitable, and nothing else."""

    def __await__(self) -> Iterator[None]:
        raise AssertionError("the body runs")


def test_awaited_call_that_returns_a_task_is_refused_and_the_task_cancelled() -> None:
    locks, tasks = MemoryLocks(), list[Any]()

    @locks.lock("r", timeout=0)
    async def call(made: Any) -> object:
        tasks.append(made)
        return made

    async def calling() -> None:
        with pytest.raises(ConfigurationError, match="returned an awaitable"):
            await call(asyncio.create_task(asyncio.sleep(9)))
        await asyncio.wait(tasks)
        assert tasks[0].cancelled()
        assert type(await call(Awaited())) is Awaited  # a client, perhaps

    asyncio.run(calling())


RETURNED = [
    (coroutine_function, "returned a coroutine: its body .* await it"),
    (Compiled, "returned a coroutine"),
    (generator, "returned a generator: .* put `with locks"),
    (async_generator, "returned a generator: .* put `async with"),
    (contextmanager(generator), "returned a context manager: .* put `with"),
    (asynccontextmanager(async_generator), "returned a context .* put `async"),
]


@pytest.mark.parametrize(("function", "told"), RETURNED)
def test_call_that_returns_what_runs_later_is_refused_before_its_release(
    function: Any, told: str
) -> None:
    locks = granting()
    made: list[Any] = []

    def keeps(*args: object) -> object:
        made.append(function(*args))
        return made[-1]

    with pytest.raises(ConfigurationError, match=told):
        locks.lock("r", timeout=0)(hiding(keeps))()
    assert operations(locks) == ["ACQUIRE", "RELEASE"]
    assert is_closed(made[0])


def is_closed(made: Any) -> bool:
    """Return whether nobody can run it any more."""
    if isinstance(made, Compiled):
        return made.closed > 0
    step = getattr(made, "gen", made)
    with suppress(StopIteration, StopAsyncIteration, RuntimeError):
        step.__anext__().send(None) if hasattr(step, "__anext__") else step.send(None)
        return False
    return True


@pytest.mark.parametrize(("function", "told"), RETURNED)
def test_awaited_call_that_returns_what_runs_later_is_refused(
    function: Any, told: str
) -> None:
    locks = MemoryLocks()

    @locks.lock("r", timeout=0)
    async def call() -> object:
        return function()

    async def calling() -> Any:
        with pytest.raises(ConfigurationError, match=told):
            await call()
        return await locks.acquire("r", timeout=0)

    assert asyncio.run(calling()) is not None


@pytest.mark.parametrize(
    ("wrapper", "returned"),
    [
        (lambda: asyncio.run(coroutine_function()), None),
        (lambda: list(generator()), [1]),
        (lambda: NOTHING, NOTHING),
    ],
)
def test_wrapper_that_runs_it_to_its_end_is_no_reason(
    wrapper: Any, returned: object
) -> None:
    locks = granting()
    hidden: Any = wraps(generator)(wrapper)
    assert locks.lock("r", timeout=0)(hidden)() == returned
