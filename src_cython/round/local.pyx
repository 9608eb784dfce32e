# What is decided in this process alone, without the network: that a lease is handed on,
# that a key stays for the next caller, that a given token may be used again.

# --- cohort ---------------------------------------------------------------------------
# A cohort: callers of one process that hold a lease one after the other. Pure.
#
# The masters know the token alone. So a lease that is released while the next caller
# waits here can be handed on, and nothing is sent (lock cohorting: Dice, Marathe,
# Shavit, PPoPP 2012). It goes to the round of that caller, which is won:
#
#   where its stay is young     `cohort` after t0 of the round that took the key at the
#                               latest, so that other processes have their turn (turns)
#   where nobody is worse off   as much validity is left as a round of the next caller
#                               would have given if it had used its whole timeout; and
#                               the key of a holder that dies blocks others for no
#                               longer than the ttl that this caller asks for
#   where nothing else has it   of a kind that is handed on, not kept, extended, adopted
#                               or numbered, and its token was shown to nobody
#
# The round that gave it away holds nothing any more, and a token that no key has.

cdef bytes HANDED_ON = b"handed-on"


cdef bint round_is_plain(Round grant) noexcept:
    # Whether nothing but the lease that is released has what this was granted.
    return not (
        grant.verdict_code != VERDICT_WON or not grant.is_opened or grant.is_shown
        or grant.lease_state is not None or grant.extensions
        or not kind_is(grant.kind, KIND_IS_HANDED_ON)
        or grant.fencing is not None or grant.generation != current_generation
    )


cdef bint round_may_be_given(Round grant, Round next, int64_t now_ns) noexcept:
    # Whether it serves the caller of the other as well as a round would.
    cdef Terms terms = next.terms
    return not (
        next.is_opened or next.is_finished or next.fencing is not None
        or next.kind != grant.kind or type(next.waiter) is Batch
        or grant.terms.ttl_ms > terms.ttl_ms
        or grant.terms.linger_ns != terms.linger_ns
        or grant.terms.is_of_rate != terms.is_of_rate      # a window is no hold
        or not round_may_have_slot(next, round_slot(grant))
        or round_valid_until_ns(grant) - now_ns < round_validity_at_worst_ns(terms)
    )


cdef inline int64_t round_validity_at_worst_ns(Terms terms) noexcept:
    # Of a round that used its whole timeout.
    return terms.ttl_ms * NS_PER_MS - terms.drift_ns - terms.timeout_ns


cdef void round_hand_on(Round grant, Round next, int64_t now_ns) noexcept:
    # All at once, and nothing that can fail.
    next.token = grant.token
    next.resource = grant.resource
    next.terms = grant.terms
    next.details = grant.details
    next.turn = None
    next.opened_ns = grant.opened_ns
    next.may_hold = grant.may_hold
    memcpy(next.cells, grant.cells, grant.master_count * sizeof(VoteCell))
    memcpy(next.counts, grant.counts, sizeof(grant.counts))
    next.is_opened = next.is_submitted = True
    next.closed_list = None
    round_close(next, VERDICT_WON, now_ns)
    grant.token = HANDED_ON
    grant.may_hold = 0


# --- idle keys ------------------------------------------------------------------------
# An idle key: released, and kept for the next caller of this process. Pure.
#
# Where nobody waits, a lease that lingers (Terms.linger_ns) is not released at the
# masters: its key is idle here, and the next acquire takes it without a byte. Then
# `is_idle`, and `round` has the key, with a token that no lease knows any more. It
# is given up when another process asks for it (a recall), when its time is over, and
# when it does not serve a caller as well as a round would.
#
# So that others find us, the token of a lease that lingers begins with the name of this
# process's channel: a gate that is asked for a key notifies the one named in its value.

# In front of a key, in a message of a gate. No resource has such a name.
cdef bytes RECALL = b"!fastredlock:"


@cython.final
@cython.internal
cdef class IdleKey(Due):
    cdef Round round             # has the key while it is idle; used again and again
    cdef int64_t until_ns        # it is idle so long at most
    cdef bint is_idle


cdef IdleKey idle_key_new(Round grant):
    cdef IdleKey self = IdleKey.__new__(IdleKey)
    self.round = round_new(
        OPERATION_ACQUIRE, grant.resource, HANDED_ON, grant.terms, grant.master_count
    )
    self.due_ns = NEVER_NS
    return self


