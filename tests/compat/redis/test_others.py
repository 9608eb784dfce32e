"""Programs that make their locks themselves, with the lines of redis-py.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "migration" / "redis-py.md"
LINES = next(
    block.partition("```")[0]
    for block in PAGE.read_text().split("```python\n")
    if "redis.asyncio.Redis.lock = " in block
)

KOMBU = """
import asyncio, sys
import fastredlock.compat.redis
from kombu.transport import redis as kombu

taken = []
take = fastredlock.compat.redis._base.BaseLock._take
fastredlock.compat.redis._base.BaseLock._take = lambda *a: taken.append(a) or take(*a)

pool = redis.ConnectionPool.from_url(sys.argv[1])
client = kombu.PrefixedStrictRedis(connection_pool=pool, global_keyprefix="shop:")
with kombu.Mutex(client, "unacked_mutex", 5):
    plain = redis.Redis(connection_pool=pool)
    print(plain.keys())
    try:
        with kombu.Mutex(client, "unacked_mutex", 5):
            print("twice")
    except kombu.MutexHeld:
        print("held")


async def main():
    async with redis.asyncio.Redis.from_url(sys.argv[1]) as client:
        async with client.lock("a", 5) as lock:
            print(type(lock).__module__)


asyncio.run(main())
print(len(taken))
"""


@pytest.mark.slow
def test_program_that_makes_its_own_clients_then_has_our_locks(urls: list[str]) -> None:
    command = [sys.executable, "-c", LINES + KOMBU, urls[0]]
    shown = subprocess.check_output(command, timeout=30, text=True).splitlines()
    assert shown == [
        "[b'shop:unacked_mutex']",
        "held",
        "fastredlock.compat.redis.asyncio",
        "3",
    ]
