"""The options that the environment gives, to the command line and to `from_env()`.

The masters are a list in a variable, or in the TOML file that another one names, which
may have more options. No message shows a line of either: they may hold passwords.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import ConfigurationError
from .retry import Retry
from .settings import checked_drift_factor, checked_key_prefix, positive_ns
from .url import parse_masters

MASTERS = "FASTREDLOCK_MASTERS"
CONFIG = "FASTREDLOCK_CONFIG"
TEXTS = ("masters", "key_prefix")  # the others are numbers
DURATIONS = ("ttl", "max_ttl", "round_timeout", "connect_timeout")
# Of the file, each by itself, so that the error names the file.
CHECKS: dict[str, Callable[[Any], object]] = {
    "masters": lambda masters: masters and parse_masters(masters),
    "key_prefix": checked_key_prefix,
    **{name: partial(positive_ns, name) for name in DURATIONS},
    "drift_factor": checked_drift_factor,
    "unreachable_tries": lambda tries: Retry(unreachable_tries=tries),
}
# Where a program is tested: pytest loads its modules, and then come masters in memory.
PLUGIN = "pytest_fastredlock"
IN_TESTS = tuple(f"redis://use-redlock-memory-{i}.invalid" for i in range(3))
REMEDY = (
    f"set ${MASTERS} to URL,URL,URL, or name a TOML file with `masters = [...]` by "
    f"${CONFIG}"
)


def options_of_environment(masters: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the options of a FastRedlock; `unreachable_tries` is one of its Retry.

    `masters`: in place of those of the environment; there may be none of either.
    Reads the file, if one is named, and nothing else. Raises ConfigurationError.
    """
    options = _options_of_file(os.environ.get(CONFIG, ""))
    if masters is not None:
        options["masters"] = masters
    elif text := os.environ.get(MASTERS):
        options["masters"] = masters_in(text, f"${MASTERS}: ")
    return options


def from_environment(given: dict[str, Any], in_memory: bool) -> dict[str, Any]:
    """Return the options of a constructor: those that are given, then these.

    Where none has masters, a program that is tested gets some.
    """
    options = options_of_environment()
    if not options.get("masters") and (in_memory or PLUGIN in sys.modules):
        options["masters"] = IN_TESTS
    if not options.get("masters"):
        raise ConfigurationError(f"no masters: {REMEDY}")
    if "unreachable_tries" in options:
        options["retry"] = Retry(unreachable_tries=options.pop("unreachable_tries"))
    return options | given


def masters_in(text: str, source: str = "") -> tuple[str, ...]:
    """Return the URLs in a list with commas; `source` begins the error."""
    urls = tuple(url.strip() for url in text.split(","))
    if not all(urls):
        raise ConfigurationError(f"{source}one of the URLs is empty")
    return urls


def _options_of_file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    from tomllib import TOMLDecodeError, loads  # only who has such a file pays for it

    where, text = f"${CONFIG}: {path!r}", ""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:  # or with a BOM
            text = file.read()
        found = loads(text)
    except OSError as error:
        raise ConfigurationError(f"{where}: {error.strerror}") from None
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        line = str(error).rpartition("(")[2].rstrip(")")
        raise ConfigurationError(
            f"{where} is not TOML ({line}{_key(text, line)})"
        ) from None
    for name, value in found.items():
        if name not in CHECKS:
            raise ConfigurationError(
                f"{where} has an unknown option {name[:40]!r}; known are "
                f"{', '.join(CHECKS)}"
            )
        if name not in TEXTS and type(value) not in (int, float):
            raise ConfigurationError(f"{where}: {name} is no number")
        try:
            CHECKS[name](value)
        except ConfigurationError as error:
            named = "" if name in str(error) else f"{name}: "
            raise ConfigurationError(f"{where}: {named}{error}") from None
    return found


def _key(text: str, place: str) -> str:
    """Return the option at "line N, …" or the end, for a message; never a value."""
    number = place.partition("line ")[2].partition(",")[0]
    for line in reversed(text.splitlines()[: int(number) if number else None]):
        name = line.partition("=")[0].strip()
        if name in CHECKS:
            return f", {name}"
    return ""
