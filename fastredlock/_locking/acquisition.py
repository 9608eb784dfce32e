"""One acquire under way, and the with block around one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .._core import Round, leave, now_ns, undo
from .._options.settings import encode_resource, encode_resources, timeout_to_ns
from .._reports.votes import Resource, votes_of
from ..errors import FastRedlockError, InternalError, ResourceTakenError
from .attempt import attempts
from .lease import Lease

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from typing import Any


class BaseAcquisition:
    """One acquire under way; it knows its last round, so that it can be undone."""

    __slots__ = ("_locks", "_resource", "began_ns", "round")

    encode: Callable[[Any], bytes | tuple[bytes, ...]] = staticmethod(encode_resource)

    def __init__(self, locks: Any, resource: Resource | None) -> None:
        self._locks = locks
        self._resource = locks._settings.resource if resource is None else resource
        self.began_ns = now_ns()
        self.round: Round | None = None

    def steps(
        self, ttl: float | None, timeout: float | None
    ) -> Iterator[Round | float]:
        """Check what was given, before any I/O; return the attempts to drive."""
        settings = self._locks._settings
        return attempts(
            self._locks._engine,
            self._resource,
            self.encode(self._resource),
            settings.default_terms if ttl is None else settings.terms(ttl),
            settings.new_token,
            settings.retry,
            timeout_to_ns(timeout),
            self.began_ns,
        )

    def last_round(self) -> Round:
        """Return the round that decided."""
        if self.round is None:
            raise InternalError("an acquire without a round")
        return self.round

    def taken_error(self) -> ResourceTakenError:
        """Return the error of an acquire that ended without a lease."""
        round = self.last_round()
        return ResourceTakenError(
            self._resource,
            votes_of(self._locks._engine, round),
            round.attempt,
            (round.closed_ns - self.began_ns) / 1e9,
        )


class Acquisition(BaseAcquisition):
    """One blocking acquire."""

    __slots__ = ()

    undo = undo

    def run(self, ttl: float | None, timeout: float | None) -> Lease | None:
        """Drive the attempts: run each round, sleep each delay."""
        locks = self._locks
        for step in self.steps(ttl, timeout):
            if isinstance(step, float):
                time.sleep(step)  # gevent's or eventlet's, whenever it was patched
            else:
                self.round = step
                locks._run(step)
        if self.round is None or not self.round.is_won:
            return None
        return Lease(locks, self._resource, self.round)


class AcquisitionOfAll(Acquisition):
    """One blocking acquire of several resources, all or none."""

    __slots__ = ()

    encode = staticmethod(encode_resources)


class BaseLock:
    """What a with block holds; see `Lock`."""

    __slots__ = ("_lease", "_locks", "_resource", "_timeout", "_ttl")

    def __init__(
        self,
        locks: Any,
        resource: str | bytes | None,
        ttl: float | None,
        timeout: float | None,
    ) -> None:
        self._locks = locks
        self._resource = resource
        self._ttl = ttl
        self._timeout = timeout
        self._lease: Any = None

    def _check_fresh(self) -> None:
        if self._lease is not None:
            raise FastRedlockError(
                "this lock() was entered before: call lock() again for another lease"
            )


class Lock(BaseLock):
    """Hold a resource for the length of a with block; made by `FastRedlock.lock`."""

    __slots__ = ()

    _lease: Lease | None

    def __enter__(self) -> Lease:
        self._check_fresh()
        acquisition = Acquisition(self._locks, self._resource)
        try:
            self._lease = acquisition.run(self._ttl, self._timeout)
            if self._lease is None:
                raise acquisition.taken_error()
            return self._lease
        except BaseException:
            acquisition.undo()
            raise

    __exit__ = leave
