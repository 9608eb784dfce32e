"""`fastredlock servers`: masters on this machine, to try things out."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from .._options.settings import MASTERS
from .setup import Parser, number
from .signals import ENDING
from .status import CommandError, Status

_SERVERS = """\
Start empty Redis or Valkey servers on this machine, print the line by which other
shells find them, and keep them until Ctrl-C or SIGTERM. They keep nothing on disk,
listen on 127.0.0.1 alone, and are gone with this process, however it ends.
"""
_SERVERS_END = f"""\
exit status:
  {Status.OK:<4} ended by SIGINT, SIGTERM, SIGHUP or SIGQUIT; no server is left
  {Status.USAGE:<4} wrong arguments
  {Status.SYSTEM:<4} no redis-server or valkey-server was found, or one did not start
"""


def main(words: Sequence[str]) -> int:
    """Run `fastredlock servers` with these arguments; return the exit status."""
    parser = Parser("servers", _SERVERS, _SERVERS_END)
    parser.add_argument(
        "--count",
        type=number(int, 1, 25),
        default=3,
        metavar="N",
        help="start so many masters, 1 to 25 (default: 3)",
    )
    parser.add_argument(
        "--port",
        type=number(int, 1, 65535),
        metavar="PORT",
        help="of the first; the others have those behind it (default: any free ones)",
    )
    asked = parser.parse_args(words)
    from ..testing import LocalMasters  # not for --help

    # Taken one by one, between two steps; what nohup ignores stays ignored.
    ending = [each for each in ENDING if signal.getsignal(each) != signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        with LocalMasters(asked.count, port=asked.port) as masters:
            print("# masters, until Ctrl-C; for other shells:")
            print(f"export {MASTERS}={','.join(masters.urls)}", flush=True)
            signal.sigwait(ending)
    except (FileNotFoundError, RuntimeError) as error:  # none is there, or comes up
        raise CommandError(str(error), Status.SYSTEM) from None
    return Status.OK
