"""Lead wait queues at random: python -m tests.fuzz.queues [--events N] [--seed S].

Each seed is a queue to which 1,000 things happen; fails where an event comes that the
table rules out, and prints the cells of the table that none came by.
"""

from __future__ import annotations

import argparse
import sys

from fastredlock._core import by_hand_queue_mistakes
from tests.support.queue_table import counts, drawn
from tests.support.queue_walk import QueueWalk

HAPPENINGS = 1_000  # of a queue


def lead(seed: int) -> None:
    """Lead one queue through all that may happen."""
    walk, before = QueueWalk(seed), by_hand_queue_mistakes()
    for _ in range(HAPPENINGS):
        walk.step()
    found = by_hand_queue_mistakes()
    assert found == before, f"seed {seed}: {found}"


def unseen() -> list[str]:
    """List the cells that are there, and that nothing came by."""
    return [
        f"{event} in {state}"
        for (event, state), count in counts().items()
        if not count and drawn(event, state) != "x"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seed = options.seed
    while sum(counts().values()) < options.events:
        lead(seed)
        seed += 1
    print(f"{sum(counts().values())} events; never: {', '.join(unseen()) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
