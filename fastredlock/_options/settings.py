"""What a FastRedlock was given, checked: every bad value is refused before any I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .._core import Engine, Script, Scripts, Terms, draw_token
from .._reports.log import warn
from .._reports.votes import printable
from ..errors import ConfigurationError
from . import scripts
from .retry import Retry, number_of

TYPE_CHECKING = False  # as typing's, whose import would be a third of ours
if TYPE_CHECKING:
    from typing import Any

    from .endpoint import Endpoint

LONGEST_TTL = 1_000_000_000  # s, 31 years: nanoseconds stay far inside int64
NS_PER_MS = 1_000_000
FIXED_DRIFT_NS = 2_000_000  # a server expires keys at whole milliseconds (Redlock page)
ROUND_SHARE = 20  # a round may take 1/20 of the ttl (Redlock page: 5-50 ms of 10 s)
SHORTEST_ROUND_TIMEOUT_NS = 5_000_000  # below that, a busy scheduler is a dead server
LONGEST_ROUND_TIMEOUT_NS = 1_000_000_000  # a caller does not wait longer for the mute
DEFAULT_TTL_MS = 10_000
LONGEST_RESOURCE = 1_048_576  # bytes; each round sends it whole to every master
RESERVED = frozenset((b"fastredlock:voter", b"fastredlock:quarantine"))
LONGEST_TOKEN = 262_144  # bytes; scripts.INSPECT tells no longer value


class NoExpiry(float):
    """The ttl of a key that stays until it is released; see `NO_EXPIRY`."""

    __slots__ = ()


# For replacing libraries that write keys without expiry: the holder's crash blocks
# everybody until a person deletes the key. So it has a name, and infinity is refused.
NO_EXPIRY = NoExpiry("inf")


class Settings:
    """Hold the checked options and turn each call's arguments into integers."""

    __slots__ = (
        "connect_timeout_ns",
        "default_terms",
        "drift_factor",
        "endpoints",
        "max_ttl",
        "new_token",
        "release_script",
        "resource",
        "retry",
        "round_timeout_ns",
        "servers_may_be_same",
        "tls_contexts",
    )

    def __init__(
        self,
        masters: Iterable[object],
        resource: str | bytes,
        *,
        ttl: float,
        retry: Retry,
        drift_factor: float,
        round_timeout: float | None,
        connect_timeout: float,
        max_ttl: float | None,
        new_token: Callable[[], bytes | str] | None,
        release_script: bytes | None = None,
    ) -> None:
        from .url import (  # 4 ms of 25: when the first client is made
            SameServerAllowed,
            parse_masters,
        )

        self.endpoints: tuple[Endpoint, ...] = parse_masters(masters)
        self.servers_may_be_same = isinstance(masters, SameServerAllowed)
        self.tls_contexts = tls_contexts(self.endpoints)
        self.resource = resource
        encode_resource(resource)
        if not isinstance(retry, Retry):
            raise ConfigurationError(f"retry={retry!r}: allowed is a Retry")
        self.retry = retry
        self.drift_factor = number_of(drift_factor)
        if not 0 <= self.drift_factor <= 0.5:
            raise ConfigurationError(f"drift_factor={drift_factor!r}: allowed is 0-0.5")
        self.round_timeout_ns = (
            None
            if round_timeout is None
            else positive_ns("round_timeout", round_timeout)
        )
        self.connect_timeout_ns = positive_ns("connect_timeout", connect_timeout)
        if max_ttl is not None:
            positive_ns("max_ttl", max_ttl)
        self.max_ttl = None if max_ttl is None else number_of(max_ttl)
        if new_token is not None and not callable(new_token):
            raise ConfigurationError(
                f"new_token of type {type(new_token).__name__}: allowed is a callable"
            )
        self.new_token = draw_token if new_token is None else checked(new_token)
        if not (release_script is None or type(release_script) is bytes):
            raise ConfigurationError(
                f"release_script={release_script!r}: allowed is None or bytes"
            )
        self.release_script = release_script
        self.default_terms = self.terms(ttl)
        if len(self.endpoints) % 2 == 0:
            warn_even(len(self.endpoints))

    def new_engine(self) -> Engine:
        """Make the engine for these masters; nothing is connected yet."""
        return Engine(
            self.endpoints,
            Scripts(
                extend=Script(scripts.EXTEND, scripts.EXTEND_SHA1),
                release=self._release(),
                inspect=Script(scripts.INSPECT, scripts.INSPECT_SHA1),
                acquire_all=Script(scripts.ACQUIRE_ALL, scripts.ACQUIRE_ALL_SHA1),
                extend_all=Script(scripts.EXTEND_ALL, scripts.EXTEND_ALL_SHA1),
                release_all=Script(scripts.RELEASE_ALL, scripts.RELEASE_ALL_SHA1),
                acquire_again=Script(scripts.ACQUIRE_AGAIN, scripts.ACQUIRE_AGAIN_SHA1),
                probe=self._probe(),
                marker=Script(scripts.MARKER, scripts.MARKER_SHA1),
            ),
            self.connect_timeout_ns,
            self.tls_contexts,
            0 if self.max_ttl is None else positive_ns("max_ttl", self.max_ttl),
            tokens_are_given=self.new_token is not draw_token,
            servers_may_be_same=self.servers_may_be_same,
        )

    def _release(self) -> Script:
        if self.release_script is None:
            return Script(scripts.RELEASE, scripts.RELEASE_SHA1)
        from hashlib import sha1  # costs a millisecond: only for those who give one

        digest = sha1(self.release_script, usedforsecurity=False).hexdigest()
        return Script(self.release_script, digest.encode())

    def _probe(self) -> Script:
        if self.release_script is None:
            return Script(scripts.PROBE, scripts.PROBE_SHA1)
        return Script(scripts.PROBE_CALL, scripts.PROBE_CALL_SHA1)

    def terms(self, ttl: float) -> Terms:
        """Turn a ttl (s) into the times of a round."""
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
            raise ConfigurationError(
                f"ttl={ttl!r}: allowed is {shortest_ms / 1000} to {longest} s{by}; "
                f"drift takes off {self.drift_factor:.2%} and 2 ms"
            )
        return Terms(ttl_ms, drift_ns, self._timeout_ns(ttl_ms))

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
        """Return what the clocks may differ in a ttl, as on the Redlock page."""
        return int(ttl_ms * NS_PER_MS * self.drift_factor) + FIXED_DRIFT_NS


