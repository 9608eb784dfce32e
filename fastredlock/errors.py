"""The errors of fastredlock, sorted by the remedy.

    FastRedlockError
     +-- ConfigurationError (ValueError)   a bad argument: raised before any I/O
     |    +-- TokenReusedError             new_token gave an old one: give a fresh one
     +-- AcquireError                      carries a vote per master
     |    +-- ResourceTakenError           try later: others hold it
     |    +-- QuorumUnreachableError       look at the servers
     |    +-- ValidityExhaustedError       ttl too short for these round trips
     |    +-- ForeignKeyError              rename: another program uses that key
     +-- ReentryError                      the caller holds it: it would never get it
     +-- LeaseLostError                    stop working: others may hold it
     +-- NotExtendedError                  still held: try again, or end in time
     +-- InternalError                     a bug of ours: please report it

A message names the resource, the counts and the vote of each master; never a token
and never a password.
"""

from __future__ import annotations

from ._reports.votes import MasterVote, Resource, describe_votes, printable


class FastRedlockError(Exception):
    """Catch every error of this package."""

    what_happened = ""

    def __str__(self) -> str:
        try:
            return self._text()
        except Exception:  # half-made, or of other arguments: as JSON gives them back
            said = [self.what_happened, *map(str, self.args)]
            return ": ".join(filter(None, said)) or type(self).__name__

    def _text(self) -> str:
        return super().__str__()


class ConfigurationError(FastRedlockError, ValueError):
    """Report an argument outside its allowed range; nothing was sent.

    Or a decorated function whose body would run without its lock, which may be seen
    only by what it has returned.
    """


class TokenReusedError(ConfigurationError):
    """Report a token whose last release is not confirmed; the resource is not acquired.

    That release may still be under way, and would delete the new lock. Let `new_token`
    return a fresh token from every call. Attribute: `resource`, as given.
    """

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.resource = resource

    def _text(self) -> str:
        return (
            f"{printable(self.resource)}: not acquired: new_token returned a token "
            "that was used for it before, and a release of that use is not confirmed; "
            "let every call return a fresh one"
        )


class InternalError(FastRedlockError):
    """Report a state that the code rules out: our bug, please report it."""


class AcquireError(FastRedlockError):
    """Report that a resource was not acquired; no lease is held.

    Attributes: `resource` (str or bytes, as given; of acquire_all a tuple), `votes`
    (`tuple[MasterVote, ...]`, one per configured master, in that order, of the last
    round), `attempts` (rounds tried), `elapsed` (s since the call), `hint` (str: what
    to change, or how long an outage lasts; may be empty).
    """

    what_happened = "not acquired"

    def __init__(
        self,
        resource: Resource,
        votes: tuple[MasterVote, ...],
        attempts: int,
        elapsed: float,
        hint: str = "",
    ) -> None:
        # Exception keeps these as args, so that the error survives pickling.
        super().__init__(resource, votes, attempts, elapsed, hint)
        self.resource = resource
        self.votes = votes
        self.attempts = attempts
        self.elapsed = elapsed
        self.hint = hint

    def _text(self) -> str:
        tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        hint = f" ({self.hint})" if self.hint else ""
        return (
            f"{printable(self.resource)}: {self.what_happened} after {tries} in "
            f"{self.elapsed * 1e3:.0f} ms{hint}: {describe_votes(self.votes)}"
        )


class ResourceTakenError(AcquireError):
    """Report that others held the resource for the whole timeout: try again later.

    After a timeout of more than 0 s the votes name the holder as those of `holders()`.
    """

    what_happened = "held by others"


class QuorumUnreachableError(AcquireError):
    """Report that fewer than a quorum of masters could answer: look at the servers.

    Each vote names the fault of its master. A server that comes back is found by
    the next acquire; nothing needs to be reset.
    """

    what_happened = "fewer than a quorum of masters could answer"


class ValidityExhaustedError(AcquireError):
    """Report that a quorum granted, but too late: no validity was left.

    Use a longer ttl, or find out why the round was slow; the keys are rolled back.
    """

    what_happened = "granted by a quorum, but the round used the validity up"


