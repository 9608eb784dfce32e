"""`fastredlock servers` and `fastredlock demo`: masters on this machine."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from .._options.settings import MASTERS
from . import CommandError, Status
from .child import ENDING
from .parser import Parser, masters_in, number

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


def servers(words: Sequence[str]) -> int:
    parser = Parser("servers", _SERVERS, _SERVERS_END)
    parser.add_number("--count", "N", int, (1, 25), 3, "start so many masters")
    parser.add_argument(
        "--port",
        **number("PORT", int, 1, 65535),
        help="of the first; the others have those behind it (default: any free ones)",
    )
    asked = parser.parse_args(words)
    from ..testing import LocalMasters  # not for --help

    ending = _ending()  # taken one by one, between two steps
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        with LocalMasters(asked.count, port=asked.port) as masters:
            print("# masters, until Ctrl-C; for other shells:")
            print(f"export {MASTERS}={','.join(masters.urls)}", flush=True)
            signal.sigwait(ending)
    except (FileNotFoundError, RuntimeError) as error:  # none is there, or comes up
        raise CommandError(str(error), Status.SYSTEM) from None
    return Status.OK


def _ending() -> list[signal.Signals]:
    """Return the signals that end a command; what nohup ignores stays ignored."""
    return [each for each in ENDING if signal.getsignal(each) != signal.SIG_IGN]


_DEMO = """\
Let several processes increment one counter that they share: read it, wait a
moment, write it back. First without the lock, so that updates get lost, then with it,
so that none may. While the lock is in use, one of five local masters is stopped
and another one paused (SIGSTOP). At the end, one worker alone measures how fast
the lock is.
"""

_DEMO_END = """\
exit status:
  0    no update was lost with the lock
  1    updates were lost with the lock
  2    cannot run: bad URL, rich not installed, no redis-server found
  3    fewer than a quorum of the masters could be reached
  4    a worker process died
  64   wrong arguments
  130  ended by Ctrl-C (143: by SIGTERM); nothing is left running

examples:
  fastredlock demo
  fastredlock demo --workers 8 --seconds 20
  fastredlock demo --masters redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
"""


def demo(words: Sequence[str]) -> int:
    parser = Parser("demo", _DEMO, _DEMO_END)
    parser.add_argument(
        "--masters",
        type=masters_in,
        metavar="URL,URL,...",
        help="use these masters instead of five local ones; they are neither stopped "
        "nor paused, and keep nothing (one key, for 2 s at most)",
    )
    phases = "time for all phases together"
    pause = "time between reading and writing the counter"
    parser.add_number("--workers", "N", int, (2, 64), 4, "worker processes")
    parser.add_number("--seconds", "S", float, (1, 3600), 5, phases)
    parser.add_number("--pause-ms", "MS", float, (0, 1000), 1, pause)
    asked = parser.parse_args(words)
    from ..demo.play import CANNOT_RUN, play  # not for --help

    try:
        from ..demo.view import View  # the only module that needs rich
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        text = "the demo needs rich: run `pip install 'fastredlock[demo]'`"
        raise CommandError(text, CANNOT_RUN) from error
    return play(asked, _ending(), View)
