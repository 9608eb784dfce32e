"""Scenarios of callers that wait for the lock once."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from time import monotonic_ns

from bench.contending import relay
from bench.contending.clients import ASYNCIO
from bench.contending.commands import commands_sent
from bench.contending.crew import Crew, new_key
from bench.contending.findings import Finding, exclusion, middle_of
from bench.contending.scene import Scene
from bench.contending.turns import Run, Window
from bench.harness.servers import free, hold

_HOLD = 1.0  # s, of a leader
_TTL = 1.0  # s, of a leader that is killed
_BEHIND_NS = 100_000_000  # the standby begins to wait so long after the grant
_LIMIT_NS = 20_000_000_000
_HERD = 100
_HERD_HOLD = 0.005
_SETTLE = 1.0  # s, in which the first tries of those who wait are over
_COUNTED = 2.0  # s


def standby(scene: Scene) -> list[Finding]:
    """A leader that releases after a second, and a standby in another process."""
    gaps: list[float] = []
    key = new_key()
    with ExitStack() as opened:
        leader, other = (
            opened.enter_context(closing(Crew(scene.urls, key=key))) for _ in range(2)
        )
        for _ in range(scene.repeats):
            _begin(leader, other, hold_seconds=_HOLD)
            released_ns = _whole(leader.finish()).turns[0].released_ns
            gaps.append((_grant_ns(other.finish()) - released_ns) / 1e6)
    text = "release to the standby's grant, p50"
    ours = middle_of(gaps)
    floor = middle_of(relay.gaps_ms(scene.urls, scene.repeats * _HOLD, _HOLD))
    return [
        Finding(text, ours, ",.2f", " ms", bound=0.5),
        Finding(
            "the floor (a message and a quorum of SETs), p50", floor, ",.2f", " ms"
        ),
        Finding("p50 / floor", ours / floor if ours is not None and floor else None),
    ]


def killed(scene: Scene) -> list[Finding]:
    """A leader that is killed. Its key expires a ttl after it asked, or a bit later."""
    gaps: list[float] = []
    key = new_key()
    with closing(Crew(scene.urls, key=key, ttl=_TTL)) as other:
        for _ in range(scene.repeats):
            with closing(Crew(scene.urls, key=key, ttl=_TTL)) as leader:
                window = _begin(leader, other, hold_seconds=60.0)
                _sleep_until(window.begin_ns + 2 * _BEHIND_NS)
                wanted_ns = leader.kill().turns[0].wanted_ns
                gap_ns = _grant_ns(other.finish()) - wanted_ns - int(_TTL * 1e9)
                gaps.append(gap_ns / 1e6)
    text = "expiry to the standby's grant"
    return [
        Finding(f"{text}, p50", middle_of(gaps), ",.1f", " ms", bound=5.0),
        Finding(f"{text}, longest", max(gaps), ",.1f", " ms"),
    ]


def waiting(scene: Scene) -> list[Finding]:
    """A hundred tasks that wait for a lock which another client holds."""
    with closing(Crew(scene.urls, ASYNCIO, callers=_HERD)) as crew:
        for url in scene.urls:
            hold(url, crew.key)
        try:
            window = crew.soon(min(_COUNTED, scene.seconds), lead=_SETTLE)
            crew.start(window, turns=1)
            sent = commands_sent(scene.urls, window)
        finally:
            for url in scene.urls:
                free(url, crew.key)
        run = _whole(crew.finish())
    busiest, mean = max(sent) / window.seconds, sum(sent) / window.seconds / len(sent)
    return [
        Finding("commands/s at the busiest master", busiest, ",.1f", bound=10.0),
        Finding("commands/s at each, mean", mean, ",.1f"),
        *exclusion([run]),
    ]


def herd(scene: Scene) -> list[Finding]:
    """A hundred tasks that come at once, and hold it once for 5 ms each.

    Beside a single task that takes it a hundred times: nobody has to wait then.
    """
    runs: list[Run] = []
    alone: list[Run] = []
    with (
        closing(Crew(scene.urls, ASYNCIO, callers=_HERD)) as crew,
        closing(Crew(scene.urls, ASYNCIO)) as single,
    ):
        for _ in range(scene.blocks):
            runs.append(_turns(crew, 1))
            alone.append(_turns(single, _HERD))
    holds = [
        sum(turn.released_ns - turn.granted_ns for turn in run.turns) / 1e9
        for run in runs
    ]
    ours, one = (middle_of([_seconds(run) for run in each]) for each in (runs, alone))
    return [
        Finding("until the last release", ours, ",.3f", " s", bound=0.54),
        Finding("of which it was held", middle_of(holds), ",.3f", " s"),
        Finding("a single task, a hundred times", one, ",.3f", " s"),
        Finding("herd / single task", ours / one if ours and one else None),
        *exclusion(runs),
    ]


def _turns(crew: Crew, turns: int) -> Run:
    """Have each caller take and hold the lock so many times."""
    window = _from(crew.soon(0.0, lead=0.0).begin_ns)
    crew.start(window, _HERD_HOLD, turns=turns)
    return _whole(crew.finish())


def _seconds(run: Run) -> float:
    """Return the time from the common start to the last release."""
    return (max(turn.released_ns for turn in run.turns) - run.window.begin_ns) / 1e9


def _begin(leader: Crew, other: Crew, *, hold_seconds: float) -> Window:
    """Have the leader take the lock, and the other one wait for it a bit later."""
    window = _from(leader.soon(0.0, lead=0.0).begin_ns)
    leader.start(window, hold_seconds, turns=1)
    other.start(_from(window.begin_ns + _BEHIND_NS), turns=1)
    return window


def _from(begin_ns: int) -> Window:
    return Window(begin_ns, begin_ns, begin_ns + _LIMIT_NS)


def _grant_ns(run: Run) -> int:
    return _whole(run).turns[0].granted_ns


def _whole(run: Run) -> Run:
    """Return the run of a crew whose processes all came to their end."""
    if run.notes:
        raise RuntimeError("; ".join(run.notes))
    return run


def _sleep_until(moment_ns: int) -> None:
    time.sleep(max(0, moment_ns - monotonic_ns()) / 1e9)