cdef int64_t round_lingers_until_ns(Round grant, int64_t now_ns) noexcept:
    # How long what this was granted may be idle: as long as it lingers, and as a caller
    # with its terms is served as well as by a round. 0: not at all.
    cdef Terms terms = grant.terms
    cdef int64_t until_ns = min(now_ns + terms.linger_ns, (
        round_valid_until_ns(grant) - round_validity_at_worst_ns(terms)
    ))
    return until_ns if now_ns < until_ns and round_is_plain(grant) else 0


cdef void idle_key_begin(
    IdleKey self, Round grant, int64_t until_ns, int64_t now_ns
) noexcept:
    # All at once, and nothing that can fail.
    cdef Round round = self.round
    round.verdict_code = VERDICT_OPEN
    round.is_opened = round.is_shown = round.is_released = False
    memset(round.counts, 0, sizeof(round.counts))
    round_hand_on(grant, round, now_ns)
    round.is_finished = True
    self.until_ns = until_ns
    self.is_idle = True


# --- token use ------------------------------------------------------------------------
# The use of a token that the caller gave: none begins while the last one is under way.
#
# A token from the kernel is used once, so a late command of an earlier round finds
# nothing to delete. A token that is given again for the same key has no such
# protection: a release that was delayed deletes the live lock. Where the caller gives
# the tokens (`new_token`; else `engine.token_uses` is None), the engine keeps one
# TokenUse for each pair of key and token, from the ACQUIRE to the answer to its last
# RELEASE. The next ACQUIRE with the pair is
#
#   TAKEN, and not sent, while the lease of the last one is valid, or the round open:
#     its roll-back could not distinguish the keys of the two;
#   refused, and not sent, while fewer than a quorum of masters have confirmed the
#     release: it ends UNREACHABLE with `is_withheld`, and the error asks the caller for
#     another token;
#   sent otherwise, except to masters that lost a connection with a command of the pair
#     unanswered: it may still be executed, from a socket's buffer, when such a server
#     goes on. They get the next one LATE_NS after their next connection is ready.
#
# Commands in flight on a connection that lives are executed before the new SET, as is a
# deferred release. They are not repeated behind it (NOSCRIPT), because a use that was
# followed by another is over: nothing more is sent for it, nor its lease released.
#
# What has ended is forgotten: that a token is unique over time is the caller's duty.

cdef enum:
    SWEEP_AT_LEAST = 256

cdef int64_t LATE_NS = 10_000_000_000


@cython.final
@cython.internal
cdef class TokenUse:
    cdef Round last              # its last round: a RELEASE is followed by no EXTEND
    cdef int64_t valid_until_ns  # by the rounds before the last
    cdef bint is_over            # the pair is used again


cdef bint token_use_is_held(TokenUse self, int64_t now_ns) noexcept:
    # Whether a lease is valid, or may become so.
    cdef Round last = self.last
    return last is not None and last.operation_code != OPERATION_RELEASE and (
        last.operation_code == OPERATION_ACQUIRE and not last.is_finished
        or now_ns < token_use_valid_until_ns(self)
    )


cdef int64_t token_use_valid_until_ns(TokenUse self) noexcept:
    if self.last is None or self.last.verdict_code != VERDICT_WON:
        return self.valid_until_ns
    return max(self.valid_until_ns, round_valid_until_ns(self.last))


cdef inline int64_t token_use_end_ns(Round round) noexcept:
    # When a key cannot exist any more because of a round.
    return (
        max(round.opened_ns, round.closed_ns)
        + round.terms.ttl_ms * NS_PER_MS + round.terms.drift_ns
    )


cdef bint token_use_is_done(TokenUse self, int64_t now_ns) noexcept:
    # Whether nothing of it is under way, and none of its keys can exist.
    cdef Round last = self.last
    if last is None or token_use_is_held(self, now_ns):
        return last is None
    return now_ns >= token_use_end_ns(last) or (
        last.operation_code != OPERATION_EXTEND and not last.may_hold
    )


cdef int token_uses_add_round(Round round) except -1:
    # Add a round that was begun for these uses.
    cdef TokenUse use
    for use in round.token_uses:
        use.valid_until_ns = token_use_valid_until_ns(use)
        if round.operation_code != OPERATION_EXTEND or use.last is None or (
            use.last.operation_code != OPERATION_RELEASE
        ):
            use.last = round
