"""MemoryLocks: a FastRedlock whose masters and clock are in memory."""

from __future__ import annotations

from typing import Any

from .._core import DEFAULT_RESOURCE
from .._locking.locks import BaseLocks
from .._options.settings import Settings, settings_of_call
from ..client import FastRedlock
from ..errors import ConfigurationError
from ._driver import MemoryDriver
from ._masters import MemoryMasters


class MemoryLocks(FastRedlock):
    """Be a `FastRedlock` for tests: without servers, and with a clock that is moved.

    All calls and options are those of `FastRedlock`; the same engine counts the votes.
    `masters`: those of other MemoryLocks, to contend with them; the default is three of
    its own, with `auto_advance` as of `MemoryMasters`. A call without a timeout raises
    RuntimeError where nobody ever releases. For tests of one process: a forked child is
    refused.
    """

    __slots__ = ("masters",)

    def __init__(
        self,
        masters: MemoryMasters | None = None,
        resource: str | bytes = "fastredlock",
        *,
        auto_advance: bool = False,
        **options: Any,
    ) -> None:
        self.masters: MemoryMasters = masters_of(masters, auto_advance)
        settings = settings_of(self.masters, resource, options)
        self._driver = MemoryDriver(settings, self.masters._world)
        if settings.observer is not None:
            self._observe(settings.observer)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass: `MemoryMasters.advance`."""
        self.masters.advance(seconds)

    def lose(self, resource: str | bytes = DEFAULT_RESOURCE) -> None:
        """Delete a key on every master: `MemoryMasters.lose`."""
        self.masters.lose(named(self, resource))

    def steal(
        self, resource: str | bytes = DEFAULT_RESOURCE, *, ttl: float = 10.0
    ) -> bytes:
        """Let another client hold a resource: `MemoryMasters.steal`."""
        return self.masters.steal(named(self, resource), ttl=ttl)


def masters_of(masters: MemoryMasters | None, auto_advance: bool) -> MemoryMasters:
    """Return the masters that were given, or new ones."""
    if masters is None:
        return MemoryMasters(auto_advance=auto_advance)
    if not isinstance(masters, MemoryMasters):
        raise ConfigurationError(
            f"masters of type {type(masters).__name__}: allowed is MemoryMasters"
        )
    if auto_advance:
        raise ConfigurationError("auto_advance: give it to the MemoryMasters")
    return masters


def settings_of(
    masters: MemoryMasters, resource: str | bytes, options: dict[str, Any]
) -> Settings:
    """Return the checked settings: masters that no socket will ever reach."""
    urls = [f"redis://{server.name}" for server in masters._world.servers]
    return settings_of_call("MemoryLocks", (urls, resource), options)


def named(locks: BaseLocks, resource: str | bytes) -> str | bytes:
    """Return the resource, or the default one."""
    is_given = resource is not DEFAULT_RESOURCE
    return resource if is_given else locks._driver.settings.resource
