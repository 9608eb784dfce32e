"""The base of the blocking and the awaitable FastRedlock: all but the waiting."""

from __future__ import annotations

from .._core import Operation, Round, Vote, now_ns
from .._options.keys import encode_resource, encode_resources, encode_token
from .._options.settings import Settings, checked_fence
from .._reports.health import MasterHealth, health_of
from .._reports.stats import Stats
from .._reports.votes import Resource, connection_votes
from ..errors import QuorumUnreachableError
from .driver import refuse_pickling

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Concatenate, ParamSpec

    from .driver import BaseDriver

    Options = ParamSpec("Options")
    Init = Callable[Concatenate[Any, Options], None]

INSPECT = int(Operation.INSPECT)


def with_options_of(
    init: Init[Options],
) -> Callable[[Callable[..., None]], Init[Options]]:
    """Return a decorator: the function has the options of `init`, in help() as well.

    Their types too, which dependency injection reads by `typing.get_type_hints`.
    """

    def with_options(function: Callable[..., None]) -> Init[Options]:
        function.__wrapped__ = init  # type: ignore[attr-defined]
        function.__annotations__ = init.__annotations__
        return function

    return with_options


class BaseLocks:
    """Hold the driver of one set of masters; see `FastRedlock`."""

    __slots__ = ("__weakref__", "_driver")

    _driver: BaseDriver
    _new_driver: type[BaseDriver]

    @with_options_of(Settings.__init__)
    def __init__(self, *masters: Any, **options: Any) -> None:
        self._driver = self._new_driver(Settings(*masters, **options))

    def health(self) -> tuple[MasterHealth, ...]:
        """Return what is known of each master, in configured order; does not block."""
        return health_of(self._driver.engine)

    def stats(self) -> Stats:
        """Return the counters since this FastRedlock was made; does not block."""
        return Stats.of(self._driver.engine)

    __reduce__ = refuse_pickling

    def __repr__(self) -> str:
        return f"<FastRedlock {', '.join(self._driver.engine.master_names)}>"

    # --- rounds to run ----------------------------------------------------------------

    def _adopted(
        self,
        resource: Resource,
        token: bytes | str,
        ttl: float | None,
        fence: int | None,
    ) -> Round:
        engine, settings = self._driver.engine, self._driver.settings
        terms = settings.default_terms if ttl is None else settings.terms(ttl)
        token, fence = encode_token(token), checked_fence(fence)
        if isinstance(resource, tuple):
            keys = encode_resources(resource)
            return engine.new_adopted(keys, token, terms, fence)
        return engine.new_adopted(encode_resource(resource), token, terms, fence)

    def _inspection(self, resource: str | bytes | None) -> Round:
        engine, settings = self._driver.engine, self._driver.settings
        key = encode_resource(settings.resource if resource is None else resource)
        return engine.new_round(INSPECT, key, b"-", settings.default_terms)

    def _check_connected(self, began_ns: int) -> None:
        votes = connection_votes(self._driver.engine)
        ready = [vote for vote in votes if vote.vote is Vote.GRANTED]
        if len(ready) < len(votes) // 2 + 1:
            resource, elapsed = self._driver.settings.resource, now_ns() - began_ns
            raise QuorumUnreachableError(resource, votes, 1, elapsed / 1e9)
