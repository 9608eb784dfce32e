"""The health of the masters, for people and for probes: what is known, or was asked."""

from math import inf
from typing import NamedTuple

from .._core import Engine, MasterState, Round, ServerClock, ServerInfo, Vote, now_ns
from .votes import MasterVote, quorum_value, votes_of

# An ACL that refuses the key of the question may allow the caller's keys; one that
# refuses the command does not (src_cython/protocol/handshake.pyx).
OF_COMMANDS = ("permissions to run the", "can't run this command")


class MasterHealth(NamedTuple):
    """Hold the state of one master; None if the server did not report it.

    `state` of the connection; `version`, `run_id`, `role` and `policy`
    (maxmemory-policy) as the server gave them at the last connect; `uptime` (s) at that
    moment; `round_trip` (s): the median of its last replies; `clock_step` (s): the last
    jump of its clock that was seen, 0.0 if none; `last_error`: why it is not connected,
    or why it does not vote, and for how long, or why its last connection ended and how
    long ago; `warnings`: settings of it that can lose locks. `votes`: whether its vote
    counts now, by its answer to `ping()`, or in `health()` by what is known. `votes_in`
    (s): how long the restart guard (`max_ttl`) still withholds its vote, None if it
    does not.
    """

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
    votes: bool
    votes_in: float | None


def health_of(engine: Engine) -> tuple[MasterHealth, ...]:
    """Return one MasterHealth per configured master, in that order."""
    warned, now = engine.warnings, now_ns()
    return tuple(_health(now, warned, *known) for known in engine.health())


def ping_of(engine: Engine, round: Round) -> tuple[MasterHealth, ...]:
    """Return the same, as each master has answered a PING round."""
    return tuple(
        health if is_yes(vote) else health._replace(votes=False, last_error=vote.text)
        for health, vote in zip(health_of(engine), votes_of(engine, round), strict=True)
    )


def outage_of(engine: Engine, now_ns: int) -> str:
    """Say for how long no quorum could be had; "" if there is one, or for 1 s."""
    ready = MasterState.READY
    until = quorum_value(
        [
            away_from_ns
            if away_from_ns and (state is not ready or now_ns < refused_until_ns)
            else inf
            for _, state, *_, refused_until_ns, _, away_from_ns, _ in engine.health()
        ],
        engine.electorate,
    )
    seconds = (now_ns - until) / 1e9 if until else 0
    return f"no quorum for {seconds:.0f} s" if seconds >= 1 else ""


def is_yes(vote: MasterVote) -> bool:
    """Return whether the answer to a ping is that of a master that votes."""
    if vote.vote is Vote.FAILED:
        text = vote.text or ""
        is_of_key = not any(words in text for words in OF_COMMANDS)
        return text.startswith("NOPERM") and is_of_key
    return vote.vote is not Vote.SILENT


def _health(
    now: int,
    warned: list[tuple[str, str]],
    name: str,
    state: MasterState,
    error: str,
    server_info: ServerInfo,
    clock: ServerClock,
    round_trips_us: list[int],
    is_silent: bool,
    votes_from_ns: int,
    refusal: str | None,
    refused_until_ns: int,
    lost_at_ns: int,
    away_from_ns: int,
    withheld: str | None,
) -> MasterHealth:
    middle = round_trips_us[len(round_trips_us) // 2] / 1e6 if round_trips_us else None
    is_ready = state is MasterState.READY
    is_refused = is_ready and now < refused_until_ns
    if is_refused:
        error = refusal or ""
    if withheld:  # it counts down
        error = withheld
    elif error and away_from_ns and (is_refused or not is_ready):
        error = f"{error} (for {(now - away_from_ns) / 1e9:.0f} s)"
    elif is_ready and error:
        error = f"{error} ({(now - lost_at_ns) / 1e9:.0f} s ago)"
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
        warnings=tuple(text for each, text in warned if each == name),
        votes=is_ready and not (is_silent or is_refused) and now >= votes_from_ns,
        votes_in=(votes_from_ns - now) / 1e9
        if is_ready and now < votes_from_ns
        else None,
    )
