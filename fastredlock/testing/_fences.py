"""The numbers of grants at a master in memory: the five scripts of `fencing=True`.

They stand here line by line as in `_options/fence_scripts`, which has their theory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._options import fence_scripts, scripts
from ._replies import FOUR, ONE, TWO, ZERO, integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._server import Server

NAME = b"fastredlock:fence:"
WRONG_TYPE = b"-WRONGTYPE Operation against a key of another kind\r\n"
LARGEST = 2**53 - 1  # of Lua's numbers
REFUSED = b"-ERR fastredlock:fence: is no number to count on\r\n"


class Fences:
    """The last number of each resource, in a key of the server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._take = server.queue.scripts[scripts.TAKE_TURN_SHA1]
        self.scripts: dict[bytes, Callable[..., bytes]] = {
            fence_scripts.ACQUIRE_ALL_SHA1: self._acquire_all,
            fence_scripts.ACQUIRE_AGAIN_SHA1: self._acquire_again,
            fence_scripts.TAKE_TURN_SHA1: self._take_turn,
            fence_scripts.WRITE_FENCE_SHA1: self._write,
            fence_scripts.NEXT_FENCE_SHA1: self._following,
            fence_scripts.PROBE_SHA1: lambda *_: b"*0\r\n",
        }

    def _last(self, key: bytes) -> int | None:
        """Return the last number of a resource, 0 of none; None: it is no number."""
        text = self._server.token_at(self._server.queue.prefix + NAME + key) or b"0"
        return int(text) if text.isdigit() else None

    def count(self, words: list[bytes]) -> bytes:
        """Raise a number by ZADD GT CH: ONE where it was less."""
        if words[2:4] != [b"GT", b"CH"] or words[5:] != [b"f"]:
            return b"-ERR syntax error\r\n"
        name, number = words[1], words[4]
        last = self._server.token_at(name)
        if last is not None and not last.isdigit():
            return WRONG_TYPE
        if last is not None and int(last) >= int(number):
            return ZERO
        left_ms = self._server.left_ms(name)
        self._server.put(name, number, left_ms if left_ms >= 0 else None)
        return ONE

    def _put(self, key: bytes, number: int, life_ms: bytes) -> None:
        name = self._server.queue.prefix + NAME + key
        self._server.put(name, b"%d" % number, int(life_ms))

    def _next(self, keys: list[bytes], proposed: bytes, life_ms: bytes) -> int:
        """Give these keys their next number, and return it; 0: not possible."""
        fence = int(proposed)
        for key in keys:
            last = self._last(key)
            if last is None or last >= LARGEST:
                return 0
            fence = max(fence, last + 1)
        for key in keys:
            self._put(key, fence, life_ms)
        return fence

    def _set_all(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes, *number: bytes
    ) -> bytes:
        fence = self._next(keys, *number)
        if not fence:
            return REFUSED
        for key in keys:
            self._server.put(key, token, int(ttl_ms) or None)
        return integer(fence)

    def _acquire_all(
        self,
        keys: list[bytes],
        token: bytes,
        ttl_ms: bytes,
        proposed: bytes,
        life_ms: bytes,
    ) -> bytes:
        if any(self._server.token_at(key) is not None for key in keys):
            return ZERO
        return self._set_all(keys, token, ttl_ms, proposed, life_ms)

    def _acquire_again(
        self, keys: list[bytes], token: bytes, ttl_ms: bytes, *number: bytes
    ) -> bytes:
        if any(self._server.token_at(key) not in (None, token) for key in keys):
            return ZERO
        return self._set_all(keys, token, ttl_ms, *number)

    def _take_turn(self, keys: list[bytes], *arguments: bytes) -> bytes:
        fence = 0
        if self._server.token_at(keys[0]) is None:
            fence = self._next(keys, *arguments[-2:])
            if not fence:
                return REFUSED
        said = self._take(keys, *arguments[:-2])
        if said in (ZERO, TWO, FOUR):
            fence = 0
        return b"*2\r\n" + said + integer(fence)

    def _write(
        self, keys: list[bytes], token: bytes, number: bytes, life_ms: bytes
    ) -> bytes:
        if any(self._server.token_at(key) != token for key in keys):
            return ZERO
        for key in keys:
            if (self._last(key) or 0) < int(number):
                self._put(key, int(number), life_ms)
        return ONE

    def _following(
        self, keys: list[bytes], token: bytes, proposed: bytes, life_ms: bytes
    ) -> bytes:
        if self._server.token_at(keys[0]) != token:
            return ZERO
        fence = self._next(keys, proposed, life_ms)
        return integer(fence) if fence else REFUSED
