"""A model of the numbers of grants: three masters, clients, late messages; all of it.

Every order of events is tried, breadth first, so the first violation is a shortest one.
What it shows, and where it stops: README.md. The rules are those of
src_cython/round/fencing.pyx; each can be left out.

A state is (masters, clients, largest number granted, time, restarts left). A master is
(round whose key stands, its last number, per client (messages on their way, vote)): it
stands with the others of its kind in order, for they are alike. A client is (phase,
number of its round, F, its last proposal or number, how far its clock is off).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

IDLE, OPEN, WRITING, HELD = range(4)
SET, WRITE, RELEASE = "SET", "WRITE", "RELEASE"
NONE, REFUSED = 0, -1  # votes; above 0: the number that a master is known to have
FREE = -1, 0  # in the place of the round whose key stands
QUORUM = 2
OUTAGE = 100  # for how long a restart takes, by all clocks; larger than any count here

Master = tuple[tuple[int, int], int, tuple[Any, ...]]
Client = tuple[int, int, int, int, int]
State = tuple[tuple[Master, ...], tuple[Client, ...], int, int, int]


class Rules(NamedTuple):
    """What a run leaves out; the first field of each is the rule as it ships."""

    writes: bool = True  # F is written where it is less
    awaits: bool = True  # ...and confirmed by a quorum, or the round is lost
    compares: bool = True  # ...only where the token stands
    takes_largest: bool = True  # F is the largest that a quorum answered
    counts: bool = True  # a master answers one more than its last number
    proposes: bool = True  # ...and the clock of the client at the least
    remembers: bool = True  # ...which never goes back in one client


class World(NamedTuple):
    """Who takes part, and what goes wrong."""

    clocks: tuple[int, ...] = (0, 0)  # of each client, against the true time
    rounds: int = 1  # that each of them begins at the most
    restarts: int = 0  # of single masters, which come back empty
    steps_back: int = 0  # by which a client's clock may be set back, once
    first: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)  # what masters may have


class Found(NamedTuple):
    states: int
    trace: tuple[str, ...]  # of a violation, the shortest; empty: there is none
    violation: str


class Violation(Exception):  # noqa: N818 - it is what we look for
    """Say that a number did not grow."""


class Model:
    """All that may happen next, in a world, by some rules."""

    def __init__(self, world: World, rules: Rules) -> None:
        self.world = world
        self.rules = rules

    def starts(self) -> Iterator[State]:
        """Yield the first states: nothing stands, nothing is under way.

        The masters have some numbers, told from the time; the largest that was granted
        is one that a quorum has, as large as that allows. A client alone had that one.
        """
        clocks, restarts = self.world.clocks, self.world.restarts
        paths = (((), NONE),) * len(clocks)
        for numbers in self.world.first:
            masters = tuple((FREE, OUTAGE + number, paths) for number in numbers)
            most = sorted(numbers)[1] + OUTAGE
            last = most if len(clocks) == 1 else 0
            clients = tuple((IDLE, 0, 0, last, clock) for clock in clocks)
            yield masters, clients, most, OUTAGE, restarts

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield each step, and the state that it leads to."""
        masters, clients, *_ = state
        for c, (phase, number, *_) in enumerate(clients):
            if phase == IDLE and number < self.world.rounds:
                yield f"{name(c, number + 1)} begins", self._begin(state, c)
            if phase in (OPEN, WRITING):
                yield f"{name(c, number)} gives up", self._lose(state, c)
            if phase == HELD:
                yield f"{name(c, number)} releases", self._lose(state, c)
                yield f"{name(c, number)} is over", self._idle(state, c)
            if phase == IDLE and self.world.steps_back and self._is_first(clients[c]):
                yield f"the clock of {'ABC'[c]} is set back", self._set_back(state, c)
        seen = set()
        for m, master in enumerate(masters):
            if master in seen:  # alike: the same happens
                continue
            seen.add(master)
            yield from self._steps_of_master(state, m)

    def _steps_of_master(self, state: State, m: int) -> Iterator[tuple[str, State]]:
        masters, clients, _, _, restarts = state
        key, _, paths = masters[m]
        for c, (queue, _) in enumerate(paths):
            if queue:
                yield from self._deliver(state, m, c)
        if key != FREE and not is_under_way(clients, key):
            text = f"{name(*key)}'s key expires at {m + 1}"
            yield text, with_master(state, m, (FREE, *masters[m][1:]))
        # The restart guard: it votes again when every round from before is over.
        if restarts and all(phase == IDLE for phase, *_ in clients):
            empty = (FREE, 0, (((), NONE),) * len(clients))
            after = with_master(state, m, empty)
            after = *after[:3], state[3] + OUTAGE, restarts - 1
            yield f"master {m + 1} restarts empty", after

    # --- a client ---------------------------------------------------------------------

    def _begin(self, state: State, c: int) -> State:
        masters, clients, most, time, restarts = state
        _, number, _, last, clock = clients[c]
        proposal = time + clock if self.rules.proposes else 0
        if self.rules.remembers:
            proposal = max(proposal, last + 1 if self.rules.proposes else 0)
        client = (OPEN, number + 1, 0, max(last, proposal), clock)
        sent = tuple(
            with_path(
                master, c, ((*master[2][c][0], (SET, number + 1, proposal)), NONE)
            )
            for master in masters
        )
        return sent, put(clients, c, client), most, time, restarts

    def _idle(self, state: State, c: int) -> State:
        _, number, _, last, clock = state[1][c]
        clients = put(state[1], c, (IDLE, number, 0, last, clock))
        masters = tuple(
            with_path(master, c, (master[2][c][0], NONE)) for master in state[0]
        )
        return masters, clients, *state[2:]

    def _lose(self, state: State, c: int) -> State:
        # Rolled back, or released: behind whatever is under way to each master.
        number = state[1][c][1]
        masters, *rest = self._idle(state, c)
        sent = tuple(
            with_path(master, c, ((*master[2][c][0], (RELEASE, number, 0)), NONE))
            for master in masters
        )
        return (sent, *rest)  # type: ignore[return-value]

    def _is_first(self, client: Client) -> bool:
        return client[4] > -self.world.steps_back

    def _set_back(self, state: State, c: int) -> State:
        client = (*state[1][c][:4], -self.world.steps_back)
        return state[0], put(state[1], c, client), *state[2:]

    # --- a master ---------------------------------------------------------------------

    def _deliver(self, state: State, m: int, c: int) -> Iterator[tuple[str, State]]:
        master = state[0][m]
        queue, vote = master[2][c]
        (kind, number, value), rest = queue[0], queue[1:]
        key, fence, said = self._execute(master, (c, number), kind, value)
        after = with_path((key, fence, master[2]), c, (rest, vote))
        text = f"{kind} of {name(c, number)} at {m + 1}: {told(kind, said)}"
        unheard = with_master(state, m, after)
        phase, current, *_ = state[1][c]
        if kind == RELEASE or current != number or phase not in (OPEN, WRITING):
            yield text, unheard
            return
        yield f"{text}, unheard", unheard
        yield text, self._hear(unheard, m, c, kind, said)

    def _execute(
        self, master: Master, ours: tuple[int, int], kind: str, value: int
    ) -> tuple[Any, int, int]:
        key, fence, _ = master
        if kind == RELEASE:
            return (FREE if key == ours else key), fence, 0
        if kind == SET:
            if key != FREE:
                return key, fence, REFUSED
            given = max(fence + 1 if self.rules.counts else 1, value)
            return ours, given, given
        if self.rules.compares and key != ours:
            return key, fence, REFUSED
        return key, max(fence, value), value

    def _hear(self, state: State, m: int, c: int, kind: str, said: int) -> State:
        masters, clients, *rest = state
        master = masters[m]
        queue = master[2][c][0]
        phase, number, needed, last, clock = clients[c]
        if phase == WRITING and kind == SET and 0 < said < needed:
            queue = (*queue, (WRITE, number, needed))
        masters = put(masters, m, with_path(master, c, (queue, said)))
        votes = [each[2][c][1] for each in masters]
        granted = [vote for vote in votes if vote > 0]
        if len(granted) + votes.count(NONE) < QUORUM:
            return self._lose((masters, clients, *rest), c)  # type: ignore[arg-type]
        if phase == OPEN and len(granted) >= QUORUM:
            needed = max(granted) if self.rules.takes_largest else min(granted)
            phase = WRITING
            if self.rules.writes:
                masters = tuple(
                    self._asked(each, c, number, needed) for each in masters
                )
        client = (phase, number, needed, last, clock)
        state = masters, put(clients, c, client), *rest  # type: ignore[assignment]
        if phase == WRITING and self._is_won(granted, needed):
            return self._win(state, c, needed)
        return state

    def _asked(self, master: Master, c: int, number: int, needed: int) -> Master:
        queue, vote = master[2][c]
        # With the rule left out that the token is compared, all are written to.
        if vote >= needed or (vote <= 0 and self.rules.compares):
            return master
        return with_path(master, c, ((*queue, (WRITE, number, needed)), vote))

    def _is_won(self, granted: list[int], needed: int) -> bool:
        if not (self.rules.writes and self.rules.awaits):
            return len(granted) >= QUORUM
        return sum(vote >= needed for vote in granted) >= QUORUM

    def _win(self, state: State, c: int, fence: int) -> State:
        masters, clients, most, time, restarts = state
        _, number, _, last, clock = clients[c]
        others = [phase for i, (phase, *_) in enumerate(clients) if i != c]
        if HELD in others:
            raise Violation(f"{name(c, number)} and another hold the lock")
        if fence <= most:
            raise Violation(f"{name(c, number)} has {fence}, and {most} was before it")
        masters = tuple(
            with_path(master, c, (master[2][c][0], NONE)) for master in masters
        )
        client = (HELD, number, 0, max(last, fence), clock)
        return masters, put(clients, c, client), fence, time, restarts


