"""The leases that a client still holds: for `close(release=True)`."""

from __future__ import annotations

from gc import get_referrers
from typing import TypeVar

from .driver import BaseDriver
from .lease import BaseLease

AnyLease = TypeVar("AnyLease", bound=BaseLease)


def held_leases(driver: BaseDriver, kind: type[AnyLease]) -> list[AnyLease]:
    """Return the leases of a driver that were not released, and may still be valid.

    No lease is registered anywhere: that would make each of them larger, and its
    acquire slower, for one call at the end of a program. But each refers to its driver,
    and the collector of CPython knows all that refer to an object: it looks at every
    object of the program, some 30 ms for a million. A lease that nobody refers to any
    more is not among them, nor is one from before `gc.freeze()`.
    """
    return [
        lease
        for lease in get_referrers(driver)
        if isinstance(lease, kind) and lease._driver is driver and is_held(lease)
    ]


def is_held(lease: BaseLease) -> bool:
    """Return whether it is to be released: not a parent's, nor one merely adopted."""
    return (
        lease._status is None
        and lease._round.generation == lease._driver.fork_generation()
        and not lease._is_adopted()
    )
