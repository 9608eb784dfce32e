"""How long to wait between two attempts: numbers in, a number out."""

from __future__ import annotations

from .errors import ConfigurationError

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from typing import Any, NoReturn

LONGEST_DELAY = 0.25  # s; what a waiter loses at most when a lock is released
LONGEST_MEAN_DELAY = 0.1  # s; ten tries a second are little work for a server
SHORTEST_ROUND_TRIP = 1e-4  # s; so that a unix socket is not polled without pause
GROWTH = 1.5  # the next delay is at most half of what has been waited so far
UNREACHABLE_DELAY = 0.15  # s; a server that restarts needs about that long


def is_number(value: object) -> bool:
    """Whether a value is a plain number of seconds; True and False are not."""
    kind = type(value)  # in most calls one of these two, which is a third of the time
    if kind is float or kind is int:
        return True
    return isinstance(value, (int, float)) and kind is not bool


class Retry:
    """Say how long an acquire waits between attempts; frozen, no counters inside.

    `delay` (s, default None): mean time between attempts. None means three round trips
    as measured, then half as long again each time up to 0.1 s: the first retry is
    quick, and a crowd of waiters does not keep the servers busy.
    `jitter` (0..1, default 0.75): the delay is drawn from `delay * (1 ± jitter)`;
    without it, clients that collided once would collide again.
    `unreachable_tries` (default 3): after so many rounds in a row that fewer than a
    quorum could answer, acquire raises.
    """

    __slots__ = ("delay", "jitter", "unreachable_tries")

    delay: float | None
    jitter: float
    unreachable_tries: int

    def __init__(
        self,
        delay: float | None = None,
        jitter: float = 0.75,
        unreachable_tries: int = 3,
    ) -> None:
        if delay is not None and not (is_number(delay) and 0 <= delay <= 3600):
            raise ConfigurationError(f"delay={delay!r}: allowed is None or 0 to 3600 s")
        if not (is_number(jitter) and 0 <= jitter <= 1):
            raise ConfigurationError(f"jitter={jitter!r}: allowed is 0 to 1")
        if not (type(unreachable_tries) is int and unreachable_tries >= 1):
            raise ConfigurationError(
                f"unreachable_tries={unreachable_tries!r}: allowed is 1 or more"
            )
        object.__setattr__(self, "delay", delay)
        object.__setattr__(self, "jitter", jitter)
        object.__setattr__(self, "unreachable_tries", unreachable_tries)

    def after_taken(self, attempts: int, round_trip: float, draw: float) -> float:
        """Return the delay (s) after so many attempts that found the resource taken.

        `round_trip` in s as measured; `draw` in 0..1 picks the point of the range.
        """
        if self.delay is not None:
            return self._spread(self.delay, draw)
        first = 3 * max(round_trip, SHORTEST_ROUND_TRIP)
        grown = first * GROWTH ** min(attempts - 1, 40)
        return self._spread(min(grown, LONGEST_MEAN_DELAY), draw)

    def after_unreachable(self, draw: float) -> float:
        """Return the delay (s) after a round that too few masters could answer."""
        if self.delay is not None:
            return self._spread(self.delay, draw)
        return self._spread(UNREACHABLE_DELAY, draw)

    def _spread(self, mean: float, draw: float) -> float:
        longest = LONGEST_DELAY if self.delay is None else 2 * self.delay
        return min(mean * (1 + self.jitter * (2 * draw - 1)), longest)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"Retry is frozen: make a new one to change {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Retry is frozen: {name} cannot be deleted")

    def __reduce__(self) -> tuple[type[Retry], tuple[float | None, float, int]]:
        return Retry, (self.delay, self.jitter, self.unreachable_tries)

    def __repr__(self) -> str:
        return (
            f"Retry(delay={self.delay!r}, jitter={self.jitter!r}, "
            f"unreachable_tries={self.unreachable_tries!r})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())
