"""The blocking driver: it runs rounds in the thread that calls.

A driver holds the engine of one FastRedlock, and its settings. Acquires and leases hold
the driver alone: a lease can be released after its FastRedlock was collected.
"""

from __future__ import annotations

from .._core import (
    ClosedError,
    Engine,
    Script,
    Scripts,
    StateError,
    blocking_abandon,
    blocking_close,
    blocking_run,
    draw_token,
    fork_generation,
    now_ns,
)
from .._options import scripts
from .._reports.log import warn
from ..errors import FastRedlockError, InternalError

TYPE_CHECKING = False  # typing's: its import would take a third of ours
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from .. import _core
    from .._core import Batch, Round
    from .._options.endpoint import Endpoint
    from .._options.settings import Settings
    from .kept import Kept

# For which close() waits where a master is silent. On two cores with ten processes,
# servers stood still for 0.1 s in 1 % of closes, and 900 keys then stood for their ttl.
CLOSE_WITHIN_NS = 250_000_000
CLOSED = "this FastRedlock is closed"
REPORT = "please report this"


def refuse_pickling(self: object) -> NoReturn:
    """Raise the error of pickling or copying a FastRedlock, or anything that needs it.

    The `__reduce__` of both, for a lease is pickled with its driver.
    """
    raise TypeError(
        "a FastRedlock cannot be pickled: make one in each process, and pass "
        "lease.token to adopt() there"
    )


class BaseDriver:
    """Hold an engine and its settings, and log its warnings; see `Driver`."""

    __slots__ = ("engine", "keeper", "settings", "warned")

    keeper: Any  # of the leases that are kept, or None
    current: _core.AsyncioDriver | None = None  # see LoopDriver

    # A lease reads its clock and its process here: tests set them.
    now_ns = staticmethod(now_ns)
    fork_generation = staticmethod(fork_generation)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = new_engine(settings)
        self.keeper = None
        self.warned = 0  # how many of the engine's warnings have been logged

    __reduce__ = refuse_pickling

    def keep(self, kept: Kept) -> None:
        """Keep a lease from now on, or look at its times again."""
        raise NotImplementedError

    def log_warnings(self) -> None:
        """Log the engine's warnings that have not been logged."""
        # Counted before they are logged: a handler may take a lock, and come here.
        count = len(self.engine.warnings)
        new = self.engine.warnings[self.warned : count]
        self.warned = count
        for name, text in new:
            warn("%s: %s", name, text)


class Driver(BaseDriver):
    """Run rounds in the thread that calls; any number of threads may."""

    __slots__ = ()

    def run(self, work: Round | Batch) -> None:
        """Run a round or a batch until it is closed; a lost one is rolled back.

        Blocks. Raises FastRedlockError after close(). An exception of a signal handler
        rolls all back.
        """
        try:
            warnings = blocking_run(self.engine, work)
        except ClosedError as error:
            raise FastRedlockError(CLOSED) from error
        except StateError as error:
            raise InternalError(f"{REPORT}: {error}") from error
        if warnings > self.warned:
            self.log_warnings()

    def abandon(self, work: Round | Batch) -> None:
        """Roll back a round or a batch whose caller has left; blocks."""
        blocking_abandon(self.engine, work)

    def close(self) -> None:
        """Close all connections; blocks for releases not yet confirmed."""
        blocking_close(self.engine, CLOSE_WITHIN_NS)

    def keep(self, kept: Kept) -> None:
        """Keep a lease from now on, or look at its times again; does not block."""
        keeper = self.keeper
        if keeper is None or keeper.generation != self.fork_generation():
            from .keeper import Keeper  # threads and queues: where something is kept
            from .kept import first

            self.keeper = None
            keeper = first(self, "keeper", Keeper(self.fork_generation()))
        keeper.keep(kept, self)


def new_engine(settings: Settings) -> Engine:
    """Make the engine of these masters; reads certificates, and connects nothing."""
    return Engine(
        settings.endpoints,
        new_scripts(settings.release_script, settings.fencing),
        settings.connect_timeout_ns,
        tls_contexts(settings.endpoints),
        settings.max_ttl_ns,
        tokens_are_given=settings.new_token is not draw_token,
        servers_may_be_same=settings.servers_may_be_same,
    )


def new_scripts(given_release: bytes | None, is_fencing: bool) -> Scripts:
    """Return the scripts of an engine."""
    named = named_scripts(given_release, is_fencing)
    return Scripts(**named, releases_natively=given_release is None)


def named_scripts(given_release: bytes | None, is_fencing: bool) -> dict[str, Script]:
    """Return the scripts of an engine, by the names that `Scripts` has for them."""
    named = {
        "extend": Script(scripts.EXTEND, scripts.EXTEND_SHA1),
        "release": release_script(given_release),
        "inspect": Script(scripts.INSPECT, scripts.INSPECT_SHA1),
        "acquire_all": Script(scripts.ACQUIRE_ALL, scripts.ACQUIRE_ALL_SHA1),
        "extend_all": Script(scripts.EXTEND_ALL, scripts.EXTEND_ALL_SHA1),
        "release_all": Script(scripts.RELEASE_ALL, scripts.RELEASE_ALL_SHA1),
        "acquire_again": Script(scripts.ACQUIRE_AGAIN, scripts.ACQUIRE_AGAIN_SHA1),
        "probe": probe_script(given_release),
        "marker": Script(scripts.MARKER, scripts.MARKER_SHA1),
        **queue_scripts(given_release),
    }
    if is_fencing:
        from .._options.fence_scripts import FENCED  # where it is used

        for name, (source, sha1) in FENCED.items():
            if name in named or name == "write_fence":
                named[name] = Script(source, sha1)
    return named


def release_script(given: bytes | None) -> Script:
    """Return the script that releases one key: ours, or the one given."""
    if given is None:
        return Script(scripts.RELEASE, scripts.RELEASE_SHA1)
    from hashlib import sha1  # costs a millisecond: not at import

    return Script(given, sha1(given, usedforsecurity=False).hexdigest().encode())


def queue_scripts(given: bytes | None) -> dict[str, Script]:
    """Return the scripts of the queues; none where the release is the caller's."""
    if given is not None:
        return {}
    return {
        "ask_turn": Script(scripts.ASK_TURN, scripts.ASK_TURN_SHA1),
        "leave_queue": Script(scripts.LEAVE_QUEUE, scripts.LEAVE_QUEUE_SHA1),
        "take_turn": Script(scripts.TAKE_TURN, scripts.TAKE_TURN_SHA1),
        "release_and_tell": Script(
            scripts.RELEASE_AND_TELL, scripts.RELEASE_AND_TELL_SHA1
        ),
    }


def probe_script(given: bytes | None) -> Script:
    """Return the script that tries the commands of the release script."""
    if given is None:
        return Script(scripts.PROBE, scripts.PROBE_SHA1)
    return Script(scripts.PROBE_CALL, scripts.PROBE_CALL_SHA1)


def tls_contexts(endpoints: tuple[Endpoint, ...]) -> tuple[Any, ...]:
    """Return an ssl.SSLContext (or None) per endpoint; () where none has TLS."""
    if all(endpoint.tls is None for endpoint in endpoints):
        return ()
    from .._options.tls import context_of  # imports ssl: only where it is used

    return tuple(
        None if endpoint.tls is None else context_of(endpoint.name, endpoint.tls)
        for endpoint in endpoints
    )
