"""A semaphore that counts, with the rule of the published one over N masters.

Each master admits up to k members, and who was admitted by a majority holds: the rule
of redis-semaphore's RedlockSemaphore. Its caller is told the validity of a Redlock,
which that one does not tell. Three masters, k = 2: A and B at the first, B and C at the
second, C and A at the third. All three hold.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress

import redis

from .clients import TTL
from .ledger import now_ns
from .slot_worker import RESOURCE, Grant

TTL_MS = int(TTL * 1000)
DRIFT = TTL * 0.01 + 0.002  # s; as the Redlock page has it
TIMEOUT = 0.05  # s; for a master's reply
ADMIT = """\
local time = redis.call("time")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("zremrangebyscore", KEYS[1], "-inf", now)
if redis.call("zcard", KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call("zadd", KEYS[1], now + ARGV[3], ARGV[2])
redis.call("pexpire", KEYS[1], ARGV[3])
return 1"""


def counting(urls: list[str], permits: int) -> Callable[[], Grant | None]:
    """Return what tries once; all masters are asked at the same time."""
    waits = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
    pools = [redis.ConnectionPool.from_url(url, **waits) for url in urls]
    masters = [pool.make_connection() for pool in pools]

    def ask(*command: str | int) -> int:
        asked, granted = [], 0
        for master in random.sample(masters, len(masters)):  # as far as networks go
            with suppress(redis.RedisError):
                master.send_command(*command)
                asked.append(master)
        for master in asked:
            try:
                granted += int(master.read_response() == 1)
            except redis.RedisError:
                master.disconnect()  # else its late reply is that to the next command
        return granted

    def try_once() -> Grant | None:
        member, began_ns = os.urandom(12).hex(), now_ns()
        granted = ask("EVAL", ADMIT, 1, RESOURCE, permits, member, TTL_MS)
        until_ns = began_ns + int((TTL - DRIFT) * 1e9)

        def release() -> int:
            return ask("ZREM", RESOURCE, member)

        if granted > len(urls) // 2 and now_ns() < until_ns:
            return Grant(until_ns, release)
        release()
        return None

    return try_once
