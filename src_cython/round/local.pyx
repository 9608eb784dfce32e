# What is decided in this process alone, without the network: that a lease is handed on,
# and that a given token may be used again.

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
        or grant.terms.idle_ns != terms.idle_ns
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
    next.granted, next.taken, next.gone = grant.granted, grant.taken, grant.gone
    next.failed, next.silent = grant.failed, grant.silent
    memcpy(
        next.answered_us, grant.answered_us, grant.electorate.count * sizeof(uint32_t)
    )
    next.is_opened = next.is_submitted = True
    next.closed_list = None
    round_close(next, VERDICT_WON, now_ns)
    grant.token = HANDED_ON
    grant.may_hold = 0


cdef void round_end_here(Round self, int64_t now_ns) noexcept:
    # Nobody was asked: it counts as ended, and teaches nothing of any master.
    if self.operation_code == OPERATION_RELEASE:
        self.may_hold = 0
    self.is_submitted = self.is_finished = True
    round_close(self, VERDICT_WON, now_ns)


# --- token use ------------------------------------------------------------------------
# The use of a token that the caller gave, with one key: none begins while a release of
# the last one may be late.
#
# A token from the kernel is used once, so a late command of an earlier round finds
# nothing to delete. A token that is given again for the same key has no such
# protection: a release that was delayed deletes the live lock. Where the caller gives
# the tokens (`new_token`; else `engine.token_uses` is None), the engine keeps one
# TokenUse for each pair of key and token. An ACQUIRE with the pair is
#
#   refused, and not sent, while fewer than a quorum of masters have confirmed the last
#     release: it ends UNREACHABLE with `is_withheld`, and the error asks the caller for
#     another token;
#   TAKEN, and not sent, while another ACQUIRE with the pair is open here: the roll-back
#     of one would delete the keys of the other;
#   sent otherwise, except to masters that lost a connection with a command of the pair
#     unanswered: it may still be executed, from a socket's buffer, when such a server
#     goes on. They get the next one LATE_NS after their next connection is ready.
#
# So the servers decide whether a lease of before is still there. While one may be, the
# roll-back of an ACQUIRE goes only to masters that granted it, which did not have the
# key of that lease; and an extension or the release of that lease, which comes behind
# the SET of an open ACQUIRE, ends that as TAKEN: what it took is the lease's.
#
# A grant begins a new use. The one before is over: nothing more is sent for it, nor
# repeated (NOSCRIPT), and its leases count as lost. Commands in flight on a connection
# that lives are executed before the new SET, as is a deferred release.

cdef enum:
    SWEEP_AT_LEAST = 256

cdef int64_t LATE_NS = 10_000_000_000


@cython.final
@cython.internal
cdef class TokenUse:
    cdef Round open              # the last ACQUIRE of the pair that was sent
    cdef Round release           # the last that was made, roll-backs too
    cdef int64_t until_ns        # keys of its lease may exist so long; 0: it has none
    cdef bint is_over            # the pair was granted anew


cdef uint64_t token_use_unsettled(TokenUse self, int64_t now_ns) noexcept:
    # The masters that have not confirmed the last release, as long as a key can exist.
    cdef Round release = self.release
    if release is None or release.is_opened and now_ns >= (
        max(release.opened_ns, release.closed_ns)
        + release.terms.ttl_ms * NS_PER_MS + release.terms.drift_ns
    ):
        return 0
    return release.may_hold


cdef int token_uses_hold(Round round, int64_t began_ns) except -1:
    # It gives its keys its ttl from then on.
    cdef TokenUse use
    cdef int64_t ttl_ns = round.terms.ttl_ms * NS_PER_MS + round.terms.drift_ns
    for use in round.token_uses or ():
        use.until_ns = max(use.until_ns, began_ns + ttl_ns)


cdef bint round_is_beside_lease(Round acquire, int64_t now_ns) noexcept:
    # Whether a lease of before, with the same token, may have one of its keys.
    cdef TokenUse use
    for use in acquire.token_uses or ():
        if use.open is acquire and now_ns < use.until_ns:
            return True
    return False