def search(world: World, rules: Rules = Rules(), most: int = 0) -> Found:  # noqa: B008
    """Try all orders of events, up to so many states; stop at the first violation."""
    model = Model(world, rules)
    found, at = list(model.starts()), 0
    came_from: dict[State, tuple[State, str] | None] = dict.fromkeys(found)
    seen = {in_order(state) for state in found}
    while at < len(found) and not (most and at >= most):
        state = found[at]
        at += 1
        try:
            for text, after in model.steps(state):
                kind = in_order(after)
                if kind not in seen:
                    seen.add(kind)
                    came_from[after] = state, text
                    found.append(after)
        except Violation as violation:
            return Found(at, trace_to(came_from, state), str(violation))
    return Found(at, (), "")


def trace_to(came_from: dict[State, Any], state: State) -> tuple[str, ...]:
    """Return the steps that lead to a state, and where they begin."""
    steps = ["...and the next reply"]
    while (step := came_from[state]) is not None:
        state = step[0]
        steps.append(step[1])
    first = ", ".join(str(fence) for _, fence, _ in state[0])
    return f"the masters have {first}; {state[2]} was granted", *reversed(steps)


def in_order(state: State) -> State:
    """Return the state with its masters in order: they are alike."""
    return tuple(sorted(state[0])), *state[1:]


def is_under_way(clients: tuple[Client, ...], key: tuple[int, int]) -> bool:
    """Whether a round is open, or its lease held: its keys stand."""
    phase, number, *_ = clients[key[0]]
    return phase != IDLE and number == key[1]


def put(of: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*of[:place], value, *of[place + 1 :])


def with_path(master: Master, c: int, path: tuple[Any, int]) -> Master:
    """Return a master with other messages and another vote of one client."""
    return master[0], master[1], put(master[2], c, path)


def with_master(state: State, m: int, master: Master) -> State:
    """Return the state with another master in one place."""
    return put(state[0], m, master), *state[1:]


def name(client: int, number: int) -> str:
    return f"{'ABC'[client]}{number}"


def told(kind: str, said: int) -> str:
    if kind == RELEASE:
        return "done"
    return "refused" if said == REFUSED else f"has {said}"