def tls_contexts(endpoints: tuple[Endpoint, ...]) -> tuple[Any, ...]:
    """Return an ssl.SSLContext (or None) per endpoint; () where none has TLS."""
    if all(endpoint.tls is None for endpoint in endpoints):
        return ()
    from .tls import context_of  # imports ssl: only for those who use it

    return tuple(
        None if endpoint.tls is None else context_of(endpoint.name, endpoint.tls)
        for endpoint in endpoints
    )


def warn_even(count: int) -> None:
    """Log that one master of an even number is of no use."""
    warn(
        "%d masters survive the loss of %d, as %d would: use an odd number",
        count,
        (count - 1) // 2,
        count - 1,
    )


def encode_resource(resource: str | bytes) -> bytes:
    """Return the key: the resource's bytes, without prefix."""
    key = utf8_or_bytes(resource)
    if key is None and isinstance(resource, str):
        raise ConfigurationError(
            f"resource={printable(resource)}: not valid Unicode; give bytes instead"
        )
    if key is None:
        raise ConfigurationError(
            f"resource of type {type(resource).__name__}: allowed is str or bytes"
        )
    if not key:
        raise ConfigurationError(f"resource={resource!r}: must not be empty")
    if len(key) > LONGEST_RESOURCE:
        raise ConfigurationError(
            f"resource of {len(key)} bytes: allowed are up to {LONGEST_RESOURCE}"
        )
    if key in RESERVED:
        raise ConfigurationError(
            f"resource={printable(resource)}: the restart guard (max_ttl) keeps its "
            "own there"
        )
    return key


