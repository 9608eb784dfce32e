"""`fastredlock quarantine`: what the restart guard keeps on the servers, and its end.

To lift a quarantine is to connect as a client does, which writes the markers, to delete
what this has begun, and to set a key that names the run id: uptime then counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from .._core import ServerInfo
from .._options.masters import Endpoint, parse_lists
from .._options.settings import TAKES_NO_LOCKS
from ..errors import QuorumUnreachableError
from . import CommandError, Status
from .connection import (
    MARKERS,
    QUARANTINE,
    Server,
    ServerError,
    need_redis_py,
    shards_of,
)
from .parser import MASTERS_END, Parser, agrees, given_options, new_locks

_DESCRIPTION = """\
Show whether clients with a max_ttl wait until all leases from before a restart, a
failover or a FLUSHALL have ended. --lift ends that for all that connect from now on:
before a first deployment, or if a quarantine was begun by mistake.
"""
_END = f"""\
exit status:
  {Status.OK:<4} each server was asked, and with --lift no client has to wait
  {Status.NOT_HELD:<4} nothing was changed: you said no
  {Status.USAGE:<4} wrong arguments
  {Status.UNREACHABLE:<4} a server could not be asked or changed

{MASTERS_END}"""
WELL = "has its marker, and no quarantine"


def main(words: Sequence[str]) -> int:
    parser = Parser("quarantine", _DESCRIPTION, _END)
    parser.add_argument("--lift", action="store_true", help="end it; asks before")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_max_ttl()
    parser.add_masters()
    asked = parser.parse_args(words)
    options = given_options(asked)
    need_redis_py()
    if not asked.lift:
        new_locks({**options, "max_ttl": TAKES_NO_LOCKS}).close()
    elif "max_ttl" not in options:
        raise CommandError("--lift needs --max-ttl, as clients have it", Status.USAGE)
    elif asked.yes or agrees("Is it certain that nobody holds a lock from before?"):
        with (
            new_locks({"ttl": options["max_ttl"], **options}) as locks,
            suppress(QuorumUnreachableError),
        ):
            locks.connect()  # which writes the markers
    else:
        return Status.NOT_HELD
    endpoints, _ = parse_lists(options["masters"], options.get("changing_to"))
    are_well = all([_is_well(endpoint, asked.lift) for endpoint in endpoints])
    return Status.OK if are_well else Status.UNREACHABLE


def _is_well(master: Endpoint, is_lifted: bool, tag: str | None = None) -> bool:
    """Show a master as it is now, or a primary of a cluster, that with this tag."""
    try:
        if tag is None:
            shards = shards_of(master)
            return all([_is_well(each, is_lifted, its) for each, its in shards])
        with Server(master) as server:
            text = state(server, tag, is_lifted)
    except ServerError as error:
        print(f"{master.name}  {error}")
        return False
    print(f"{master.name}  {text}")
    return text == WELL or not is_lifted


def state(server: Server, tag: str, is_lifted: bool) -> str:
    info, quarantine = ServerInfo(server.ask("INFO")), QUARANTINE + tag
    run_id = (info.run_id or "-").encode()
    if info.refusal() is not None:
        raise ServerError(info.refusal())
    if is_lifted:
        server.ask("SET", f"{quarantine}:lifted", run_id)
        server.ask("DEL", quarantine)
    left_ms = server.ask("PTTL", quarantine)
    marks = [server.ask("GET", name + tag) or b"" for name in MARKERS]
    if left_ms > 0:
        return f"in quarantine for {left_ms / 1e3:.1f} s"
    if not any(mark.startswith(run_id) for mark in marks):
        return "no marker of its own: the next client with a max_ttl begins to wait"
    return WELL
