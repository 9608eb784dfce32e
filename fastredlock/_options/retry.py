"""How long to wait between two attempts: numbers in, a number out."""

from __future__ import annotations

import sys
from math import nan
from typing import Any, NoReturn

from .._reports.votes import shown
from ..errors import ConfigurationError

LONGEST_DELAY = 0.25  # s; a waiter loses no more when a lock is released
LONGEST_MEAN_DELAY = 0.1  # s; ten tries a second are little work for a server
SHORTEST_ROUND_TRIP = 1e-4  # s; so that a unix socket is not polled without pause
GROWTH = 1.5  # the next delay is at most half of the time waited so far
LONGEST_WAIT = 7200  # s; twice the longest delay that can be given
UNREACHABLE_DELAY = 0.15  # s; a server that restarts needs about that long


def number_of(value: object) -> float:
    """Return a real number as an int or a float; NaN of any other value.

    Any real number will do: of numpy, a Fraction, a Decimal. True and False are none.
    """
    found = type(value)  # in most calls one of these two, which is a third of the time
    if found is float or found is int:
        return value  # type: ignore[return-value]
    return converted(value)


def converted(value: object) -> float:
    """Return a number of another type as a float; see `number_of`."""
    # Whoever made such a number has imported these; we never import in a call.
    real = getattr(sys.modules.get("numbers"), "Real", (float, int))
    decimal = getattr(sys.modules.get("decimal"), "Decimal", ())
    if isinstance(value, bool) or not isinstance(value, (real, decimal)):
        return nan
    try:
        return float(value)
    except (OverflowError, ValueError):  # beyond a float's range; a signalling NaN
        return nan


def refused(name: str, value: object, allowed: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={value!r}: allowed is {allowed}")


def refused_type(name: str, value: object, allowed: str) -> ConfigurationError:
    found = f"{name} of type {type(value).__name__}"
    return ConfigurationError(f"{found}: allowed is {allowed}")


def refused_number(name: str, value: object, allowed: str) -> ConfigurationError:
    number = number_of(value)
    none = "" if number == number else "no number; "
    return ConfigurationError(f"{name}={value!r}: {none}allowed is {allowed}")


def number_in(name: str, value: object, low: float, high: float, allowed: str) -> float:
    number = number_of(value)
    if not low <= number <= high:  # NaN compares as False
        raise refused_number(name, value, allowed)
    return number


def delay_of(retry: Retry, delay: object) -> float:
    """Return the delay (s) that a Retry, or a subclass of it, returned, as a float."""
    seconds = number_of(delay)
    if not 0 <= seconds <= LONGEST_WAIT:
        raise ConfigurationError(
            f"{type(retry).__name__} gave a delay of {delay!r}: allowed is 0 to "
            f"{LONGEST_WAIT} s"
        )
    return float(seconds)


class Retry:
    """Define how long an acquire waits between attempts; frozen, no counters inside.

    `delay` (s, default None): mean time between attempts. None means three round trips
    as measured, then half as long again each time up to 0.1 s: the first retry is
    quick, and many waiters do not keep the servers busy.
    `jitter` (0..1, default 0.75): the delay is drawn from `delay * (1 ± jitter)`;
    without it, clients that collided once would collide again.
    `unreachable_tries` (default 3): after so many rounds in a row that fewer than a
    quorum could answer, acquire raises. None: not before its timeout is over.
    """

    __slots__ = ("delay", "jitter", "unreachable_tries")

    delay: float | None
    jitter: float
    unreachable_tries: int | None

    def __init__(
        self,
        delay: float | None = None,
        jitter: float = 0.75,
        unreachable_tries: int | None = 3,
    ) -> None:
        if delay is not None:
            delay = number_in("delay", delay, 0, 3600, "None or 0 to 3600 s")
        if unreachable_tries is not None and not (
            type(unreachable_tries) is int and unreachable_tries >= 1
        ):
            allowed = "1 or more, or None (until the timeout)"
            raise refused("unreachable_tries", unreachable_tries, allowed)
        spread = number_in("jitter", jitter, 0, 1, "0 to 1")
        object.__setattr__(self, "delay", delay)
        object.__setattr__(self, "jitter", spread)
        object.__setattr__(self, "unreachable_tries", unreachable_tries)

    @property
    def waits_in_turn(self) -> bool:
        """Whether callers queue, instead of trying again after delays of their own."""
        return self.delay is None and type(self).after_taken is Retry.after_taken

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

    def _gives_up(self, tries: int, engine: Any, round: Any) -> bool:
        """Return whether so many rounds in a row, and the last of them, are enough."""
        return self.unreachable_tries is not None and tries >= self.unreachable_tries

    def _spread(self, mean: float, draw: float) -> float:
        longest = LONGEST_DELAY if self.delay is None else 2 * self.delay
        return min(mean * (1 + self.jitter * (2 * draw - 1)), longest)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"Retry is frozen: make a new one to change {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Retry is frozen: {name} cannot be deleted")

    def __reduce__(self) -> tuple[type[Retry], tuple[float | None, float, int | None]]:
        return Retry, (self.delay, self.jitter, self.unreachable_tries)

    @shown
    def __repr__(self) -> str:
        return (
            f"Retry(delay={self.delay!r}, jitter={self.jitter!r}, "
            f"unreachable_tries={self.unreachable_tries!r})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())
