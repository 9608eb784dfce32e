# The uses of a token that the caller gave: none begins before the last one is settled.
#
# A token from the kernel is used once, so a late command of an earlier round finds
# nothing to delete. A token that is given again for the same key has no such
# protection: a release that was delayed deletes the live lock. Where the caller gives
# the tokens (`new_token`), the engine keeps one TokenUse for each pair of key and
# token, from the ACQUIRE to the answer to its last RELEASE. The next ACQUIRE with the
# pair is
#
#   TAKEN, and not sent, while the lease of the last one is valid, or the round open:
#     its roll-back could not distinguish the keys of the two;
#   refused, and not sent, while fewer than a quorum of masters are settled: it ends
#     UNREACHABLE with `is_withheld`, and the error asks the caller for another token;
#   sent otherwise, except to masters that lost a connection with something of the pair
#     unanswered: it may still be executed, from a socket's buffer, when such a server
#     goes on. They get the next command LATE_NS after their next connection is ready.
#
# Commands in flight on a connection that lives do no harm: they are executed before the
# new SET, and are not repeated behind it (NOSCRIPT), because a use that was followed by
# another is over: nothing more is sent for it. Its lease, if it is still held, is gone.
#
# Without given tokens `engine.token_uses` is None, and nothing of this is done.

cdef enum:
    SWEEP_AT_LEAST = 256

cdef int64_t LATE_NS = 10_000_000_000


@cython.final
@cython.internal
cdef class TokenUse:
    """One use of a token for one key."""

    cdef Round acquire               # None: taken elsewhere, and adopted
    cdef Round release               # the last one, a roll-back too
    cdef Round extension             # the last one
    cdef dict dropped                # master: when it lost something unanswered, in ns
    cdef int64_t valid_until_ns      # of the extensions before the last
    cdef bint is_over                # the pair was used again


cdef inline bint token_use_is_blank(TokenUse self) noexcept:
    return (
        self.acquire is None and self.release is None and self.extension is None
        and not self.dropped
    )


cdef bint token_use_is_held(TokenUse self, int64_t now_ns) noexcept:
    # Whether a lease is valid, or may become so.
    cdef Round acquire = self.acquire
    cdef Round extension = self.extension
    cdef int64_t until_ns = self.valid_until_ns
    if self.release is not None:
        return False
    if acquire is not None and acquire.generation == current_generation:
        if not acquire.is_finished:
            return True
    if acquire is not None and (
        acquire.verdict_code == VERDICT_WON or acquire.generation != current_generation
    ):
        until_ns = max(until_ns, round_valid_until_ns(acquire))
    if extension is not None and extension.verdict_code == VERDICT_WON:
        until_ns = max(until_ns, round_valid_until_ns(extension))
    return now_ns < until_ns


cdef bint token_use_is_unsettled(TokenUse self, int master, int64_t now_ns) noexcept:
    # Whether a release is not confirmed, or a SET not answered, on a connection that
    # lives or will be made.
    cdef Round round = self.acquire if self.release is None else self.release
    return (
        round is not None and (round.may_hold >> master) & 1
        and now_ns < token_use_end_ns(round)
        and not (
            round.operation_code == OPERATION_ACQUIRE
            and round.cells[master].answered_us
        )
    )


cdef inline int64_t token_use_end_ns(Round round) noexcept:
    # When a key cannot exist any more because of a round.
    return (
        max(round.opened_ns, round.closed_ns)
        + round.terms.ttl_ms * NS_PER_MS + round.terms.drift_ns
    )


cdef bint token_use_is_late(
    TokenUse self, int master, bint is_ready, int64_t ready_at_ns, int64_t now_ns
) except -1:
    # Whether something of the pair may still be under way from a lost connection.
    if not self.dropped:
        return False
    dropped_ns = self.dropped.get(master)
    if dropped_ns is None:
        return False
    if (
        is_ready and ready_at_ns > <int64_t>dropped_ns
        and now_ns >= ready_at_ns + LATE_NS
    ):
        del self.dropped[master]
        return False
    return True


cdef bint token_use_is_done(TokenUse self, int64_t now_ns) noexcept:
    # Whether none of its keys can exist, and no call can refer to it any more.
    if self.release is not None:
        return not self.release.may_hold or now_ns >= token_use_end_ns(self.release)
    if self.acquire is not None:
        if not self.acquire.is_finished:
            return False
        if self.acquire.may_hold and now_ns < token_use_end_ns(self.acquire):
            return False
    return not token_use_is_held(self, now_ns) and (
        self.extension is None or now_ns >= token_use_end_ns(self.extension)
    )


cdef int token_use_add_round(TokenUse self, Round round) except -1:
    # Add a round that was begun for this use.
    if round.operation_code == OPERATION_ACQUIRE:
        self.acquire = round
    elif round.operation_code == OPERATION_RELEASE:
        self.release = round
    else:
        if self.extension is not None and self.extension.verdict_code == VERDICT_WON:
            self.valid_until_ns = max(
                self.valid_until_ns, round_valid_until_ns(self.extension)
            )
        self.extension = round
    return 0


cdef int token_uses_add_round(Round round) except -1:
    for use in round.token_uses:
        token_use_add_round(<TokenUse>use, round)
    return 0


cdef int round_on_dropped(Round self, int master, int64_t now_ns) except -1:
    # A connection was lost with this round in flight.
    if self.token_uses is not None:
        for use in self.token_uses:
            (<TokenUse>use).dropped[master] = now_ns
    return 0
