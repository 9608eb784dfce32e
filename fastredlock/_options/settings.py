"""The options of a FastRedlock: every bad value is refused before any I/O.

The environment may give them as well, to the command line and to `from_env()`: the
masters are a list in a variable, or in the TOML file that another one names, which may
have more options. No message shows a line of either: they may hold passwords.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .._core import Electorate, Lists, Terms, TokenSource
from .._reports.log import warn, warn_once
from ..errors import ConfigurationError
from .keys import (
    OWN,
    PER_RESOURCE,
    RESERVED,
    encode_resource,
    encode_token,
    new_token_source,
    used_in,
    utf8_or_bytes,
)
from .masters import (
    Credentials,
    Endpoint,
    Master,
    SameServerAllowed,
    lists_told,
    parse_lists,
    parse_masters,
    with_credentials,
)
from .retry import (
    Retry,
    number_in,
    number_of,
    refused,
    refused_number,
    refused_type,
)

LONGEST_TTL = 1_000_000_000  # s, 31 years: nanoseconds stay far inside int64
LONG_TTL = 3600  # s; from here on it may be meant in milliseconds
LEAST_FLOAT = 5e-324  # above 0
NS_PER_S, NS_PER_MS = 1_000_000_000, 1_000_000
FIXED_DRIFT_NS = 2_000_000  # a server expires keys at whole milliseconds (Redlock page)
ROUND_SHARE = 20  # a round may take 1/20 of the ttl (Redlock page: 5-50 ms of 10 s)
SHORTEST_ROUND_TIMEOUT_NS = 5_000_000  # below that, a busy scheduler is a dead server
LONGEST_ROUND_TIMEOUT_NS = 1_000_000_000  # of a caller that waits for a silent master
DEFAULT_TTL = 10.0
DEFAULT_TTL_MS = 10_000
LARGEST_FENCE = 2**53 - 1  # Lua's numbers are doubles
LONGEST_PREFIX = 1024  # bytes; beside the longest resource it is nothing
LONGEST_COHORT = 1  # s; every other process that waits does so for as long
LONGEST_LINGER = 3600  # s; the validity of an idle key ends it before in any case
LONGEST_CLIENT_NAME = 200  # bytes; each line of CLIENT LIST has it
ALLOWED_DURATION = f"above 0 to {LONGEST_TTL} s"
ALLOWED_COHORT = f"0 (never) to {LONGEST_COHORT} s"
ALLOWED_LINGER = f"0 (not at all) to {LONGEST_LINGER} s"


class NoExpiry(float):
    """The ttl of a key that stays until it is released; see `NO_EXPIRY`."""

    __slots__ = ()


# For replacing libraries that write keys without expiry: the holder's crash blocks
# everybody until a person deletes the key. So it has a name, and infinity is refused.
NO_EXPIRY = NoExpiry("inf")

# In place of a max_ttl: a client that takes no locks needs no restart guard.
TAKES_NO_LOCKS: float = NoExpiry("nan")


class OnlyLooks(float):
    """A max_ttl of a client that keeps no marker and begins no quarantine."""

    __slots__ = ()


class Settings:
    """Hold the checked options and turn each call's arguments into integers."""

    endpoints: tuple[Endpoint, ...]
    electorate: Electorate

    def __init__(
        self,
        masters: Iterable[Master],
        resource: str | bytes = "fastredlock",
        *,
        ttl: float = DEFAULT_TTL,  # s, as on the Redlock page
        retry: Retry = Retry(),  # noqa: B008 - frozen
        drift_factor: float = 0.01,  # of the ttl, as on the Redlock page
        round_timeout: float | None = None,  # s; None: a share of the ttl
        connect_timeout: float = 1.0,  # s; a server that is there accepts
        max_ttl: float | None = None,  # s; None: without the restart guard
        new_token: Callable[[], bytes | str] | None = None,  # None: random bytes
        release_script: bytes | None = None,  # None: that of the Redlock page
        credentials: Credentials | None = None,  # None: those of the masters
        client_name: str = "fastredlock",
        key_prefix: str | bytes = "",  # keys are the resources, as other clients'
        owner: str | None = None,  # None: host:pid
        observer: object | None = None,  # None: nobody is notified
        fencing: bool = False,  # leases have no number
        cohort: float = 0.002,  # s; longer, and other processes wait for longer
        linger: float = 0.0,  # s; a released key is not kept for the next caller here
        changing_to: Iterable[Master] | None = None,  # the masters stay as they are
        strict_masters: bool = False,  # other lists are warned of
    ) -> None:
        self.endpoints, self.electorate = parse_lists(masters, changing_to)
        if credentials is not None:
            self.endpoints = with_credentials(self.endpoints, credentials)
        self._set_key_prefix(key_prefix)
        self.client_name: bytes = checked_client_name(client_name)
        self.servers_may_be_same: bool = isinstance(masters, SameServerAllowed)
        encode_resource(resource)
        self.resource: str | bytes = resource
        if not isinstance(retry, Retry):
            raise refused("retry", retry, "a Retry")
        self.retry: Retry = retry
        self.drift_factor: float = drift_factor_in(drift_factor)
        self.round_timeout_ns: int | None = optional_ns("round_timeout", round_timeout)
        self.connect_timeout_ns: int = positive_ns("connect_timeout", connect_timeout)
        self._set_max_ttl(max_ttl)
        self._set_tokens(new_token, owner)
        if not (release_script is None or type(release_script) is bytes):
            raise refused("release_script", release_script, "None or bytes")
        self.release_script: bytes | None = release_script  # the server reads the Lua
        self.fencing: bool = checked_flag("fencing", fencing)
        seconds = number_in("cohort", cohort, 0, LONGEST_COHORT, ALLOWED_COHORT)
        self.cohort_ns: int = int(seconds * NS_PER_S)
        if fencing or new_token is not None or release_script is not None:
            self.cohort_ns = 0  # each grant has its own number, token or release
        self.linger_ns: int = self._checked_linger_ns(linger)
        self._has_warned_long = False
        if observer is not None:
            from ..observer import check  # only where there is one

            check(observer)
        self.observer: object | None = observer
        self.default_terms: Terms = self._new_terms(ttl)
        takes_locks = max_ttl is not TAKES_NO_LOCKS and not self.only_looks
        self.lists: Lists | None = self._lists(strict_masters) if takes_locks else None
        for text in of_even_numbers(self.electorate):
            warn("%s", text)

    def _lists(self, strict_masters: bool) -> Lists:
        is_strict = checked_flag("strict_masters", strict_masters)
        max_ttl_ms = self.max_ttl_ns // NS_PER_MS
        given = self.endpoints, self.electorate, self.key_prefix, max_ttl_ms, is_strict
        return lists_told(*given, self.token_source)

    def _set_key_prefix(self, key_prefix: str | bytes) -> None:
        self.key_prefix: bytes = checked_key_prefix(key_prefix)
        braces = {*b"{}"} & {*self.key_prefix}
        is_half = braces and self.key_prefix.partition(b"{")[2].find(b"}") < 1
        if is_half and any(endpoint.seeds for endpoint in self.endpoints):
            raise ConfigurationError(
                f"key_prefix={key_prefix!r}: in a cluster braces are of a hash tag, "
                "which has to be whole"
            )

    def _set_max_ttl(self, max_ttl: float | None) -> None:
        if max_ttl is TAKES_NO_LOCKS:
            max_ttl = None
        elif max_ttl is None:
            refuse_unguarded(self.endpoints)
        self.max_ttl_ns: int = optional_ns("max_ttl", max_ttl) or 0
        self.only_looks: bool = isinstance(max_ttl, OnlyLooks)
        self.max_ttl: float | None = None if max_ttl is None else number_of(max_ttl)

    def _set_tokens(
        self, new_token: Callable[[], bytes | str] | None, owner: str | None
    ) -> None:
        self.new_token: Callable[[], bytes]
        self.token_source: TokenSource | None = None  # None: new_token is given
        if new_token is None:
            self.token_source = new_token_source(owner)
            self.new_token = self.token_source.draw
        else:
            self.new_token = checked_new_token(new_token, owner)

    def _checked_linger_ns(self, linger: float) -> int:
        seconds = number_in("linger", linger, 0, LONGEST_LINGER, ALLOWED_LINGER)
        has = (self.fencing and "fencing") or (
            (self.release_script is not None and "release_script")
            or (self.token_source is None and "new_token")
        )
        linger_ns = int(seconds * NS_PER_S)
        if linger_ns and has:
            raise ConfigurationError(
                f"linger with {has}: each grant has its own number, token or release, "
                "so no key can wait for the next one"
            )
        return linger_ns

    def lingering(self, ttl: float | None, linger: float) -> Any:
        """Return, in place of a ttl, the times of a lease that lingers otherwise."""
        linger_ns = self._checked_linger_ns(linger)
        terms = self.terms(ttl)
        return Terms(
            terms.ttl_ms, terms.drift_ns, terms.timeout_ns, terms.has_expiry, linger_ns
        )

    def terms(self, ttl: float | Terms | None) -> Terms:
        """Turn a ttl (s; None: the default) into the times of a round."""
        if ttl is None:
            return self.default_terms
        if isinstance(ttl, Terms):
            return ttl
        return self._new_terms(ttl)

    def _new_terms(self, ttl: float) -> Terms:
        if isinstance(ttl, NoExpiry) and self.max_ttl is None:
            return self._terms_without_expiry()
        longest = LONGEST_TTL if self.max_ttl is None else self.max_ttl
        seconds = number_of(ttl)
        ttl_ms = round(seconds * 1000) if 0 < seconds <= longest else 0
        drift_ns = self.drift_ns(ttl_ms)
        if ttl_ms * NS_PER_MS <= drift_ns:
            shortest_ms = 1
            while shortest_ms * NS_PER_MS <= self.drift_ns(shortest_ms):
                shortest_ms += 1
            by = "" if self.max_ttl is None else " (max_ttl)"
            if ttl is DEFAULT_TTL:
                by += "; that ttl is the default: give one beside max_ttl"
            if isinstance(ttl, NoExpiry):
                by += ", and no lock without expiry (give timeout= or expire=)"
            allowed = (
                f"{shortest_ms / 1000} to {longest} s{by}; drift takes off "
                f"{self.drift_factor:.2%} and 2 ms"
            )
            raise refused_number("ttl", ttl, allowed)
        if seconds > LONG_TTL and not self._has_warned_long:
            self._has_warned_long = True
            text = (
                "ttl=%r: %.1f hours, for which a crashed holder blocks all others; it "
                "is in seconds, not in milliseconds"
            )
            warn(text, ttl, seconds / 3600)
        timeout_ns = self._timeout_ns(ttl_ms)
        return Terms(ttl_ms, drift_ns, timeout_ns, True, self.linger_ns)

    def _terms_without_expiry(self) -> Terms:
        ttl_ms = LONGEST_TTL * 1000
        timeout_ns = self._timeout_ns(DEFAULT_TTL_MS)
        return Terms(ttl_ms, self.drift_ns(ttl_ms), timeout_ns, False)

    def _timeout_ns(self, ttl_ms: int) -> int:
        if self.round_timeout_ns is not None:
            return self.round_timeout_ns
        share_ns = ttl_ms * NS_PER_MS // ROUND_SHARE
        return max(SHORTEST_ROUND_TIMEOUT_NS, min(share_ns, LONGEST_ROUND_TIMEOUT_NS))

    def drift_ns(self, ttl_ms: int) -> int:
        """Return how far the clocks may differ in a ttl, as on the Redlock page."""
        return int(ttl_ms * NS_PER_MS * self.drift_factor) + FIXED_DRIFT_NS


