"""Who waits for a lock: its queue, and which client of the server each process is."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .._options.masters import Endpoint
from .connection import Server, ServerError, shards_of

MOST_WAITING = 100  # of a queue


class Waiting(NamedTuple):
    """A process that waits, in the order of the queue.

    `process`: the readers of one wait as another, with an r behind its name. `waited`:
    for how long (s) its first caller has. The others are those of its connection, None
    where the server does not show it; the owner is that of its tokens.
    """

    process: str
    waited: float
    address: str | None
    client_name: str | None
    owner: str | None

    def __str__(self) -> str:
        client = f"{self.address} ({self.client_name})" if self.address else "-"
        owner = self.owner or "-"
        return f"{self.process}  {owner}  {client}  for {self.waited:.1f} s"


def queue_of(endpoint: Endpoint, prefix: bytes, name: bytes) -> list[Waiting]:
    """Return the first of the queue of a name; blocks, 2 s for each reply at most.

    ServerError: the server does not say.
    """
    name = prefix + name
    if endpoint.seeds and not re.search(rb"\{[^}]+\}", name):
        name = b"{%b}" % name  # as scripts.with_tags
    key = prefix + b"fastredlock:queue:" + name
    entries: list[bytes] = []
    for node, _ in shards_of(endpoint):
        with Server(node) as server:
            try:
                limits = "(-inf", "inf", "WITHSCORES", "LIMIT", 0, MOST_WAITING
                entries = server.ask("ZRANGEBYSCORE", key, *limits)
            except ServerError as error:
                if "MOVED" in str(error):
                    continue
                raise
            seconds, us = server.ask("TIME")
            clients = _clients_of(server)
            break
    else:
        return []
    now_us = int(seconds) * 10**6 + int(us)
    names = [entry.decode(errors="replace") for entry in entries[::2]]
    return [
        Waiting(
            process,
            max(0, now_us - int(float(since))) / 1e6,
            *clients.get(process.removesuffix("r"), (None, None, None)),
        )
        for process, since in zip(names, entries[1::2], strict=True)
    ]


def _clients_of(server: Server) -> dict[str, tuple[str, str, str | None]]:
    """Return address, name and owner of the clients that say their process."""
    try:
        lines: Any = server.ask("CLIENT", "LIST")
    except ServerError:  # it needs a right of its own
        return {}
    found = {}
    for line in lines.decode(errors="replace").splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split(" "))
        name, *told = fields.get("name", "").rsplit("|", 4)
        if len(told) == 4:  # src_cython/protocol/lists.pyx
            name, _, owner = name.partition("@")
            found[told[1]] = fields.get("addr", "-"), name, owner or None
    return found
