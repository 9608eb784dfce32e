"""Start a Redis Cluster of private servers, for tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from ._local import LocalMasters, Service

SLOTS = 16384
_FAILOVER_TIMEOUT = 6.0  # s, of one that is given up: CLUSTER_MF_TIMEOUT, 5 s


class LocalCluster(Service):
    """Start `primaries` private servers as a cluster, each with so many `replicas`.

    Block until all of them agree, which takes some seconds. `url` is for FastRedlock.
    `servers` are LocalMasters: to pause, stop, start and resume one. A failover begins
    `node_timeout` s after a primary has stopped to answer. The end, the errors,
    `server` and `options` are those of LocalMasters.
    """

    def __init__(
        self,
        *,
        primaries: int = 3,
        replicas: int = 0,
        node_timeout: float = 1.0,
        server: str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        count = primaries * (1 + replicas)
        own = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"]
        own += ["--cluster-node-timeout", str(round(node_timeout * 1000))]
        own += ["--repl-diskless-sync-delay", "0"]
        with ExitStack() as stack:
            self.servers: LocalMasters = stack.enter_context(
                LocalMasters(count, options=[*own, *options], server=server)
            )
            self._ids = [self._text(i, "CLUSTER", "MYID") for i in range(count)]
            for i in range(primaries):
                span = i * SLOTS // primaries, (i + 1) * SLOTS // primaries - 1
                self.command(i, "CLUSTER", "ADDSLOTSRANGE", *span)
                self.command(i, "CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            for i in range(1, count):
                self._meet(i, 0)
            self._await(lambda: self._know_each_other(count))
            for i in range(primaries, count):
                primary = self._ids[i % primaries]
                self.command(i, "CLUSTER", "REPLICATE", primary)
            self.await_ready()
            self._open = stack.pop_all()
        places = ",".join(f"127.0.0.1:{port}" for port in self.servers.ports)
        self.url: str = f"redis+cluster://{places}"

    def command(self, i: int, *words: object) -> str:
        """Send a command to server `i`; return the first 4 KiB of its reply as text."""
        return self.servers._ask(i, *words)

    def primary_of(self, slot: int) -> int:
        """Return which server is the primary of a hash slot by its own word; -1: none.

        Of several, which a failover leaves for a while, the one that was elected last.
        """
        lines = [self._line(i, i) for i in range(len(self._ids))]
        claims = [
            (int(line.split()[6]), i)
            for i, line in enumerate(lines)
            if _has_slot(line, slot)
        ]
        return max(claims, default=(0, -1))[1]

    def slot_of(self, key: str) -> int:
        """Return the hash slot of a key."""
        asked = (
            self.command(i, "CLUSTER", "KEYSLOT", key) for i in range(len(self._ids))
        )
        return int(next(each for each in asked if each.startswith(":"))[1:])

    def begin_move(self, slot: int, to: int) -> int:
        """Open the move of a hash slot to a primary; return the one that has it."""
        at = self.primary_of(slot)
        self.command(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", self._ids[at])
        self.command(at, "CLUSTER", "SETSLOT", slot, "MIGRATING", self._ids[to])
        return at

    def move_keys(self, slot: int, at: int, to: int) -> None:
        """Move the keys of a hash slot."""
        port = self.servers.ports[to]
        while keys := self._keys(slot, at):
            moved = ("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
            reply = self.command(at, *moved)
            if not reply.startswith(("+OK", "+NOKEY")):
                raise RuntimeError(f"a slot was not moved: {reply}")

    def end_move(self, slot: int, at: int, to: int) -> None:
        """Close the move; block until all servers that run know of it.

        Of two moves that are too near each other, servers may believe different ones.
        """
        for i in (to, at):
            self.command(i, "CLUSTER", "SETSLOT", slot, "NODE", self._ids[to])
        self._await(lambda: self._agree_on(slot, to))

    def move(self, slot: int, to: int) -> None:
        """Move a hash slot with its keys to a primary, as a resharding does."""
        at = self.begin_move(slot, to)
        if at != to:
            self.move_keys(slot, at, to)
            self.end_move(slot, at, to)

    def fail_over(self, slot: int) -> int:
        """Let a replica take over from the primary of a hash slot; return which."""
        at = self.primary_of(slot)
        its = f" {self._ids[at]} "
        every = range(len(self._ids))
        i = next((i for i in every if its in self._line(i, i)), None)
        if i is None:
            raise RuntimeError("this primary has no replica")
        self._await(lambda: self._has_taken_over(i))
        self._await(lambda: self._agree_on(slot, i))
        return i

    def _has_taken_over(self, i: int) -> bool:
        """Ask a replica to take over; whether it has: it gives up after 5 s."""
        if "master" in self._line(i, i).split(" ")[2]:
            return True
        if "master_link_status:up" not in self.command(i, "INFO", "replication"):
            return False
        reply = self.command(i, "CLUSTER", "FAILOVER")
        if not reply.startswith("+OK") and "Master is down" not in reply:
            raise RuntimeError(f"no failover: {reply}")
        deadline = time.monotonic() + _FAILOVER_TIMEOUT
        while time.monotonic() < deadline:
            if "master" in self._line(i, i).split(" ")[2]:
                return True
            time.sleep(0.02)
        return False

    def await_ready(self) -> None:
        """Block until all servers agree, and all replicas follow."""
        self._await(self._is_ready)

    def _agree_on(self, slot: int, to: int) -> bool:
        seen = [i for i in range(len(self._ids)) if self._line(i, i)]
        epochs = {
            line
            for i in seen
            for line in self.command(i, "CLUSTER", "INFO").split("\r\n")
            if line.startswith("cluster_current_epoch")
        }
        return len(epochs) == 1 and all(
            _has_slot(self._line(i, to), slot) for i in seen
        )

    def _line(self, i: int, of: int) -> str:
        lines = self.command(i, "CLUSTER", "NODES").split("\n")
        return next((each for each in lines if each.startswith(self._ids[of])), "")

    def _keys(self, slot: int, i: int) -> list[str]:
        reply = self.command(i, "CLUSTER", "GETKEYSINSLOT", slot, 10).split("\r\n")
        return reply[2::2]

    def _text(self, i: int, *words: object) -> str:
        return self.command(i, *words).split("\r\n")[-1]

    def _meet(self, i: int, other: int) -> None:
        port = self.servers.ports[other]
        self.command(i, "CLUSTER", "MEET", "127.0.0.1", port)

    def _know_each_other(self, count: int) -> bool:
        known = (self.command(i, "CLUSTER", "NODES") for i in range(count))
        return all(
            each.count(" connected") == count and "handshake" not in each
            for each in known
        )

    def _is_ready(self) -> bool:
        count = len(self._ids)
        infos = (self.command(i, "CLUSTER", "INFO") for i in range(count))
        lines = [self._line(i, i) for i in range(count)]
        links = (
            self.command(i, "INFO", "replication")
            for i, line in enumerate(lines)
            if "slave" in line
        )
        return all("cluster_state:ok" in each for each in infos) and all(
            "master_link_status:up" in each for each in links
        )


def _has_slot(line: str, slot: int) -> bool:
    """Whether a line of CLUSTER NODES has this slot."""
    spans = (part.split("-") for part in line.split()[8:] if part[:1] != "[")
    return any(int(span[0]) <= slot <= int(span[-1]) for span in spans)
