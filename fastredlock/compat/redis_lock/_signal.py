"""The signal list: how a release of either library wakes one waiter of either.

A release leaves one element in a list that lives for `signal_expire` ms; a waiter pops
it (BLPOP) and tries again. The push belongs into the script that deletes the key: as a
command of its own it would be lost with a process that dies in between, and a waiter of
the old library would then wait for ever. The same script notifies the queue in which
the callers of FastRedlock wait; their releases push no signal, so a waiter of ours
looks again every 0.25 s while one of them holds the lock. BLPOP, and the keys of others
that `reset` deletes, are the client's work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from ... import FastRedlock, MasterVote, Vote
from ..._options.scripts import NOTIFY_NEXT
from .._redis import Library, patient_locks

LOCK, SIGNAL = "lock:", "lock-signal:"

# s; after so long a waiter looks again, signal or not: the holder may have died.
LONGEST_WAIT = 5.0
WITHOUT_SIGNAL = 0.25  # s; the same, where the holder's release pushes none
SHORTEST_WAIT = 0.01  # s; BLPOP takes 0 for no limit
LATENESS = 0.15  # s; a server looks for timeouts that have passed every 0.1 s
EXPIRED = 0.002  # s; added to the time left of a key, so that it is gone then

_RELEASE = """
if redis.call("get",KEYS[1])~=ARGV[1] then return 0 end
local signal="lock-signal:"..string.sub(KEYS[1],6)
redis.call("del",signal)
redis.call("lpush",signal,1)
redis.call("pexpire",signal,%d)
local deleted=redis.call("del",KEYS[1])
if redis.pcall("exists","fastredlock:queue:"..KEYS[1])==1 then notify() end
return deleted
"""


@cache
def releasing_with(signal_expire: int) -> Callable[..., FastRedlock]:
    """Return the maker of a FastRedlock with releases that signal; one per argument."""
    script = NOTIFY_NEXT + b"\n" + (_RELEASE % signal_expire).encode()
    return partial(patient_locks, FastRedlock, release_script=script)


def wait(
    client: Any, signal: str, votes: Sequence[MasterVote], left: float | None
) -> None:
    """Wait for a signal, for the key's end according to the votes, or `left` s."""
    held = [vote for vote in votes if vote.vote is Vote.TAKEN]
    if not held:
        return  # released since we were refused
    is_signalled = all(vote.owner is None for vote in held)  # no FastRedlock has it
    longest = LONGEST_WAIT if is_signalled else WITHOUT_SIGNAL
    times = [longest, longest if left is None else left]
    times += [
        vote.remaining_ms / 1000 + EXPIRED
        for vote in held
        if vote.remaining_ms is not None and vote.remaining_ms >= 0
    ]
    socket_timeout = client.connection_pool.connection_kwargs.get("socket_timeout")
    if socket_timeout:  # longer than the client waits for a reply is an error
        seconds = float(socket_timeout)
        times.append(min(seconds / 2, seconds - LATENESS))
    with suppress(Library(client).errors.TimeoutError):  # it is late: look again
        client.blpop(signal, max(min(times), SHORTEST_WAIT))


def reset(client: Any, name: Any, signal: Any, signal_expire: int) -> None:
    with client.pipeline(transaction=True) as commands:
        commands.delete(signal)
        commands.lpush(signal, 1)
        commands.pexpire(signal, signal_expire)
        commands.delete(name)
        commands.execute()


def reset_all(redis_client: Any) -> None:
    """Delete all locks, also of other holders, and signal.

    Goes through the keyspace step by step: others are served in between.
    """
    for name in redis_client.scan_iter(f"{LOCK}*", count=1000):
        is_text = isinstance(name, str)
        signal = (SIGNAL if is_text else SIGNAL.encode()) + name[len(LOCK) :]
        reset(redis_client, name, signal, 1000)
