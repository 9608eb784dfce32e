"""I6: a key that nobody holds stands no longer than it takes to undo it.

A token has ended when its acquire was lost, cancelled or failed, or its lease released.
From then on its key may stand on a server only as long as its process has no way to
that server: some round trips and UNDO_NS (RELEASE_NS) after the process has a
connection that works, with nothing between the two, the key is gone. So it is after a
process has closed and exited, on every server that had been well with it. Looked at
every LOOK_NS.

What is excused is counted, once for each key: see `Orphans.excuse_of`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .world import FOREVER_NS, MS, World

if TYPE_CHECKING:
    from .judge import Ended, Judge
    from .process import Process
    from .server import Server

LOOK_NS = 100 * MS
UNDO_NS = 50 * MS
RELEASE_NS = 400 * MS  # it waits 300 ms for the connections of others
ROUND_TRIPS = 10


class Orphans:
    """Looks at the keys of all servers, again and again."""

    def __init__(self, world: World, judge: Judge) -> None:
        self._world = world
        self._judge = judge
        self._counted: set[tuple[int, bytes, str]] = set()
        self.looks = 0

    def look(self) -> None:
        self.looks += 1
        judge = self._judge
        for server in judge.servers:
            if server.calm_from_ns > self._world.now_ns:
                continue
            for key, token in server.tokens():
                if token in judge.ended and key not in judge.unseen:
                    self._judge_key(server, token, judge.ended[token])
        self._world.at(self._world.now_ns + LOOK_NS, self.look)

    def _judge_key(self, server: Server, token: bytes, ended: Ended) -> None:
        process = ended.process
        reachable_ns = self._reachable_from_ns(process, server)
        if reachable_ns == FOREVER_NS:
            return
        path = process.paths[process.place_of(server)]
        time_ns = UNDO_NS if ended.is_undone or process.exited_ns else RELEASE_NS
        round_trips = ROUND_TRIPS if not process.exited_ns else 2
        since_ns = max(reachable_ns, ended.at_ns) + time_ns
        since_ns += 2 * round_trips * max(path.usual_ns, path.delay_ns)
        if self._world.now_ns < since_ns:
            return
        excuse = self.excuse_of(server, token, ended)
        if not excuse:
            self._judge.fail(
                "I6", f"{token.decode()}, {ended.how}, stands on server {server.index}"
            )
        elif (server.index, token, excuse) not in self._counted:
            self._counted.add((server.index, token, excuse))
            self._judge.excuses[excuse] += 1

    def _reachable_from_ns(self, process: Process, server: Server) -> int:
        if process.is_crashed:
            return FOREVER_NS  # no process is left to undo it
        if not process.exited_ns:
            return process.is_well_with(process.place_of(server))
        if process.place_of(server) not in process.well_at_close:
            return FOREVER_NS  # close() could not reach it, and waits for so long only
        path = process.paths[process.place_of(server)]
        if max(server.calm_from_ns, path.calm_from_ns) > process.closed_ns:
            return FOREVER_NS
        return process.exited_ns

    def excuse_of(self, server: Server, token: bytes, ended: Ended) -> str:
        """Return why a key may stand all the same, or ""."""
        judge, at = self._judge, (server.index, token)
        if at in judge.set_behind:
            return "set behind its release, out of a connection closed before"
        later_ns = judge.set_late.get(at, 0)
        shook_ns = ended.process.shook_ns[ended.process.place_of(server)]
        if later_ns and shook_ns > later_ns:
            # The release was on a connection that was READY before, and lost as well.
            return "set when a later connection had been READY, and lost since"
        if at in judge.refused:
            return "its release was refused"
        if at in judge.extended_late:
            return "extended out of a connection closed before"
        if at in judge.unknown_script and not ended.is_undone:
            # Known and left: a slower minority answers NOSCRIPT to the release of a
            # lease when nobody reads any more.
            return "its release met NOSCRIPT, and its client does nothing more"
        return ""
