"""Rounds without sockets, times without a clock.

A vote is one letter: G granted, T taken, F failed with the connection (nobody knows
what the master did), E failed by an error reply (it did nothing), S silent, P or .
pending.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from fastredlock import FastRedlock, Lease, ReleaseStatus, Retry
from fastredlock._core import (
    Batch,
    Engine,
    Operation,
    Permits,
    Round,
    Script,
    Scripts,
    Terms,
    Verdict,
    Vote,
)
from fastredlock._locking.attempt import attempts
from fastredlock._locking.driver import Driver
from fastredlock._options.masters import Endpoint
from fastredlock._options.settings import Settings
from tests.support.core import by_hand_fork

MS = 1_000_000  # ns
S = 1_000_000_000  # ns
VALIDITY_NS = 9_898 * MS  # of a ttl of 10 s
T0 = 10**18  # when every round of these tests is opened: after any real clock
TERMS = Terms(10_000, 102 * MS, 500 * MS)  # what a ttl of 10 s comes to
TOKEN = b"the-token-nobody-may-see"
WON, TAKEN = Verdict.WON, Verdict.TAKEN
UNREACHABLE, TOO_LATE, OPEN = Verdict.UNREACHABLE, Verdict.TOO_LATE, Verdict.OPEN
RELEASED, GONE = ReleaseStatus.RELEASED, ReleaseStatus.GONE
VOTES = {"G": Vote.GRANTED, "T": Vote.TAKEN, "F": Vote.FAILED, "E": Vote.FAILED}


def thorough(test: Callable[..., None]) -> Callable[..., None]:
    """Try many examples; a failure prints how to repeat it.

    There is no deadline: a loaded machine makes no example wrong.
    """
    tried = settings(deadline=None, max_examples=250, print_blob=True)(test)
    marked: Callable[..., None] = pytest.mark.slow(tried)
    return marked


def new_round(
    masters: int = 5, operation: Operation = Operation.ACQUIRE, terms: Terms = TERMS
) -> Round:
    """Make an opened round whose command was sent to every master."""
    round = Round(operation, b"orders:42", TOKEN, terms, masters)
    round.open(T0)
    for master in range(masters):
        round.on_sent(master)
    return round


def cast(round: Round, votes: str, at_ns: int = T0 + MS) -> Round:
    """Give the votes of master 0, 1, ... in this order; '.' is no answer."""
    for master, letter in enumerate(votes):
        if letter != ".":
            said = {"F": "connection lost", "E": "LOADING"}.get(letter)
            round.on_vote(master, VOTES[letter], said, letter != "F", at_ns)
    return round


def letters(round: Round) -> str:
    return "".join(
        "E" if vote is Vote.FAILED and elapsed_ms is not None else vote.name[0]
        for vote, _, elapsed_ms in round.votes()
    )


# --- histories of a round: what may happen, in any order -----------------------------


class Event(NamedTuple):
    """One thing that happens to a round: a letter of a vote, D deadline, C confirm."""

    letter: str
    master: int
    at_ns: int


class History(NamedTuple):
    """A round's masters and all that happens to them, in order of time."""

    masters: int
    terms: Terms
    events: list[Event]

    @property
    def quorum(self) -> int:
        return self.masters // 2 + 1

    @property
    def valid_until_ns(self) -> int:
        return T0 + self.terms.ttl_ms * MS - self.terms.drift_ns


