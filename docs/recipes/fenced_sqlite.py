"""A storage that refuses late writes: SQLite, and a lease with a number.

FASTREDLOCK_MASTERS=redis://a:6379,... \\
    python fenced_sqlite.py DATABASE ACCOUNT AMOUNT
"""

from __future__ import annotations

import sqlite3
import sys
import time

from fastredlock import FastRedlock

TTL = 1.0  # s
SCHEMA = """
create table if not exists account (
    name text primary key, balance integer not null, fence integer not null
)
"""
WRITE = "update account set balance = ?, fence = ? where name = ? and fence <= ?"


def write(storage: sqlite3.Connection, name: str, balance: int, fence: int) -> bool:
    """Write under a number; return False where a later holder has written."""
    with storage:  # a transaction
        done = storage.execute(WRITE, (balance, fence, name, fence))
    return done.rowcount == 1


def run(database: str, name: str, amount: str) -> str:
    """Add to an account; return what happened."""
    storage = sqlite3.connect(database, timeout=30)
    with storage:
        storage.execute(SCHEMA)
        storage.execute("insert or ignore into account values (?, 0, 0)", (name,))
    locks = FastRedlock.from_env(ttl=TTL, fencing=True)
    lease = locks.acquire(f"account:{name}")
    if lease is None:  # with a timeout
        return "taken"
    (balance,) = storage.execute(
        "select balance from account where name = ?", (name,)
    ).fetchone()
    print("computing", flush=True)
    time.sleep(0.2)  # and here a process may stand still, for longer than its lease
    is_taken = write(storage, name, balance + int(amount), lease.fence)
    lease.release()
    return "written" if is_taken else "refused: another holder has written since"


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
