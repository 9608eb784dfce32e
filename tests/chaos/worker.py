"""One client process: threads and tasks, or the threads of a peer.

    python -m tests.chaos.worker CLIENT FOLDER GENERATION SEED IS_GUARDED URL ...

SIGTERM: an orderly end: all finish what they are at, then close, then exit. SIGUSR1:
close() at once, with calls under way, then exit. Both exit as a program does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path

from fastredlock import FastRedlock, Stats
from fastredlock import asyncio as fastredlock_asyncio

from .clients import PEERS, TTL, Try
from .habits import Habits, name_of
from .ledger import Hold, Ledger
from .life import Life
from .report import Report

THREADS, TASKS, PEER_THREADS = 8, 24, 8
OWNER = "g%d"  # of its tokens: a generation
COHORTS = (0.0, 0.002, 0.05, 0.5)  # s; by generation
LINGERS = 0.0, 0.3, 2.0, 0.02, 0.3  # s
GRACE = 20.0  # s; what a call may take at the end


def main() -> None:
    client, folder, generation, seed, is_guarded, *urls = sys.argv[1:]
    warnings.simplefilter("ignore")  # a peer's, as its log is
    logging.disable()
    asked = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)  # threads inherit it
    ledger = Ledger(Path(folder), int(generation))
    report = Report(Path(folder), int(generation))
    name = f"{seed}/{generation}"
    if client != "fastredlock":
        live_as_peer(PEERS[client](urls), ledger, report, name)
        os._exit(0)  # a peer's threads may wait for a server that never answers
    live(urls, is_guarded == "True", ledger, report, name)


def live(
    urls: list[str], is_guarded: bool, ledger: Ledger, report: Report, name: str
) -> None:
    """Take locks by both clients until a signal comes; then close them."""
    suffix = OWNER % ledger.generation

    def new_token() -> str:
        return f"{os.urandom(12).hex()}@{suffix}"

    options: dict[str, object] = {"ttl": TTL, "max_ttl": TTL if is_guarded else None}
    if stay := COHORTS[ledger.generation % len(COHORTS)]:
        linger = LINGERS[ledger.generation % len(LINGERS)]
        options |= {"owner": suffix, "cohort": stay, "linger": linger}
    else:  # what has a token of the caller's is never handed on
        options["new_token"] = new_token
    locks = FastRedlock(urls, **options)  # type: ignore[arg-type]
    lives = [Life(locks, ledger, report, f"{name}/{i}") for i in range(THREADS)]
    threads = [
        threading.Thread(target=work)
        for work in (report.watch, *(life.run for life in lives))
    ]
    loop = asyncio.new_event_loop()
    is_abrupt = threading.Event()

    async def live_in_tasks() -> None:
        many = fastredlock_asyncio.FastRedlock(urls, **options)  # type: ignore[arg-type]
        tasks = [
            asyncio.ensure_future(Life(many, ledger, report, f"{name}/task{i}").live())
            for i in range(TASKS)
        ]
        while not (  # noqa: ASYNC110
            is_abrupt.is_set() or all(task.done() for task in tasks)
        ):
            await asyncio.sleep(0.02)  # set by the main thread
        await many.close()
        await asyncio.wait(tasks, timeout=GRACE)
        say_of(report, many.stats())

    threads.append(
        threading.Thread(target=lambda: loop.run_until_complete(live_in_tasks()))
    )
    for thread in threads:
        thread.start()
    if signal.sigwait({signal.SIGTERM, signal.SIGUSR1}) == signal.SIGTERM:
        report.is_closing.set()
        for thread in threads:
            thread.join(GRACE)
        locks.close()
    else:
        report.is_closing.set()
        is_abrupt.set()
        locks.close()
        for thread in threads:
            thread.join(GRACE)
    say_of(report, locks.stats())
    loop.close()


def say_of(report: Report, stats: Stats) -> None:
    report.say("handed_on", str(stats.handed_on))
    report.say("lingered", str(stats.lingered))


def live_as_peer(try_once: Try, ledger: Ledger, report: Report, name: str) -> None:
    """Take locks by a peer, in threads, until a signal comes."""
    threads = [
        threading.Thread(
            target=try_again, args=(try_once, ledger, report, Habits(f"{name}/{i}")),
            daemon=True,
        )
        for i in range(PEER_THREADS)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    signal.sigwait({signal.SIGTERM, signal.SIGUSR1})
    report.is_closing.set()
    for thread in threads:
        thread.join(GRACE)


def try_again(try_once: Try, ledger: Ledger, report: Report, habits: Habits) -> None:
    """Do what users do, with what the client tells them, and no more caution."""
    while not report.is_closing.is_set():
        resource, held = habits.resource(), None
        with suppress(Exception):
            held = try_once(name_of(resource))
        if held is None:
            report.is_closing.wait(habits.pause())
            continue
        hold = Hold(ledger, (resource,), partial(float, held.validity))
        time.sleep(habits.work())  # the work
        hold.end()
        with suppress(Exception):  # a complaint that the lock had gone
            held.release()


if __name__ == "__main__":
    main()