def of_even_numbers(electorate: Electorate) -> Iterator[str]:
    """Yield the advice for each list with an even number of masters."""
    for members in sorted({electorate.first, electorate.second}):
        count = members.bit_count()
        survived, fewer = count - Electorate(count).quorum, count - 1
        text = f"{count} masters survive the loss of {survived}, as {fewer} would: "
        if count % 2 == 0:
            yield text + "use an odd number"


def refuse_unguarded(endpoints: tuple[Endpoint, ...]) -> None:
    """Raise ConfigurationError where a failover could give a lock to two holders."""
    for endpoint in endpoints:
        fails_over = endpoint.sentinels is not None or endpoint.seeds
        if fails_over and not endpoint.lossless_failover:
            raise ConfigurationError(
                f"{endpoint.name} needs max_ttl, the longest ttl of all clients: after "
                "a failover nobody may lock until the leases that it lost have ended"
            )


# ---- one option each


drift_factor_in = partial(number_in, "drift_factor", low=0, high=0.5, allowed="0-0.5")


def checked_new_token(
    new_token: Callable[[], bytes | str], owner: str | None
) -> Callable[[], bytes]:
    if owner is not None:
        raise ConfigurationError(
            f"owner={owner!r}: new_token makes the whole token, so give one of the two"
        )
    if not callable(new_token):
        raise refused_type("new_token", new_token, "a callable")

    def new_checked_token() -> bytes:
        return encode_token(new_token())

    return new_checked_token


