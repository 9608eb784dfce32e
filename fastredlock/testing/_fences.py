"""The numbers of grants at a master in memory: the four scripts of `fencing=True`.

They stand here line by line as in `_options/fence_scripts`, which has their theory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._options import fence_scripts, scripts
from ._replies import ONE, TWO, ZERO, integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._server import Server

NAME = b"fastredlock:fence:"
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
        }

    def _last(self, key: bytes) -> int | None:
        """Return the last number of a resource, 0 of none; None: it is no number."""
        text = self._server.token_at(self._server.queue.prefix + NAME + key) or b"0"
        return int(text) if text.isdigit() else None

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
        last = self._last(keys[0])
        is_usual = len(keys) == 1 and ttl_ms != b"0"
        if is_usual and last is not None and last < int(proposed):
            self._put(keys[0], int(proposed), life_ms)
            self._server.put(keys[0], token, int(ttl_ms))
            return ONE  # the number that was proposed
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
        if said in (ZERO, TWO):
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
