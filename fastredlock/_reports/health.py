"""The health of the masters, for people: as each connection has seen its server."""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from .._core import Engine, MasterState, ServerClock, ServerInfo


class MasterHealth(
    namedtuple(
        "MasterHealth",
        "master state version run_id role uptime policy round_trip clock_step "
        "last_error warnings",
    )
):
    """Hold the state of one master; None where the server did not report it.

    `state` of the connection; `version`, `run_id`, `role` and `policy`
    (maxmemory-policy) as the server gave them at the last connect; `uptime` (s) at that
    moment; `round_trip` (s): the median of its last replies; `clock_step` (s): the last
    jump of its clock that was seen, 0.0 if none; `last_error`: why it is not connected,
    or why its last connection ended; `warnings`: settings of it that can lose locks.
    """

    __slots__ = ()

    master: str
    state: MasterState
    version: str | None
    run_id: str | None
    role: str | None
    uptime: int | None
    policy: str | None
    round_trip: float | None
    clock_step: float
    last_error: str | None
    warnings: tuple[str, ...]


def health_of(engine: Engine) -> tuple[MasterHealth, ...]:
    """Return one MasterHealth per configured master, in that order."""
    warned = list(engine.warnings)
    return tuple(
        _health(*known, tuple(text for name, text in warned if name == known[0]))
        for known in engine.health()
    )


def _health(
    name: str,
    state: MasterState,
    error: str,
    server_info: ServerInfo,
    clock: ServerClock,
    round_trips_us: list[int],
    warnings: tuple[str, ...],
) -> MasterHealth:
    middle = round_trips_us[len(round_trips_us) // 2] / 1e6 if round_trips_us else None
    return MasterHealth(
        master=name,
        state=state,
        version=server_info.version,
        run_id=server_info.run_id,
        role=server_info.role,
        uptime=server_info.uptime_s,
        policy=server_info.policy,
        round_trip=middle,
        clock_step=clock.step_ns / 1e9,
        last_error=error or None,
        warnings=warnings,
    )