def checked_key_prefix(prefix: str | bytes) -> bytes:
    key = utf8_or_bytes(prefix)
    if key is None or len(key) > LONGEST_PREFIX:
        allowed = f"text or bytes, up to {LONGEST_PREFIX}"
        raise refused("key_prefix", prefix, allowed)
    # Else a resource could make a name of fastredlock's own complete.
    is_begun = any(
        key.endswith(name[:end])
        for name in PER_RESOURCE
        for end in range(len(OWN), len(name))
    )
    is_own = any(reserved.startswith(key) for reserved in RESERVED)
    if key and (is_own or is_begun or used_in(key)):
        raise ConfigurationError(
            f"key_prefix={prefix!r}: keys of fastredlock's own have such names"
        )
    return key


def checked_client_name(name: str) -> bytes:
    """Return the name of the connections; a server takes none with a space in it."""
    is_text = isinstance(name, str) and 1 <= len(name) <= LONGEST_CLIENT_NAME
    if not is_text or not all("!" <= char <= "~" for char in name):
        raise ConfigurationError(
            f"client_name={name!r}: allowed are 1 to {LONGEST_CLIENT_NAME} characters "
            "of ASCII, without spaces"
        )
    return name.encode()


def checked_flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise refused(name, value, "True or False")
    return value


