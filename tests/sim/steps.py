"""What the generator of a worker yields, and what the world does then.

CHECKPOINT           between two lines; a pause or an exception may strike there
(SLEEP, ns)          it sleeps for so long
(WAIT, deadline_ns)  poll(2), to a time of this machine's clock
(MUTEX, 0)           until the round is finished, or nobody leads
"""

from __future__ import annotations

from collections.abc import Iterator

CHECKPOINT = ("checkpoint", 0)
WAIT, SLEEP, MUTEX = "wait", "sleep", "mutex"
Steps = Iterator[tuple[str, int]]
