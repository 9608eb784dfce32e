"""Start a primary, its replicas, and the sentinels that watch it, for tests.

Each server replicates as a user of its own, the sentinels log in as one of theirs, and
clients as the default user, which has a password. A server that is cut off locks the
others out and ends their connections, and goes on to serve its clients.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ._local import LocalMasters, Server, Service

_SECRET = "local"  # of users on loopback


class LocalSentinels(Service):
    """Start a private primary with `replicas`, and `sentinels` that watch it.

    Block until each sentinel knows all others, which takes some seconds. `url` is that
    of the service; `password` is that of the servers' default user. `servers` and
    `sentinels` are LocalMasters: to pause, stop and resume one; `start` is here. Server
    0 is the primary at the beginning. A primary stops granting `max_lag` s after it has
    fewer replicas than all but one (or than one). A failover begins after `down_after`
    s. The end, the errors, `server` and `options` are those of LocalMasters.
    """

    def __init__(
        self,
        *,
        replicas: int = 2,
        sentinels: int = 3,
        name: str = "mymaster",
        down_after: float = 0.5,
        max_lag: int = 1,
        server: str | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.name: str = name
        self.password: str = _SECRET
        guard = ["--min-replicas-to-write", str(max(1, replicas - 1))]
        guard += ["--min-replicas-max-lag", str(max_lag)]
        guard += ["--repl-diskless-sync-delay", "0", "--requirepass", _SECRET]
        for user in ("watch", *(f"replica{i}" for i in range(1 + replicas))):
            guard += ["--user", user, "on", f">{_SECRET}", "+@all", "~*", "&*"]
        watch = [
            f"sentinel down-after-milliseconds {name} {round(down_after * 1000)}",
            f"sentinel failover-timeout {name} {max(1000, round(down_after * 4000))}",
            f"sentinel auth-user {name} watch",
            f"sentinel auth-pass {name} {_SECRET}",
        ]
        with ExitStack() as stack:
            self.servers: LocalMasters = stack.enter_context(
                LocalMasters(1 + replicas, options=[*guard, *options], server=server)
            )
            place = f"127.0.0.1 {self.servers.ports[0]}"
            watch.insert(0, f"sentinel monitor {name} {place} {sentinels // 2 + 1}")
            for i in range(1 + replicas):
                self._join(i, 0)
            self.sentinels: LocalMasters = stack.enter_context(
                _Sentinels(sentinels, options=watch, server=server)
            )
            self._await(self._agree)
            self._open = stack.pop_all()
        places = ",".join(f"127.0.0.1:{port}" for port in self.sentinels.ports)
        self.url: str = f"redis+sentinel://:{_SECRET}@{places}/{name}"

    def command(self, i: int, *words: object) -> str:
        """Send a command to server `i`; return the first 4 KiB of its reply as text."""
        return self.servers._ask(i, *words, password=_SECRET.encode())

    def primary(self) -> int:
        """Return which server the first sentinel that answers takes for the primary."""
        for i in range(len(self.sentinels.ports)):
            reply = self._ask(i, "GET-MASTER-ADDR-BY-NAME")
            if reply.startswith("*2"):
                return self.servers.ports.index(int(reply.split()[-1]))
        raise RuntimeError("no sentinel answers")

    def fail_over(self) -> None:
        """Let the sentinels promote a replica, as an operator does."""
        self._ask(0, "FAILOVER")

    def start(self, i: int) -> None:
        """Start server `i` again, empty, as a replica of the primary."""
        self.servers.start(i)
        self.follow(i)

    def follow(self, i: int) -> None:
        """Let server `i` replicate the primary, as the sentinels do some time."""
        self._join(i, self.primary())

    def cut(self, *servers: int) -> None:
        """Cut servers off from the sentinels and the others, but not from clients."""
        for i in servers:
            for user in self._users(servers):
                self.command(i, "ACL", "SETUSER", user, "off")
                self.command(i, "CLIENT", "KILL", "USER", user)

    def heal(self) -> None:
        """Let all servers that run be reached again."""
        for i in range(len(self.servers.ports)):
            for user in self._users(()):
                self.command(i, "ACL", "SETUSER", user, "on")

    def _users(self, inside: Sequence[int]) -> list[str]:
        others = set(range(len(self.servers.ports))) - set(inside)
        return ["watch", *(f"replica{i}" for i in sorted(others))]

    def _join(self, i: int, primary: int) -> None:
        self.command(i, "CONFIG", "SET", "masteruser", f"replica{i}")
        self.command(i, "CONFIG", "SET", "masterauth", _SECRET)
        if i != primary:
            self.command(i, "REPLICAOF", "127.0.0.1", self.servers.ports[primary])

    def _ask(self, i: int, what: str) -> str:
        return self.sentinels._ask(i, "SENTINEL", what, self.name)

    def _agree(self) -> bool:
        replicas, count = len(self.servers.ports) - 1, len(self.sentinels.ports)
        seen = (self.sentinels._ask(i, "INFO", "sentinel") for i in range(count))
        return (
            self.command(0, "INFO", "replication").count("state=online") == replicas
            and all(f"slaves={replicas}," in each for each in seen)
            and all(
                self._ask(i, "CKQUORUM").startswith(f"+OK {count} usable")
                for i in range(count)
            )
        )


class _Sentinel(Server):
    """A server program as a sentinel; its options are the lines of its file."""

    def arguments(self) -> list[str]:
        path = os.path.join(self.folder, "sentinel.conf")
        if not os.path.exists(path):  # else what it wrote itself stays
            with open(path, "w") as file:
                file.write("\n".join(self.options) + "\n")
        own = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder]
        return [path, "--sentinel", *own, "--unixsocket", self.socket_path]


class _Sentinels(LocalMasters):
    def _new_server(self, *given: Any) -> Server:
        return _Sentinel(*given)