def checked_fence(fence: int | None) -> int:
    """Return the number of an adopted lease, 0 where it is not known."""
    if fence is None:
        return 0
    is_whole = isinstance(fence, int) and not isinstance(fence, bool)
    if not is_whole or not 0 < fence <= LARGEST_FENCE:
        raise refused("fence", fence, "None or the `fence` of a lease")
    return fence


def optional_ns(name: str, value: float | None) -> int | None:
    return None if value is None else positive_ns(name, value)


def positive_ns(name: str, value: float) -> int:
    seconds = number_in(name, value, LEAST_FLOAT, LONGEST_TTL, ALLOWED_DURATION)
    return max(1, int(seconds * NS_PER_S))


def timeout_to_ns(timeout: float | None) -> int | None:
    """Turn a caller's timeout (s) into ns; None and infinity wait without end."""
    if timeout is None:
        return None
    seconds = number_of(timeout)
    if not seconds >= 0:  # NaN compares as False
        allowed = "None (no limit) or 0 s (one try) and more"
        raise refused_number("timeout", timeout, allowed)
    return None if seconds > LONGEST_TTL else int(seconds * NS_PER_S)


# ---- arguments that a call does not have

OF_CALLS = (
    *("ttl", "timeout", "keep_alive", "on_lost", "at_least"),
    *("reentrant", "skip", "linger", "permits"),
)
TAKEN_BY = {"permits": "semaphore()"}  # the others: by lock()
ELSEWHERE = {  # the words of redis-py and python-redis-lock
    "blocking_timeout": "timeout",
    "blocking": "timeout (0: one try)",
    "expire": "ttl",
}


def settings_of_call(
    class_name: str, given: tuple[Any, ...], options: dict[str, Any]
) -> Settings:
    """Return the checked settings of a call of this class's constructor.

    Raises TypeError, in the constructor's name, for arguments that it does not have.
    """
    try:
        return Settings(*given, **options)
    except TypeError as error:
        trace = error.__traceback__
        if trace is None or trace.tb_next is not None:
            raise  # of an iterable or a function that was given
        text = str(error).partition(". Did you mean")[0]  # CPython's, from 3.13 on
    known = Settings.__init__.__annotations__
    unknown = next((name for name in options if name not in known), "")
    raise TypeError(text.replace("Settings", class_name, 1) + advice(unknown, known))


def unexpected(call: str, unknown: dict[str, Any]) -> TypeError:
    """Return the error of a call with arguments that it does not have."""
    name = next(iter(unknown))
    text = f"FastRedlock.{call}() got an unexpected keyword argument {name!r}"
    return TypeError(text + advice(name, OF_CALLS))


