"""The keeper of a model machine: the shipped policy, in a worker of its own.

What `BaseKeeper` of _locking/keeper.py does is mirrored: what is due is begun, run and
ended, one renewal at a time, and what is lost is told. Pauses and interrupts strike it
as any other worker.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fastredlock._core import ClosedError
from fastredlock._locking.renewals import Keeping, end_of
from fastredlock._locking.validity import FOREVER_NS, Validity, validity_of
from fastredlock.errors import LeaseLostError

from .world import MS, SLEEP, Steps

if TYPE_CHECKING:
    from fastredlock import Lease

    from .process import Process
    from .worker import Worker

IDLE_NS = 50 * MS
LATE_NS = 20 * MS  # for which a worker that is ready may have to wait for another


class SimKeeper:
    def __init__(self, process: Process, worker: Worker) -> None:
        self._process = process
        self._worker = worker
        self._keeping = Keeping(process.index * 4_099)
        self._is_asleep = False
        self._kept: list[Validity] = []  # since the process began
        self._over: list[Validity] = []  # before they came here: a pause in the acquire
        self._paused_ns = 0  # `paused_until_ns` of the process, when it last looked
        process.keeper = self
        worker.start(self._live())

    def keep(self, lease: Lease) -> None:
        kept = validity_of(lease)
        kept.begin_keeping(FOREVER_NS)
        self._kept.append(kept)
        if 0 < end_of(kept) <= self._process.now_ns():
            self._over.append(kept)
        self.add(kept)

    def add(self, kept: Validity) -> None:
        """Look at its times (again)."""
        self._keeping.add(kept, self._process.now_ns())
        if self._is_asleep and not self._worker.is_done:
            self._worker.wake_soon()

    def _live(self) -> Steps:
        with suppress(ClosedError):
            while True:
                yield from self._step()
                next_ns, now_ns = self._keeping.next_ns, self._process.now_ns()
                world = self._process.world
                if world.now_ns >= self._worker.until_ns and not self._is_needed():
                    return
                left_ns = IDLE_NS if next_ns is None else next_ns - now_ns
                self._is_asleep = True
                yield SLEEP, max(0, min(left_ns, IDLE_NS))
                self._is_asleep = False

    def _is_needed(self) -> bool:
        return any(lease.is_valid for lease in self.leases())

    def leases(self) -> list[Lease]:
        """Return the leases that are kept, and not released.

        One that its worker has left is not renewed, and may stand for a minute.
        """
        leases = [kept() for kept in self._kept if kept.until_ns == FOREVER_NS]
        return [each for each in leases if each is not None and each._status is None]

    def _step(self) -> Steps:
        process, keeping = self._process, self._keeping
        paused_ns, now_ns = process.paused_until_ns, process.now_ns()
        renewals, time_ns, lost = keeping.due(now_ns, 1)
        for kept in lost:
            end_ns = end_of(kept)  # 0: an extension by hand has found it
            # Kept no longer, nobody is to be told: it may have been extended by hand
            # for less since, and not be kept again (seed 497, with readers).
            is_due = end_ns and kept.is_kept and kept not in self._over
            if is_due and paused_ns == self._paused_ns:
                late_ns = now_ns - end_ns - LATE_NS
                process.judge.on_due(process, kept(), late_ns)
            self._report(kept, "lost: its validity is over")
        self._paused_ns = paused_ns
        for lease in self.leases():
            process.judge.on_looked_at(lease, now_ns)
        for kept in renewals:
            end_ns = end_of(kept)
            round = kept.renew(process.engine, now_ns, time_ns)
            if round is None:
                keeping.add(kept, now_ns)
                continue
            yield from process.run(round)
            if paused_ns == process.paused_until_ns:
                process.judge.on_renewed(process, end_ns + LATE_NS)
            gone = keeping.end([kept], [round], process.now_ns())
            lease = kept()
            if lease is not None and lease._status is None:
                process.judge.on_validity(process, lease)
            for each, _ in gone:
                self._report(each, "lost: expired or taken by another")

    def _report(self, kept: Validity, reason: str) -> None:
        lease = kept()
        if lease is None:
            return
        kept.lose(LeaseLostError(lease.resource, reason))
        self._process.judge.on_told(self._process, lease)
