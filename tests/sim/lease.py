"""The shipped lease, driven by a generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastredlock._locking.lease import BaseLease, ReleaseStatus
from fastredlock._locking.validity import extensions_of
from fastredlock.errors import LeaseLostError, NotExtendedError


class SimLease(BaseLease):
    """The shipped lease with a driver that is a generator; see _locking/lease.py."""

    __slots__ = ()

    def extend(self, ttl: float | None = None) -> Iterator[Any]:
        """As Lease.extend."""
        process, judge = self._driver, self._driver.judge
        extension, under_way = object(), extensions_of(self).under_way
        try:
            try:
                round = self._begin_extend(ttl, extension)
                judge.on_validity(process, self)
                yield from process.run(round)
                return self._end_extend(round, extension)
            finally:
                under_way.pop(extension, None)
        except (LeaseLostError, NotExtendedError) as error:
            judge.on_not_extended(self, error)
            raise
        finally:
            judge.on_validity(process, self)

    def release(self) -> Iterator[Any]:
        """As Lease.release."""
        process, judge = self._driver, self._driver.judge
        try:
            round = self._begin_release()
            judge.on_release_called(process, self)
            if round is None:
                return ReleaseStatus.GONE
            yield from process.run(round)
        except BaseException:
            if self._status is ReleaseStatus.UNKNOWN:
                process.begin(self._new_release())
            raise
        status = self._end_release(round)
        judge.on_released(process, self, status)
        return status
