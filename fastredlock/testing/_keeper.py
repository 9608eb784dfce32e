"""The keeper of leases in memory: it renews where the virtual clock has come so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import Batch, Round
from .._locking.driver import BaseDriver
from .._locking.keeper import BaseKeeper, Calls
from .._locking.validity import Kept
from ..errors import FastRedlockError

if TYPE_CHECKING:
    from ._client import Client

    UnderWay = tuple[list[Kept], list[Round], Batch]


class MemoryKeeper(BaseKeeper):
    """Keep the leases of one driver: no thread, no timer."""

    __slots__ = ("_client", "_under_way")

    def __init__(self, driver: BaseDriver, client: Client) -> None:
        super().__init__(driver, Calls(), Calls())
        self._client = client
        self._under_way: list[UnderWay] = []

    @property
    def next_ns(self) -> int | None:
        """When something is due; None: nothing is kept."""
        return self._keeping.next_ns

    def keep(self, kept: Kept) -> None:
        """Keep a lease from now on, or look at its times again."""
        self._keeping.add(kept, self._driver.now_ns())

    def drop(self, kept: Kept) -> None:
        """Take note of a release: it is dropped when the clock comes to it."""

    def step(self) -> bool:
        """Do what is due; return whether there was anything."""
        now_ns, did = self._driver.now_ns(), False
        while (next_ns := self._keeping.next_ns) is not None and next_ns <= now_ns:
            did = True
            renewals, rounds = self._due(now_ns)
            if renewals:
                self._renew(renewals, rounds, now_ns)
        ended = [each for each in self._under_way if each[2].is_finished]
        for each in ended:
            self._under_way.remove(each)
            self._end(each[0], each[1])
        if self._notes:
            self._call()
        return did or bool(ended)

    def _renew(self, renewals: list[Kept], rounds: list[Round], now_ns: int) -> None:
        batch = Batch(rounds)
        try:
            self._client.begin(batch)
        except FastRedlockError:  # closed
            self._give_up(renewals, now_ns)
            return
        self._under_way.append((renewals, rounds, batch))

    def _call(self) -> None:
        if self._make_calls not in self._client.world.calls:
            self._client.world.calls.append(self._make_calls)

    def _make_calls(self) -> None:
        ending = self._losses.make_all()
        ending = self._notes.make_all() or ending
        if ending is not None:
            raise ending
