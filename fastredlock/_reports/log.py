"""Warnings to the logger "fastredlock": they never break the call that gives them."""

from __future__ import annotations

import _thread  # by its name: gevent may patch it later
import sys
from typing import Any

INFO, WARNING = 20, 30  # of logging, which may not be imported

at_it: set[int] = set()  # threads: a handler that takes a lock comes back here
logged: set[str] = set()  # of what is logged once per process


def warn_once(text: str, *values: object) -> None:
    if text not in logged:
        logged.add(text)  # before it is logged: a handler may wait for a lock, too
        warn(text, *values)


def info(text: str, *values: object) -> None:
    warn(text, *values, level=INFO)


def warn(text: str, *values: object, level: int = WARNING) -> None:
    """Log it; an exception of a handler is printed, as logging itself does it.

    A line that is given inside a handler, in the same thread, is left out: the
    handler would be called by each of its own calls. `health()` has it all the same.
    """
    me = _thread.get_ident()
    if me in at_it:
        return
    at_it.add(me)
    try:
        # Where nobody has imported it, nobody has configured it. Then it would write
        # to standard error; to import it takes 8 ms, and a fork meanwhile would leave
        # a child that waits for ever for the import.
        logging: Any = sys.modules.get("logging")
        if hasattr(logging, "getLogger"):
            logging.getLogger("fastredlock").log(level, text, *values)
        elif sys.stderr is not None and level >= WARNING:
            sys.stderr.write(f"{text % values}\n")
    except Exception:
        if getattr(logging, "raiseExceptions", True):
            print_error()
    finally:
        at_it.discard(me)


def print_error() -> None:
    """Print the error that is being handled, where there is a standard error."""
    try:
        if sys.stderr is not None:
            sys.stderr.write("--- Logging error ---\n")
            sys.__excepthook__(*sys.exc_info())
    except OSError:  # as logging.Handler.handleError
        pass
