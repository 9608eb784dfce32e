"""The masters of a run: what is done to them, and which keys stand on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import redis

from fastredlock.testing import LocalMasters

from .clients import TTL
from .schedule import BRIEF, Fault

UNDISTURBED = 2.0  # s; from then on a master has no excuse


class Standing(NamedTuple):
    """A key as a master shows it."""

    master: int
    key: bytes
    token: bytes
    left_ms: int


class Servers:
    """Five real masters that fail by schedule."""

    def __init__(self, masters: LocalMasters) -> None:
        self._masters = masters
        self._connections = [
            redis.Redis.from_url(url, protocol=2, socket_timeout=1.0)
            for url in masters.urls
        ]
        self._well_since = [time.monotonic()] * len(masters.urls)
        self._do: dict[str, Callable[[int], object]] = {
            "pause": masters.pause,
            "kill": masters.stop,
            "cut": self._cut,
            "forget": lambda i: self._connections[i].script_flush(),
            "flush": self._flush,
        }
        self._undo: dict[str, Callable[[int], object]] = {
            "pause": masters.resume,
            "kill": masters.start,
        }

    def _cut(self, i: int) -> None:
        self._connections[i].client_kill_filter(_type="normal", skipme=True)

    def _flush(self, i: int) -> None:
        for connection in self._connections:  # one alone breaks no quorum
            with suppress(redis.RedisError):
                connection.flushall()

    def strike(self, fault: Fault) -> None:
        if fault.kind not in BRIEF:
            self._well_since[fault.target] = float("inf")
        elif fault.kind == "cut":
            self._well_since[fault.target] = time.monotonic()
        with suppress(redis.RedisError, RuntimeError):
            self._do[fault.kind](fault.target)

    def heal(self, fault: Fault) -> None:
        with suppress(RuntimeError):  # killed while it was paused
            self._undo[fault.kind](fault.target)
        self._well_since[fault.target] = time.monotonic()

    def undisturbed(self) -> list[int]:
        now = time.monotonic()
        return [i for i, at in enumerate(self._well_since) if now - at > UNDISTURBED]

    def keys(self, masters: list[int]) -> list[Standing]:
        found = []
        for i in masters:
            with suppress(redis.RedisError):
                names = [
                    name
                    for name in self._connections[i].scan_iter(count=1000)
                    if not name.startswith(b"fastredlock:")  # the guard's own
                ]
                asked = self._connections[i].pipeline()  # at one moment
                for name in names:
                    asked.get(name)
                    asked.pttl(name)
                    asked.zrangebyscore(name, time.time() * 1000, "inf")
                said = asked.execute(raise_on_error=False)
                for at, name in enumerate(names):
                    token, left_ms, readers = said[3 * at : 3 * at + 3]
                    tokens = [token] if isinstance(token, bytes) else readers
                    if isinstance(tokens, list):
                        found += [Standing(i, name, each, left_ms) for each in tokens]
        return found

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def is_overlong(standing: Standing) -> bool:
    """Whether a key stands for longer than its ttl allows, or for ever (-1)."""
    return standing.left_ms == -1 or standing.left_ms > TTL * 1000
