"""A thread that takes locks by the blocking client, in every way it has."""

from __future__ import annotations

import time

from fastredlock import AcquireError, FastRedlock, FastRedlockError, Lease
from fastredlock.errors import InternalError, LeaseLostError, NotExtendedError

from .clients import TTL
from .habits import Habits, name_of
from .ledger import Hold, Ledger
from .losses import Harming
from .report import Report

CONNECTING = 1.0  # s; what a call may wait for connections
LOOK = 0.05  # s; between two looks at a lease that is kept


class Thread:
    """One thread's life."""

    def __init__(
        self, locks: FastRedlock, ledger: Ledger, report: Report, habits: Habits,
        name: str,
    ) -> None:  # fmt: skip
        self._locks = locks
        self._ledger = ledger
        self._report = report
        self._habits = habits
        self._mine = f"own:{name}"
        self._held: list[Lease] = []

    def live(self) -> None:
        """Take and give back until the process ends."""
        while self._goes_on():
            pass

    def _goes_on(self) -> bool:
        try:
            if not getattr(self, f"_{self._habits.call()}")():
                time.sleep(self._habits.pause())
        except (AcquireError, LeaseLostError):
            time.sleep(self._habits.pause())
        except InternalError:
            self._report.error()
        except FastRedlockError:
            if not self._report.is_closing.is_set():
                self._report.error()
            for lease in self._held:  # closed before they could be released
                self._report.say("held", lease.token.decode())
            return False
        except Exception:
            self._report.error()
        return not self._report.is_closing.is_set()

    def _own(self) -> bool:
        # Nobody else wants it: if another's key is there, that is one of ours.
        with self._report.timed("acquire", CONNECTING):
            lease = self._locks.acquire(self._mine, timeout=0)
        if lease is None:
            self._report.say("blocked")
            return False
        return self._use(lease, ())

    def _acquire(self) -> bool:
        resource, timeout = self._habits.wanted(), self._habits.timeout()
        with self._report.timed("acquire", timeout + CONNECTING):
            lease = self._locks.acquire(name_of(resource), timeout=timeout)
        return lease is not None and self._use(lease, (resource,))

    def _lock(self) -> bool:
        resource = self._habits.wanted()
        with self._locks.lock(name_of(resource), timeout=0.3) as lease:
            hold = Hold(self._ledger, (resource,), lease.remaining)
            self._work(lease, hold)
            hold.end()
        return True

    def _keep(self) -> bool:
        resource, timeout = self._habits.resource(), self._habits.timeout()
        told = Harming(self._report)
        with self._report.timed("acquire", timeout + CONNECTING):
            lease = self._locks.acquire(
                name_of(resource), timeout=timeout, keep_alive=True, on_lost=told
            )
        if lease is None:
            return False
        self._held = [lease]
        hold = told.hold = Hold(self._ledger, (resource,), lease.remaining)
        self._work_while_kept(lease, hold)
        hold.end()
        with self._report.timed("release", CONNECTING):
            lease.release()
        return True

    def _keep_lock(self) -> bool:
        resource, told = self._habits.resource(), Harming(self._report)
        lock = self._locks.lock(
            name_of(resource), timeout=0.3, keep_alive=60, on_lost=told
        )
        with lock as lease:
            hold = told.hold = Hold(self._ledger, (resource,), lease.remaining)
            self._work_while_kept(lease, hold)
            hold.end()
        return True

    def _slot(self) -> bool:
        wanted, timeout = self._habits.semaphore(), self._habits.timeout()
        with self._report.timed("acquire", timeout + CONNECTING):
            lease = self._locks.acquire(
                wanted.name, permits=wanted.permits, timeout=timeout
            )
        if lease is None:
            return False
        return self._use(lease, (wanted.number(lease.slot),))

    def _semaphore(self) -> bool:
        wanted = self._habits.semaphore()
        block = self._locks.semaphore(wanted.name, wanted.permits, timeout=0.3)
        with block as lease:
            number = wanted.number(lease.slot)
            hold = Hold(self._ledger, (number,), lease.remaining)
            self._work(lease, hold)
            hold.end()
        return True

    def _keep_semaphore(self) -> bool:
        wanted, told = self._habits.semaphore(), Harming(self._report)
        block = self._locks.semaphore(
            wanted.name, wanted.permits, timeout=0.3, keep_alive=True, on_lost=told
        )
        with block as lease:
            hold = told.hold = Hold(
                self._ledger, (wanted.number(lease.slot),), lease.remaining
            )
            self._work_while_kept(lease, hold)
            hold.end()
        return True

    def _work_while_kept(self, lease: Lease, hold: Hold) -> None:
        ends = time.monotonic() + self._habits.kept_work()
        while time.monotonic() < ends and not hold.look(lease.lost.is_set):
            lease.lost.wait(LOOK)

    def _all(self) -> bool:
        resources = self._habits.several(3)
        names = [name_of(each) for each in resources]
        with self._report.timed("acquire_all", CONNECTING):
            lease = self._locks.acquire_all(names, timeout=0)
        return lease is not None and self._use(lease, resources)

    def _each(self) -> bool:
        resources = self._habits.several(12)
        with self._report.timed("acquire_each", CONNECTING):
            leases = self._locks.acquire_each([name_of(each) for each in resources])
        self._held = [lease for lease in leases if lease is not None]
        holds = [
            Hold(self._ledger, (resource,), lease.remaining)
            for resource, lease in zip(resources, leases, strict=True)
            if lease is not None
        ]
        time.sleep(self._habits.work())
        if self._habits.extends():
            with self._report.timed("extend_each", CONNECTING):
                lefts = self._locks.extend_each(self._held, TTL)
            for hold, left in zip(holds, lefts, strict=True):
                hold.shorten() if left is None else hold.renew()
            time.sleep(self._habits.work())
        for hold in holds:
            hold.end()
        with self._report.timed("release_each", CONNECTING):
            self._locks.release_each(leases)
        return bool(holds)

    def _use(self, lease: Lease, resources: tuple[int, ...]) -> bool:
        self._held = [lease]
        hold = Hold(self._ledger, resources, lease.remaining)
        self._work(lease, hold)
        hold.end()
        with self._report.timed("release", CONNECTING):
            lease.release()
        return True

    def _work(self, lease: Lease, hold: Hold) -> None:
        work = self._habits.work()
        time.sleep(work)
        if self._habits.extends():
            try:
                with self._report.timed("extend", CONNECTING):
                    lease.extend(TTL)
                hold.renew()
            except (LeaseLostError, NotExtendedError):
                hold.shorten()
            time.sleep(work)