class ForeignKeyError(AcquireError):
    """Report that a foreign key has the resource's name: it is no lock.

    It is of another type than a string (WRONGTYPE), empty, or longer than any token, on
    so many masters that no quorum is left. Rename the resource, give a `key_prefix`, or
    delete the key.
    """

    what_happened = "a foreign key, which is no lock, stands under its name"


class ReentryError(FastRedlockError):
    """Report that the caller asked for what it holds in a block that it is still in.

    It would wait for itself. Use the lease of that block, take the resource in one
    place only, or give `reentrant=True` to `lock`. If `is_of_task`, a blocking call
    would wait for another task of the event loop that it stops: use
    `fastredlock.asyncio.FastRedlock`. If `is_upgrade`, the caller reads, and wants to
    write: leave the first block before. Other attributes: `resource`, `held` (s since
    the block's lease was taken), `permits` (of a semaphore, else 0).
    """

    def __init__(
        self,
        resource: Resource,
        held: float,
        permits: int = 0,
        is_of_task: bool = False,
        is_upgrade: bool = False,
    ) -> None:
        super().__init__(resource, held, permits, is_of_task, is_upgrade)
        self.resource = resource
        self.held = held
        self.permits = permits
        self.is_of_task = is_of_task
        self.is_upgrade = is_upgrade

    def _text(self) -> str:
        if self.is_of_task:
            return (
                f"{printable(self.resource)}: held for {self.held:.3f} s in a block of "
                "another task, or around the event loop of this thread, which would "
                "stand still while this call waits; await "
                "fastredlock.asyncio.FastRedlock, or call it by asyncio.to_thread()"
            )
        if self.is_upgrade:
            return (
                f"{printable(self.resource)}: shared for {self.held:.3f} s by this "
                "caller itself, in a block that it has not left. A shared lock becomes "
                "no exclusive one: two callers that try so wait for each other. Leave "
                "the block first, and read again in the next"
            )
        if self.permits:
            return (
                f"{printable(self.resource)}: this caller itself holds {self.permits} "
                f"of {self.permits} slots, in blocks that it has not left, so it would "
                "wait for itself; use the leases of those blocks, or more permits"
            )
        return (
            f"{printable(self.resource)}: held for {self.held:.3f} s by this caller "
            "itself, in a block that it has not left, so it would wait for itself; use "
            "the lease of that block, or lock(..., reentrant=True)"
        )


class LeaseLostError(FastRedlockError):
    """Report that a lease is over: stop the protected work, others may hold it.

    Attributes: `resource`, `reason`, `votes` (of the round that found it, else empty),
    `remaining` (s of validity left: 0.0), `body_ended`: True if the body of the block,
    or the decorated call, had come to its end; what that returned is lost.
    """

    def __init__(
        self,
        resource: Resource,
        reason: str,
        votes: tuple[MasterVote, ...] = (),
        remaining: float = 0.0,
        body_ended: bool = False,
    ) -> None:
        super().__init__(resource, reason, votes, remaining, body_ended)
        self.resource = resource
        self.reason = reason
        self.votes = votes
        self.remaining = remaining
        self.body_ended = body_ended

    def _text(self) -> str:
        votes = f": {describe_votes(self.votes)}" if self.votes else ""
        return f"{printable(self.resource)}: {self.reason}{votes}"


class NotExtendedError(FastRedlockError):
    """Report that too few masters confirmed an extension: the lease is still valid.

    Extend again, or end the work within `remaining`. Attributes: `resource`, `reason`,
    `votes` (of that round), `remaining` (s for which the lease was still valid when
    this was raised; 0.0 for an adopted one before its first extension).
    """

    def __init__(
        self,
        resource: Resource,
        reason: str,
        votes: tuple[MasterVote, ...],
        remaining: float,
    ) -> None:
        super().__init__(resource, reason, votes, remaining)
        self.resource = resource
        self.reason = reason
        self.votes = votes
        self.remaining = remaining

    def _text(self) -> str:
        left = "its validity is not known"
        if self.remaining > 0.0:
            left = f"valid for {self.remaining:.3f} s more"
        votes = describe_votes(self.votes)
        return f"{printable(self.resource)}: {self.reason}, {left}: {votes}"
