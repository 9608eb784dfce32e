"""Foreign code that a keeper has to call: `on_lost`, an observer, the handlers of logs.

Such code may take any time, and raise anything, SystemExit included. So a keeper calls
none of it: it appends the call here, after every lease of that pass counts as lost, and
others make it: threads of a `Crew`, or the event loop after the keeper's timer.

A call is a function of ours with one argument. It logs what foreign code raises, and
raises it again. A function that already waits with the same argument is not appended
again, so what waits is bounded by the number of kept leases, however slow a call is.
"""

from __future__ import annotations

import _thread  # by its name: gevent or eventlet may patch it later
from collections import deque
from collections.abc import Callable
from typing import Any

from ..._core import DriverFields, LeaseFields, fork_generation
from ..._reports.log import WARNING, print_error, warn
from ...errors import LeaseLostError
from .kept import Kept

Call = tuple[Callable[[Any], object], Any]  # function and argument


class Calls:
    """Calls that wait to be made, in order; a keeper appends."""

    __slots__ = ("_calls", "_keys")

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._keys: set[tuple[Callable[[Any], object], int]] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def append(self, function: Callable[[Any], object], argument: object) -> None:
        """Append a call, unless the same one waits."""
        key = (function, id(argument))  # which lives as long as it waits
        if key not in self._keys:
            self._keys.add(key)
            self._calls.append((function, argument))

    def take(self) -> Call:
        """Take out the call that waits longest."""
        call = self._calls.popleft()
        self._keys.discard((call[0], id(call[1])))
        return call

    def make_all(self) -> BaseException | None:
        """Make all calls that wait; return what should end the program, if any."""
        ending = None
        while self._calls:
            ending = make(self.take()) or ending
        return ending


def make(call: Call) -> BaseException | None:
    """Make a call; return the SystemExit or KeyboardInterrupt that it raised, or None.

    Everything that it raises was logged by it, and stops no other call.
    """
    function, argument = call
    try:
        function(argument)
    except BaseException as raised:
        return raised if isinstance(raised, SystemExit | KeyboardInterrupt) else None
    return None


class Crew:
    """Daemon threads that make calls, at most so many at once; none where none waits.

    At most one of them is a spare, which has no call yet. A thread that takes a call
    starts a spare first where others wait: so a call that takes long delays no other,
    and quick calls need few threads. No foreign code runs while the lock is held.
    """

    __slots__ = (
        *("_generation", "_name", "_most", "calls"),
        *("_has_spare", "_lock", "_size"),
    )

    def __init__(self, name: str, most: int) -> None:
        self.calls = Calls()
        self._generation = fork_generation()
        self._name = name
        self._most = most
        self._lock = _thread.allocate_lock()  # of the next two, and the end of `calls`
        self._size = 0
        self._has_spare = False

    def start(self) -> bool:
        """Have all calls made; False: no thread could be started, and there is none."""
        with self._lock:
            if not self.calls or self._has_spare or self._size == self._most:
                return True
            self._has_spare = True
            self._size += 1
        try:
            from threading import Thread  # as `named`, which came before

            Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._has_spare = False
                self._size -= 1
                return self._size > 0
        return True

    def _run(self) -> None:
        with self._lock:
            self._has_spare = False
        while (call := self._take()) is not None:
            self.start()
            make(call)
            if fork_generation() != self._generation:
                return  # the call has forked: the child makes none of the others

    def _take(self) -> Call | None:
        with self._lock:
            if self.calls:
                return self.calls.take()
            self._size -= 1
            return None


# --- the calls ------------------------------------------------------------------------


def call_on_lost(lost: tuple[Any, LeaseFields, LeaseLostError]) -> None:
    """Call the `on_lost` of a lease; what it raises is logged."""
    on_lost, lease, error = lost
    try:
        on_lost(lease, error)
    except BaseException as raised:
        log("%r: on_lost raised %r", lease.resource, raised)
        raise


def note_renewal(kept: Kept) -> None:
    """Note a renewal in a log of compat's; what its handlers raise is logged."""
    watch = kept.watch
    if watch is None or watch.on_renewal is None:
        return
    try:
        watch.on_renewal()
    except BaseException as raised:
        log("the log of a renewal raised %r", raised)
        raise


def log_warnings(driver: DriverFields) -> None:
    """Log what an engine has to report, each line whatever the handlers raise."""
    for level, name, text in driver.engine.take_unlogged():
        log("%s: %s", name, text, level=level)


def log_error(error: Exception) -> None:
    """Log an error of a renewal that is our own."""
    log("a renewal raised %r", error)


def log(text: str, *values: object, level: int = WARNING) -> None:
    """Log a warning; whatever a handler raises is printed, SystemExit as well."""
    try:
        warn(text, *values, level=level)
    except BaseException:
        print_error()
