"""`fastredlock demo`: its arguments, its help and its exit status."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from .setup import Parser, masters_in, number
from .signals import ENDING

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


def main(words: Sequence[str]) -> int:
    """Run `fastredlock demo` with these arguments; return the exit status."""
    asked = _parser().parse_args(words)
    from ..demo.play import play  # only here: the rest needs none of it

    ending = [each for each in ENDING if signal.getsignal(each) != signal.SIG_IGN]
    return play(asked, ending)


def _parser() -> Parser:
    demo = Parser("demo", _DEMO, _DEMO_END)
    demo.add_argument(
        "--masters",
        type=masters_in,
        metavar="URL,URL,...",
        help="use these masters instead of five local ones; they are neither stopped "
        "nor paused, and keep nothing (one key, for 2 s at most)",
    )
    demo.add_argument(
        "--workers",
        type=number(int, 2, 64),
        default=4,
        metavar="N",
        help="worker processes, 2 to 64 (default: 4)",
    )
    demo.add_argument(
        "--seconds",
        type=number(float, 1, 3600),
        default=5.0,
        metavar="S",
        help="time for all phases together, 1 to 3600 (default: 5)",
    )
    demo.add_argument(
        "--pause-ms",
        type=number(float, 0, 1000),
        default=1.0,
        metavar="MS",
        help="time between reading and writing the counter, 0 to 1000 (default: 1)",
    )
    return demo
