"""The keeper of the awaitable FastRedlock: one timer of its loop, and no task."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..._core import AsyncioDriver, Batch, DriverFields, Round, fork_generation, now_ns
from ...errors import FastRedlockError
from .foreign_calls import Calls, log_error, log_warnings, make
from .keeper import LONGEST_SLEEP_NS, BaseKeeper
from .kept import Kept

CALLS_NS = 1_000_000  # of calls to foreign code, and then the loop has its turn


class LoopKeeper(BaseKeeper):
    """Renew in callbacks of one loop, and in the loop's thread alone.

    A loop that is closed runs no timer: what it kept runs out. In a forked child, and
    where another loop has taken the driver over, a timer that goes off does nothing.
    The driver refers to it only while something is kept.
    """

    __slots__ = (
        "_armed_ns",
        "_generation",
        "_is_calling",
        "_kept",
        "_rests",
        "_timer",
        "_under_way",
        "here",
    )

    def __init__(self, driver: DriverFields, here: AsyncioDriver) -> None:
        super().__init__(driver, Calls(), Calls())
        self.here = here
        self._generation = driver.fork_generation()
        self._timer: Any = None
        self._armed_ns = 0
        self._kept: set[Kept] = set()  # and not yet released
        self._under_way = 0  # batches
        self._is_calling = False
        self._rests = False  # from notes, not from losses

    def keep(self, kept: Kept) -> None:
        """Keep a lease from now on, or look at its times again."""
        self._keeping.add(kept, self._driver.now_ns())
        lease = kept()
        if lease is not None and lease._status is None:
            self._kept.add(kept)
        self._arm()

    def drop(self, kept: Kept) -> None:
        """Take note of a release; the last one ends the keeper, and its timer."""
        self._kept.discard(kept)
        if self._kept or self._under_way:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._driver.keeper is self:
            self._driver.keeper = None

    def _arm(self) -> None:
        next_ns = self._keeping.next_ns
        if next_ns is None:
            if self._under_way == 0 and self._driver.keeper is self:
                self._driver.keeper = None
            return
        now_ns = self._driver.now_ns()
        next_ns = min(next_ns, now_ns + LONGEST_SLEEP_NS)
        if self._timer is not None:
            if self._armed_ns <= next_ns:
                return
            self._timer.cancel()
        delay = max(next_ns - now_ns, 0) / 1e9
        self._timer = self.here.loop.call_later(delay, self._on_timer)
        self._armed_ns = next_ns

    def _on_timer(self) -> None:
        driver = self._driver
        self._timer = None
        if (
            driver is None
            or self._generation != driver.fork_generation()
            or driver.keeper is not self
        ):
            return
        now_ns = driver.now_ns()
        while (next_ns := self._keeping.next_ns) is not None and next_ns <= now_ns:
            renewals, rounds = self._due(now_ns)
            if renewals:
                self._renew(renewals, rounds, now_ns)
        self._arm()
        if self._notes:
            self._call()

    def _renew(self, renewals: list[Kept], rounds: list[Round], now_ns: int) -> None:
        ended = partial(self._on_ended, renewals, rounds)
        try:
            future = self._driver.submit(self.here, Batch(rounds))
        except FastRedlockError:  # closed
            self._give_up(renewals, now_ns)
            return
        self._under_way += 1
        if future.done():
            self.here.loop.call_soon(ended, future)
        else:
            future.add_done_callback(ended)

    def _on_ended(self, renewals: list[Kept], rounds: list[Round], _: object) -> None:
        driver = self._driver
        self._under_way -= 1
        if driver is None:
            return
        try:
            self._end(renewals, rounds)
            self._arm()
        except Exception as error:  # an exception would end in the loop's own code
            self._notes.append(log_error, error)
        if driver.engine.unlogged:
            self._notes.append(log_warnings, driver)
        if self._notes:
            self._call()

    def _call(self) -> None:
        """Have the loop make the calls, after all that is ready now."""
        if self._losses or not self._rests:
            self._call_soon()

    def _call_soon(self) -> None:
        if not self._is_calling:
            self._is_calling = True
            self.here.loop.call_soon(self._make_calls)

    def _make_calls(self) -> None:
        """Make calls for a short time, at least one: the loop goes on in between.

        What should end the program does, once `on_lost` was called of every loss.
        """
        self._is_calling = False
        if self._generation != fork_generation():
            return
        began_ns, took_ns, ending = now_ns(), 0, None
        while (
            ending is None
            and took_ns < CALLS_NS
            and (calls := self._losses or self._notes)
        ):
            ending = make(calls.take())
            took_ns = now_ns() - began_ns
        if ending is not None:
            self._losses.make_all()
        if self._losses:
            self._call_soon()
        elif self._notes and not self._rests:
            self._rests = True
            self.here.loop.call_later(took_ns / 1e9, self._end_rest)
        if ending is not None:
            raise ending

    def _end_rest(self) -> None:
        """Go on with notes, after as much time for renewals as the last ones took."""
        self._rests = False
        self._make_calls()
