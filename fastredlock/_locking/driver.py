"""The blocking driver: it runs rounds in the thread that calls.

A driver holds the engine of one FastRedlock, and its settings. Acquires and leases hold
the driver alone: a lease can be released after its FastRedlock was collected.
"""

from __future__ import annotations

import sys
import time
from _thread import LockType
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn

from .._core import (
    Batch,
    ClosedError,
    DriverFields,
    Engine,
    ObserverHooks,
    Round,
    Scripts,
    StateError,
    blocking_abandon,
    blocking_close,
    blocking_watch,
    refuse_eventlet,
    set_first,
    thread_begin,
)
from .._options import scripts
from .._options.connection import context_of, preparer_of
from .._options.settings import Settings, timeout_to_ns
from .._reports.log import warn, warn_once
from .._reports.votes import printable
from ..errors import ConfigurationError, FastRedlockError, InternalError
from .attempt import ForeignKeys, attempts
from .keeper import Keeper, named
from .validity import Validity

# For which close() waits where a master is silent. On two cores with ten processes,
# servers paused for 0.1 s in 1 % of closes, and 900 keys then remained for their ttl.
CLOSE_WITHIN_NS = 250_000_000
CLOSED = "this FastRedlock is closed"
REPORT = "please report this"
RECALLS = "fastredlock recalls"  # name of the thread, or task, that reads them
PERMITS = (
    "%s: taken as %s, and as %s: a lock and a semaphore of one name do not exclude "
    "each other, and of several numbers of permits the largest counts"
)


def refuse_pickling(self: object) -> NoReturn:
    """Raise the error of pickling or copying a FastRedlock, or anything that needs it.

    The `__reduce__` of both, for a lease is pickled with its driver.
    """
    raise TypeError(
        "a FastRedlock cannot be pickled: make one in each process, and pass "
        "lease.token to adopt() there"
    )


class BaseDriver(DriverFields):
    """Hold an engine and its settings, and log its warnings; see `Driver`."""

    __slots__ = ()

    settings: Settings
    observer: ObserverHooks
    attempts = attempts  # what an acquire does whose first try was not won
    # Of one that is not plain.
    timeout_ns: ClassVar[Callable[[float | None], int | None]] = staticmethod(
        timeout_to_ns
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, new_engine(settings))
        self.engine.foreign = ForeignKeys()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)

    def keep(self, kept: Validity) -> Any:
        """Keep a lease from now on, or look at its times again; return its keeper.

        It does not block.
        """
        raise NotImplementedError

    def warn_of_permits(self, resource: str, *counts: int) -> None:
        how = [f"{count} permits" if count else "a lock" for count in counts]
        warn_once(PERMITS, printable(resource), *how)

    def log_warnings(self) -> None:
        # Taken before it is logged: a handler may take a lock, and come here.
        for level, name, text in self.engine.take_unlogged():
            warn("%s: %s", name, text, level=level)


class Driver(BaseDriver):
    """Run rounds in the thread that calls; any number of threads may."""

    __slots__ = ()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.engine.idle.watch = watch_by_thread

    def refuse(self, error: ClosedError | StateError) -> NoReturn:
        if isinstance(error, ClosedError):
            raise FastRedlockError(CLOSED) from error
        raise InternalError(f"{REPORT}: {error}") from error

    def abandon(self, work: Round | Batch) -> None:
        """Roll back a round or a batch whose caller has left; blocks."""
        blocking_abandon(self.engine, work)

    def close(self) -> None:
        blocking_close(self.engine, CLOSE_WITHIN_NS)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # gevent's, whenever it was patched

    def wait(self, gate: LockType, ns: int) -> None:
        gate.acquire(timeout=ns / 1e9)

    def keep(self, kept: Validity) -> Any:
        keeper = self.keeper
        if keeper is None or keeper.generation != self.fork_generation():
            self.keeper = None
            keeper = set_first(self, "keeper", Keeper(self))
        keeper.keep(kept)
        return keeper


def new_engine(settings: Settings) -> Engine:
    """Make the engine of these masters; reads certificates, and connects nothing."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        # Importing the core has turned it on, unless that is forbidden.
        raise ConfigurationError(
            "fastredlock needs the GIL: leave out PYTHON_GIL=0 and -X gil=0"
        )
    refuse_eventlet()
    in_cluster = any(endpoint.seeds for endpoint in settings.endpoints)
    release, prefix = settings.release_script, settings.key_prefix
    engine = Engine(
        settings.endpoints,
        new_scripts(release, settings.fencing, prefix, in_cluster, settings.only_looks),
        settings.connect_timeout_ns,
        tuple(map(context_of, settings.endpoints)),
        settings.max_ttl_ns,
        settings.client_name,
        tokens_are_given=settings.token_source is None,
        servers_may_be_same=settings.servers_may_be_same,
        preparers=tuple(map(preparer_of, settings.endpoints)),
        key_prefix=prefix,
        key_error=ConfigurationError,
        electorate=settings.electorate,
        lists=settings.lists,
    )
    engine.cohort_ns = settings.cohort_ns
    return engine


def new_scripts(
    given_release: bytes | None,
    is_fencing: bool,
    prefix: bytes = b"",
    in_cluster: bool = False,
    only_looks: bool = False,
) -> Scripts:
    """Return the scripts of an engine, with the prefix in all names.

    A release that is the caller's notifies nobody: no queue is kept beside it.
    """
    named = dict(scripts.scripts_of("locks", prefix, in_cluster))
    if given_release is None:
        named |= scripts.scripts_of("queue", prefix, in_cluster)
    if is_fencing:
        named |= scripts.scripts_of("fences", prefix, in_cluster)
    if given_release is not None:
        named.pop("take_turn", None)
        named["release"] = scripts.hashed(given_release)
        named["probe"] = scripts.hashed(scripts.PROBE_CALL)
    if only_looks:
        named["marker"] = scripts.hashed(scripts.WITHOUT_SET + named["marker"].source)
    return Scripts(named, given_release is None, prefix)


def watch_by_thread(engine: Engine, _: None) -> Literal[True] | None:
    """Start the thread that reads recalls while a key is idle; None: it cannot be."""
    error = thread_begin(named(partial(blocking_watch, engine), RECALLS))
    return True if error is None else None
