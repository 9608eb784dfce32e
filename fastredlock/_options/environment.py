"""The options that the environment gives, to the command line and to `from_env()`.

The masters are a list in a variable, or in the TOML file that another one names, which
may have more options. No message shows a line of either: they may hold passwords.
"""

from __future__ import annotations

import os
from typing import Any

from ..errors import ConfigurationError
from .retry import Retry

MASTERS = "FASTREDLOCK_MASTERS"
CONFIG = "FASTREDLOCK_CONFIG"
# Of the file; what each may be is checked where it is used.
NUMBERS = (
    *("ttl", "max_ttl", "drift_factor", "round_timeout", "connect_timeout"),
    "unreachable_tries",
)
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


def from_environment(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a constructor: those that are given, then these."""
    options = options_of_environment()
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
    from tomllib import TOMLDecodeError, load  # only who has such a file pays for it

    where = f"${CONFIG}: {path!r}"
    try:
        with open(path, "rb") as file:
            found = load(file)
    except OSError as error:
        raise ConfigurationError(f"{where}: {error.strerror}") from None
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        line = str(error).rpartition("(")[2].rstrip(")")
        raise ConfigurationError(f"{where} is not TOML ({line})") from None
    for name, value in found.items():
        if name in NUMBERS and type(value) not in (int, float):
            raise ConfigurationError(f"{where}: {name} is no number")
        if name not in (*NUMBERS, "masters", "key_prefix"):
            raise ConfigurationError(
                f"{where} has an unknown option {name[:40]!r}; known are "
                f"masters, key_prefix, {', '.join(NUMBERS)}"
            )
    return found
