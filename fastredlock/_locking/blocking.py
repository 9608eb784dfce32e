"""The lease, the acquires and the with block of the FastRedlock that blocks."""

from __future__ import annotations

import _thread  # by its name: gevent may patch it later
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

from .._core import (
    AcquireCall,
    ExtendCall,
    enter,
    lease_exit,
    lock_enter,
    lock_exits,
    release_in_c,
)
from .._options.functions import (
    OUTSIDE,
    check_result,
    is_coroutine_function,
    name_of,
)
from .._steps import run
from ..errors import ConfigurationError, LeaseLostError
from .driver import Driver
from .lease import BaseLease, BaseLost, ReleaseStatus
from .lock import OUTAGE, BaseLock, Skipped, delay_in

Function = TypeVar("Function", bound=Callable[..., Any])


class Lease(BaseLease):
    """Hold one grant of a resource until it is released or its validity is over.

    Any thread may use it, not only the one that took it. As a context manager it is
    released at the end of the block. If it was lost before, that raises LeaseLostError,
    unless the body raised: then the body's error is raised.
    """

    __slots__ = ()

    _driver: Driver

    @property
    def lost(self) -> Lost:
        """Whether it is lost, to be asked or waited for: as a `threading.Event`."""
        return Lost(self)

    def extend(self, ttl: float | None = None) -> float:
        """Set the ttl (s, default: as before) anew and return the new validity (s).

        Blocks for one round. Raises LeaseLostError if the lease is over (stop the
        work), NotExtendedError if too few masters confirmed and it is still valid (for
        its `remaining`). Never re-creates a lost key.
        """
        left: float = ExtendCall(self, ttl).run()
        return left

    @release_in_c
    def release(self) -> ReleaseStatus:
        """Delete our key on every master, and only ours; return how that ended.

        Blocks for one round. A lease that is gone already is no error: GONE. After
        UNKNOWN you may call it again; masters that reconnect get the release by
        themselves. If the call is interrupted, the release is sent all the same.
        """
        raise NotImplementedError  # its body is C

    __enter__ = enter
    __exit__ = lease_exit


class Lost(BaseLost):
    """Show whether a lease is lost, as the reading half of a `threading.Event`."""

    __slots__ = ()

    _lease: Lease

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is lost; return False if it was released, or time is up.

        `timeout` in s. Needs no keeper: it looks at the end of the validity itself.
        """
        waiters = self._waiters()
        for left_ns in self._waits(timeout):
            gate = _thread.allocate_lock()
            gate.acquire()
            waiters.append(gate.release)
            try:
                if not self._is_over():
                    self._lease._driver.wait(gate, left_ns)
            finally:
                with suppress(ValueError):  # it was woken
                    waiters.remove(gate.release)
        return self.is_set()


class Lock(BaseLock):
    """Hold a resource for the length of a with block; made by `FastRedlock.lock`.

    It may be entered any number of times, also by several threads at once: each entry
    has a lease of its own. A with block releases the lease that it took, even if it
    ends on another thread. Call `__enter__` and `__exit__` yourself from one thread
    only. As a decorator it is held for the length of each call.
    """

    __slots__ = ()

    _driver: Driver
    _lease = Lease

    __enter__ = lock_enter
    __exit__ = lock_exits

    def _refused(self, acquire: AcquireCall) -> Exception:
        return run(self._refusing(acquire))

    def __call__(self, function: Function) -> Function:
        """Return the function with the lock held for each of its calls.

        Raises ConfigurationError where the body would run without it: for generators
        and coroutine functions, and for what is no function.
        """
        if is_coroutine_function(function, self._resource):
            raise ConfigurationError(
                f"{name_of(function)} is a coroutine function: {OUTSIDE}; use "
                "fastredlock.asyncio.FastRedlock"
            )

        @wraps(function)
        def holding(*args: Any, **kwargs: Any) -> Any:
            try:
                with self._of_call(args, kwargs):
                    result = function(*args, **kwargs)
                    check_result(function, result)
                    return result
            except Skipped:
                return None

        return holding  # type: ignore[return-value]


def leading(lock: Lock) -> Generator[Lease, None, None]:
    """Yield a lease for each term; when it is closed, release that of the last one."""
    outage = 0
    while True:
        try:
            with lock as lease:
                outage = 0
                yield lease
        except LeaseLostError:  # within the term, which has ended now
            continue
        except OUTAGE as error:
            outage += 1
            lock._driver.sleep(delay_in(outage, lock, error))