def utf8_or_bytes(value: object) -> bytes | None:
    """Return a str as UTF-8, bytes as they are; None of anything else.

    A subclass of either is taken for what is stored in it.
    """
    if isinstance(value, str):
        try:
            return str.encode(value)
        except UnicodeEncodeError:  # which keeps the value: no other error follows it
            return None
    if isinstance(value, bytes):
        return value if type(value) is bytes else bytes(memoryview(value))
    return None


def listed(resources: Iterable[str | bytes]) -> list[str | bytes]:
    """Return the resources as a list; one alone is refused, not taken apart."""
    if isinstance(resources, str | bytes) or not isinstance(resources, Iterable):
        raise ConfigurationError(
            f"resources={resources!r}: allowed is an iterable of str or bytes"
        )
    return list(resources)


def distinct(resources: Iterable[str | bytes]) -> tuple[str | bytes, ...]:
    """Return each resource once, in the order given."""
    return tuple({encode_resource(each): each for each in listed(resources)}.values())


def encode_each(resources: list[str | bytes]) -> list[bytes]:
    """Return the keys of many resources: as `encode_resource`, without its calls."""
    try:
        keys = [each.encode() if type(each) is str else each for each in resources]
    except UnicodeEncodeError:
        keys = []
    is_plain = len(keys) == len(resources) and {*map(type, keys)} <= {bytes}
    if (
        is_plain
        and all(keys)
        and max(map(len, keys), default=0) <= LONGEST_RESOURCE
        and RESERVED.isdisjoint(keys)
    ):
        return keys  # type: ignore[return-value]
    return [encode_resource(resource) for resource in resources]


def encode_resources(resources: tuple[str | bytes, ...]) -> tuple[bytes, ...]:
    """Return the keys of several resources, sorted: the same for every caller."""
    keys = {encode_resource(resource) for resource in resources}
    if not keys:
        raise ConfigurationError("resources: must not be empty")
    return tuple(sorted(keys))


def timeout_to_ns(timeout: float | None) -> int | None:
    """Turn a caller's timeout (s) into ns; None and infinity wait without end."""
    if timeout is None:
        return None
    seconds = number_of(timeout)
    if not seconds >= 0:  # NaN compares as False
        raise ConfigurationError(
            f"timeout={timeout!r}: allowed is None (no limit) or 0 s (one try) and more"
        )
    return None if seconds > LONGEST_TTL else int(seconds * 1_000_000_000)


def positive_ns(name: str, value: float) -> int:
    """Check a duration option (s) and turn it into ns."""
    seconds = number_of(value)
    if not 0 < seconds <= LONGEST_TTL:
        raise ConfigurationError(
            f"{name}={value!r}: allowed is above 0 to {LONGEST_TTL} s"
        )
    return max(1, int(seconds * 1_000_000_000))


def checked(new_token: Callable[[], bytes | str]) -> Callable[[], bytes]:
    """Wrap a caller's new_token: its result becomes bytes, or a clear error."""

    def checked_new_token() -> bytes:
        return encode_token(new_token())

    return checked_new_token


def encode_token(token: bytes | str) -> bytes:
    """Return a token's bytes; neither the error of a bad one nor its context has it."""
    value = utf8_or_bytes(token)
    if value is None and isinstance(token, str):
        raise ConfigurationError("token: not valid Unicode; give bytes")
    if not value:
        raise ConfigurationError(
            f"token of type {type(token).__name__}: allowed is str or bytes, not empty"
        )
    if len(value) > LONGEST_TOKEN:
        raise ConfigurationError(
            f"token of {len(value)} bytes: allowed are up to {LONGEST_TOKEN}"
        )
    return value