class Step(NamedTuple):
    """One event, and the round as it stood before and after."""

    before: Verdict
    votes_before: str
    event: Event
    is_refused: bool
    after: Verdict
    votes_after: str
    may_hold: int
    closed_ns: int


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw histories of 1 to 7 masters, with second votes and late ones."""
    masters = draw(st.integers(1, 7))
    terms = Terms(draw(st.integers(0, 30)), draw(st.integers(0, 3)) * MS, 20 * MS)
    now_ns, events = T0, []
    # One number per event: hypothesis draws these ten times faster than tuples.
    numbers = st.integers(0, 20 * 7 * 4 - 1)
    for number in draw(st.lists(numbers, min_size=masters, max_size=24)):
        number, letter = divmod(number, 20)
        gap, master = divmod(number, 7)
        now_ns += (0, 1, MS, 5 * MS)[gap]
        events.append(Event("GGGGGGGGTTTTFFFEECCD"[letter], master % masters, now_ns))
    return History(masters, terms, events)


def play(history: History, operation: Operation = Operation.ACQUIRE) -> Iterator[Step]:
    """Let a history happen to a round, event by event."""
    round = new_round(history.masters, operation, history.terms)
    for event in history.events:
        before, votes_before, is_refused = round.verdict, letters(round), False
        try:
            happen(round, event)
        except RuntimeError:
            is_refused = True
        after = (round.verdict, letters(round), round.may_hold, round.closed_ns)
        yield Step(before, votes_before, event, is_refused, *after)


def happen(round: Round, event: Event) -> None:
    if event.letter == "D":
        round.on_deadline(event.at_ns)
    elif event.letter == "C":
        round.confirm(event.at_ns)
    else:
        is_definite = event.letter != "F"
        vote = VOTES[event.letter]
        round.on_vote(event.master, vote, None, is_definite, event.at_ns)


# --- an engine that is never connected, and locks whose answers are written down ------


def new_scripts() -> Scripts:
    """Make scripts that can be told apart in what is sent."""
    texts = {
        "extend": (b"the extend script", b"e"),
        "release": (b"the release script", b"d"),
        "inspect": (b"the inspect script", b"1"),
        "acquire_all": (b"the script that acquires all", b"2"),
        "extend_all": (b"the script that extends all", b"3"),
        "release_all": (b"the script that releases all", b"4"),
        "acquire_again": (b"the script that acquires again", b"5"),
    }
    return Scripts(
        {name: Script(source, digit * 40) for name, (source, digit) in texts.items()}
    )


def new_engine(
    masters: int = 3, connect_timeout_ns: int = S, tokens_are_given: bool = False
) -> Engine:
    """Make an engine; nothing in these tests connects it."""
    endpoints = [Endpoint(f"master{i}", 6379) for i in range(masters)]
    return Engine(
        endpoints, new_scripts(), connect_timeout_ns, tokens_are_given=tokens_are_given
    )


def attempts_of(
    engine: Engine,
    key: bytes | Permits,
    new_token: Callable[[], bytes],
    timeout: float | None = None,
    retry: Retry | None = None,
    began_ns: int = T0,
) -> Iterator[Round | float]:
    """Return the attempts of an acquire, of which nothing was run yet."""
    given = {"new_token": new_token, "retry": retry or Retry()}
    options = SimpleNamespace(terms=lambda ttl: TERMS, **given)
    driver: Any = SimpleNamespace(engine=engine, settings=options, entered={})
    times = {"ttl": None, "timeout": timeout, "began_ns": began_ns}
    resource = key.decode() if isinstance(key, bytes) else "key"
    call: Any = SimpleNamespace(resource=resource, encode=lambda _: key, **times)
    return attempts(driver, call)


class ScriptedDriver(Driver):
    """A driver that runs rounds as its ScriptedLocks say, and has their clock."""

    locks: "ScriptedLocks"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.runs_in_core = False

    def run(self, work: Round | Batch) -> None:
        for round in work.rounds if isinstance(work, Batch) else [work]:
            self.locks.run(round)

    def now_ns(self) -> int:
        return self.locks.now


@contextmanager
def in_child() -> Iterator[None]:
    """Count one fork more: what was made before is the parent's."""
    by_hand_fork(1)
    try:
        yield
    finally:
        by_hand_fork(-1)


class ScriptedLocks(FastRedlock):
    """A FastRedlock without servers: votes come from a list, the time from `now`.

    Each answer is the votes of one round, one letter per master; a round takes
    `took_ns`, one that the votes do not decide takes until its deadline.
    """

    _driver: ScriptedDriver
    _new_driver = ScriptedDriver

    def __init__(
        self, *answers: str, masters: int = 3, took_ns: int = 3 * MS, **options: object
    ) -> None:
        ports = range(1, masters + 1)
        super().__init__([("master", port) for port in ports], **options)  # type: ignore[arg-type]
        self._driver.locks = self
        self.answers = list(answers)
        self.took_ns = took_ns
        self.now = T0
        self.rounds: list[Round] = []
        self.meanwhile: Callable[[], object] | None = None

    def run(self, round: Round) -> None:
        self.rounds.append(round)
        round.open(self.now)
        for master in range(len(self._driver.engine.master_names)):
            round.on_sent(master)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.now += self.took_ns
        cast(round, self.answers.pop(0), self.now)
        if round.verdict is Verdict.OPEN:
            self.now = max(self.now, round.deadline_ns)
            round.on_deadline(self.now)
        round.confirm(self.now)


def taken(locks: FastRedlock, ttl: float | None = None) -> Lease:
    lease = locks.acquire("orders:42", ttl=ttl, timeout=0)
    assert lease is not None
    return lease


def seconds(ns: int) -> object:
    return pytest.approx(ns / 1e9, abs=1e-9)