def advice(unknown: str, known: Iterable[str]) -> str:
    here = ELSEWHERE.get(unknown, unknown)
    if here != unknown or (unknown in OF_CALLS and unknown not in known):
        return f": {here} is given to acquire() and lock()"
    from difflib import get_close_matches  # for a mistake alone

    if unknown in known:
        return f": {unknown} is given to {TAKEN_BY.get(unknown, 'lock()')}"
    near = get_close_matches(unknown, known, 1)
    return f". Did you mean {near[0]!r}?" if near else ""


# ---- the environment

MASTERS = "FASTREDLOCK_MASTERS"
CHANGING_TO = "FASTREDLOCK_CHANGING_TO"
CONFIG = "FASTREDLOCK_CONFIG"
TTLS = {"FASTREDLOCK_TTL": "ttl", "FASTREDLOCK_MAX_TTL": "max_ttl"}
# Of the command of `fastredlock run`, and of a build.
OTHERS = ("RESOURCE", "TOKEN", "SLOT", "FENCE", "DEBUG", "PORTABLE", "SANITIZE")
TEXTS = ("masters", "changing_to", "key_prefix")  # the others are numbers
DURATIONS = ("ttl", "max_ttl", "round_timeout", "connect_timeout")
# Of the file, each by itself, so that the error names the file.
CHECKS: dict[str, Callable[[Any], object]] = {
    "masters": lambda masters: masters and parse_masters(masters),
    "changing_to": parse_masters,
    "key_prefix": checked_key_prefix,
    **{name: partial(positive_ns, name) for name in DURATIONS},
    "drift_factor": drift_factor_in,
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
    Reads the file, if one is named, and nothing else. Raises ConfigurationError. A
    variable that looks like one of ours, and is none, is named in a warning.
    """
    options = _options_of_file(os.environ.get(CONFIG, ""))
    listed = options.get("masters")
    others = {f"FASTREDLOCK_{name}" for name in OTHERS}
    known = {MASTERS, CHANGING_TO, CONFIG, *TTLS, *others}
    unread = {name for name in os.environ if name.startswith("FASTREDLOCK_")} - known
    if unread:
        warn_once("%s: not read, no such variable", ", ".join(sorted(unread)))
    for variable, name in TTLS.items():
        if text := os.environ.get(variable):
            options[name] = _seconds(f"${variable}", text)
    if masters is not None:
        options["masters"] = masters
    elif text := os.environ.get(MASTERS):
        options["masters"] = masters_in(text, f"${MASTERS}: ")
    if options.get("masters") is not listed:  # what another list changes to
        options.pop("changing_to", None)
    if masters is None and (text := os.environ.get(CHANGING_TO)):
        options["changing_to"] = masters_in(text, f"${CHANGING_TO}: ")
    return options


def _seconds(name: str, text: str) -> float:
    seconds: Any = text
    with suppress(ValueError):
        seconds = float(text)
    positive_ns(name, seconds)
    return seconds  # type: ignore[no-any-return]


def from_environment(given: dict[str, Any], in_memory: bool) -> dict[str, Any]:
    """Return the options of a constructor: those that are given, then these.

    Where none has masters, a program that is tested gets some.
    """
    options = options_of_environment()
    if "masters" in given:
        options.pop("changing_to", None)
    if not options.get("masters") and (in_memory or PLUGIN in sys.modules):
        options["masters"] = IN_TESTS
    if not options.get("masters"):
        raise ConfigurationError(f"no masters: {REMEDY}")
    if "unreachable_tries" in options:
        options["retry"] = Retry(unreachable_tries=options.pop("unreachable_tries"))
    return options | given


def masters_in(text: str, source: str = "") -> tuple[str, ...]:
    """Return the URLs in a list with commas; `source` begins the error."""
    urls: list[str] = []
    for part in map(str.strip, text.split(",")):
        if "://" in part.replace(" ", ";").partition(";")[2]:  # as those of Celery
            raise ConfigurationError(f"{source}write a comma between two URLs")
        last = urls[-1].lower() if urls else ""
        of_many = "+sentinel://" in last or "+cluster://" in last
        if part and "://" not in part and of_many and last.count("/") == 2:
            urls[-1] += f",{part}"  # one more of its sentinels, or nodes
        else:
            urls.append(part)
    if not all(urls):
        raise ConfigurationError(f"{source}one of the URLs is empty")
    return tuple(urls)


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
