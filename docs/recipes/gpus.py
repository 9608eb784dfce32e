"""GPUs: each process of a host trains on one that no other one uses.

FASTREDLOCK_MASTERS=redis://a:6379,redis://b:6379,... python gpus.py GPUS JOURNAL

The number of the slot is that of the GPU. From a shell, without a program:

    fastredlock run --permits 4 "gpu:$(hostname)" \\
        sh -c 'CUDA_VISIBLE_DEVICES=$FASTREDLOCK_SLOT exec python train.py'
"""

from __future__ import annotations

import os
import socket
import sys
import time

from fastredlock import FastRedlock, Lease, LeaseLostError

TTL = 2.0  # s; for so long, at most, a GPU is idle after a crash


def train(lease: Lease, journal: str) -> None:
    """Train on the GPU of the slot; CUDA reads the variable when it is first used."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(lease.slot)
    for step in range(10):
        lease.check()  # LeaseLostError: stop, another process may be on it
        with open(journal, "a") as lines:
            lines.write(f"{time.monotonic_ns()} {os.getpid()} {lease.slot} {step}\n")
        time.sleep(0.05)


def main(gpus: str, journal: str) -> int:
    """Wait in turn for a GPU of this host."""
    locks = FastRedlock.from_env(ttl=TTL)
    name = f"gpu:{socket.gethostname()}"
    try:
        with locks.semaphore(name, int(gpus), keep_alive=True) as lease:
            train(lease, journal)
    except LeaseLostError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
