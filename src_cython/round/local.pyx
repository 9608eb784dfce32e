# What is decided in this process alone, without the network: that a lease is handed on,
# that a key stays for the next caller, that a given token may be used again.

# --- cohort ---------------------------------------------------------------------------
# A cohort: callers of one process that hold a lease one after the other. Pure.
#
# The masters know the token alone, so who has the lease inside of the process is the
# process's own business: a lease that is released while the next caller waits here can
# be handed on, and nothing is sent. (Lock cohorting: Dice, Marathe, Shavit, PPoPP
# 2012.) It goes to the round of that caller, which is won without having been sent:
#
#   where its stay is young     `cohort` after t0 of the round that took the key at the
#                               latest, so that other processes have their turn
#   where nobody is worse off   as much validity is left as a round of the next caller
#                               would have given if it had used its whole timeout; and
#                               the key of a holder that dies blocks others for no
#                               longer than the ttl that this caller asks for
#   where nothing else has it   of a kind that is handed on, not kept, extended, adopted
#                               or numbered, and its token was shown to nobody
#
# The round that gave it away holds nothing any more, and a token that no key has.


cdef bytes HANDED_ON = b"handed-on"


cdef bint round_may_hand_on(
    Round taken, Round next, int64_t cohort_ns, int64_t now_ns
) noexcept:
    # Whether what the one has taken, and now releases, may go to the other.
    return (
        round_is_plain(taken) and now_ns - taken.opened_ns <= cohort_ns
        and round_may_be_given(taken, next, now_ns)
    )


cdef bint round_is_plain(Round taken) noexcept:
    # Whether nothing but the lease that is released has what this has taken.
    return not (
        taken.verdict_code != VERDICT_WON or not taken.is_opened or taken.is_shown
        or taken.lease_state is not None or taken.extensions
        or not kind_is(taken.kind, KIND_IS_HANDED_ON)
        or taken.fencing is not None or taken.generation != current_generation
    )


cdef bint round_may_be_given(Round taken, Round next, int64_t now_ns) noexcept:
    # Whether it serves the caller of the other as well as a round would.
    cdef Terms terms = next.terms
    if (
        next.is_opened or next.is_finished or next.fencing is not None
        or next.kind != taken.kind or type(next.waiter) is Batch
        or taken.terms.ttl_ms > terms.ttl_ms
        or taken.terms.linger_ns != terms.linger_ns
        or taken.terms.is_of_rate != terms.is_of_rate      # a window is no hold
        or not round_may_have_slot(next, round_slot(taken))
    ):
        return False
    return round_valid_until_ns(taken) - now_ns >= round_validity_at_worst_ns(terms)


cdef inline int64_t round_validity_at_worst_ns(Terms terms) noexcept:
    # Of a round that used its whole timeout.
    return terms.ttl_ms * NS_PER_MS - terms.drift_ns - terms.timeout_ns


cdef void round_hand_on(Round taken, Round next, int64_t now_ns) noexcept:
    # All at once, and nothing that can fail.
    next.token = taken.token
    next.resource = taken.resource
    next.terms = taken.terms
    next.details = taken.details
    next.turn = None
    next.opened_ns = taken.opened_ns
    next.may_hold = taken.may_hold
    memcpy(next.cells, taken.cells, taken.master_count * sizeof(VoteCell))
    memcpy(next.counts, taken.counts, sizeof(taken.counts))
    next.is_opened = next.is_submitted = True
    next.closed_list = None
    round_close(next, VERDICT_WON, now_ns)
    taken.token = HANDED_ON
    taken.may_hold = 0


# --- rest -----------------------------------------------------------------------------
# A key at rest: released, and kept for the next caller of this process. Pure.
#
# Where nobody waits, a lease that lingers (Terms.linger_ns) is not released at the
# masters: its key rests here, and the next acquire takes it without a byte. It is given
# up when another process asks for it (a recall), when its time is over, and when it
# does not serve a caller as well as a round would.
#
#   IN USE    a lease has the key, or nobody has: `is_at_rest` is false
#   AT REST   `round` has it, with the token; no lease knows that any more
#
# So that others find us, the token of a lease that lingers begins with the name of this
# process's channel: a gate that is asked for a key tells whoever is named in its value.


# In front of a key, in a message of a gate. No resource has such a name.
cdef bytes RECALL = b"!fastredlock:"


@cython.final
@cython.internal
cdef class Rest:
    """The place of one key that rests now and then."""

    cdef bytes resource
    cdef Round round             # has the key while it rests; used again and again
    cdef int64_t until_ns        # it rests so long at most
    cdef int64_t due_ns          # when it is looked at
    cdef bint is_at_rest


cdef Rest rest_new(Round taken):
    cdef Rest self = Rest.__new__(Rest)
    self.resource = taken.resource
    self.round = round_new(
        OPERATION_ACQUIRE, taken.resource, HANDED_ON, taken.terms, taken.master_count
    )
    self.due_ns = NEVER_NS
    return self


cdef bytes rest_token(bytes waiter, bytes token):
    # Of a lease that lingers; the process of this channel is recalled.
    return b"~" + waiter + b"~" + token


cdef int64_t round_rest_until_ns(Round taken, int64_t now_ns) noexcept:
    # How long what this has taken may rest: as long as it lingers, and as a caller
    # with its terms is served as well as by a round. 0: not at all.
    cdef Terms terms = taken.terms
    cdef int64_t until_ns = min(now_ns + terms.linger_ns, (
        round_valid_until_ns(taken) - round_validity_at_worst_ns(terms)
    ))
    return until_ns if now_ns < until_ns and round_is_plain(taken) else 0


cdef void rest_begin(Rest self, Round taken, int64_t until_ns, int64_t now_ns) noexcept:
    # All at once, and nothing that can fail.
    cdef Round round = self.round
    round.verdict_code = VERDICT_OPEN
    round.is_opened = round.is_shown = round.is_released = False
    memset(round.counts, 0, sizeof(round.counts))
    round_hand_on(taken, round, now_ns)
    round.is_finished = True
    self.until_ns = until_ns
    self.is_at_rest = True


cdef bint rest_serves(Rest self, Round next, int64_t now_ns) noexcept:
    return (
        self.is_at_rest and now_ns < self.until_ns
        and round_may_be_given(self.round, next, now_ns)
    )


# --- token use ------------------------------------------------------------------------
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
